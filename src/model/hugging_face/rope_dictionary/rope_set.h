// SPDX-License-Identifier: Apache-2.0
// rope_scaling, rope_parameters and the keys beside them, brought into one form as transformers
// 5.23 does (RotaryEmbeddingConfigMixin and what single classes do instead).
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
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

// What the rules for rope_parameters share; standardise.cpp has the common one.

// What one class makes of its keys: by the name of the table's "rope" rule.
using RopeRule = RopeSet(const ConfigView&, const std::vector<std::string>& layer_types);
RopeRule own_keys;                                             // own_keys.cpp
RopeRule by_layer_type, as_stated, fixed_base, top_level;      // by_class.cpp
RopeRule main_and_compress, lists_of_layers, thetas_of_kinds;  // by_layer.cpp
RopeRule filled_in, named_types;                               // by_layer.cpp

// The base that the class holds, or has in its code.
Value theta_of_class(const ConfigView&);
Value theta_of_code(const ConfigView&);
// A dictionary of the file, values with their paths; of one layer type in it: none after a finding.
Dict dict_of(const ConfigView&, const Value& object);
std::optional<Dict> dict_of(const ConfigView&, const Value& all, const std::string& label,
                            const char* wanted = "an object or null");

// rope_scaling where it scales, rope_parameters where they are an object; none after a finding.
struct Stated {
  std::optional<Value> scaling, parameters;
};
Stated stated_dicts(const ConfigView&);
// The object that the common rule reads, with the place it came from.
std::optional<Value> chosen(const ConfigView&, RopeSet&);
// Which members of it are dictionaries of layer types.
std::vector<std::string> labels_of(const ConfigView&, const Json& object,
                                   const std::vector<std::string>& layer_types);
// One part a label; false after a finding.
bool add_nested(const ConfigView&, RopeSet&, const Value& all,
                const std::vector<std::string>& labels);
// rope_theta (or the class's other name for it) beside the dictionary, else the class's.
Value theta_outside(const ConfigView&);
// The same theta stands inside and outside, or a warning says that they differ.
void theta_beside(const ConfigView&, RopeSet::Part&, const Value& outside);
// rope_type, and original_max_position_embeddings where the type needs it.
void complete(const ConfigView&, Dict&, bool nested);
// Whether transformers refuses the type without original_max_position_embeddings.
bool needs_original(const std::string& rope_type);
// False after a finding: a class that takes layer types only (strict_labels) and finds another key.
bool only_layer_types(const ConfigView&, const Value& all);
// A warning for each of the keys that the file uses: "KEY is not read" and why.
void not_read(const ConfigView&, std::initializer_list<std::string_view> keys,
              const std::string& why, const std::string& fix);

}  // namespace posenc::v0::hf
