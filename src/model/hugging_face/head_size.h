// SPDX-License-Identifier: Apache-2.0
// How wide the heads of a layer are.
#pragma once
#include <optional>
#include <string>

#include "model/hugging_face/config_view.h"

namespace posenc::inline v0::hf {

// Sizes of a head: of the q that attention multiplies, and what the rotary functions see.
struct Head {
  Sourced<Index> q_dim, rope_dim, offset;
  bool null_head_dim = false;  // the class leaves head_dim null: its scaled types fail on it
};
// Head sizes of a layer type; none after a finding.
std::optional<Head> head_of(const ConfigView&, const std::string& layer_type);

// hidden_size // num_attention_heads, unless one of them is missing or refused.
std::optional<Sourced<Index>> width_over_heads(const ConfigView&, bool required);

}  // namespace posenc::v0::hf
