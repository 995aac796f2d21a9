// SPDX-License-Identifier: Apache-2.0
// rope_scaling, rope_parameters and the keys beside them, brought into one form as transformers
// 5.23 does (RotaryEmbeddingConfigMixin and what single classes do instead).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/hugging_face/config_view.h"

namespace posenc::inline v0::hf {

struct RopeSet {
  bool nested = false;  // one dictionary for each layer type
  struct Part {
    std::string label;          // layer type; empty when not nested
    bool turns = true;          // false: a null entry, no rotary there
    Dict dict;                  // has rope_type and rope_theta unless findings say why not
    bool theta_beside = false;  // the file states its theta beside the dictionary (too)
  };
  std::vector<Part> parts;
  std::string spelling;  // rope_scaling, rope_parameters, class or empty: where it came from
  const Part* find(const std::string& layer_type) const;
};

// layer_types: the different ones of the model, for nested dictionaries.
RopeSet standardise_rope(const ConfigView&, const std::vector<std::string>& layer_types);

// rope_type of a dictionary; none after a finding.
std::optional<std::string> rope_type(const Dict&);

}  // namespace posenc::v0::hf
