// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/rotary_definition/scaling_keys.h"

#include <algorithm>

#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::hf {
namespace {

constexpr bool kOptional = false;
const ScalingKey kFactor{"factor", "factor"};
const ScalingKey kFactorOrRatio{"factor", "factor", KeyKind::number, kOptional};
const ScalingKey kOriginal{"original_max_position_embeddings", "original_context", KeyKind::whole};
const ScalingKey kGain{"attention_factor", "attention_factor", KeyKind::number, kOptional};

}  // namespace

const std::vector<ScalingType>& scaling_types() {
  using W = RotaryWriter;
  static const std::vector<ScalingType> types = {
      {.type = "default", .scaling = "", .keys = {}, .pair_by_pair = true},
      {.type = "linear", .scaling = "linear", .keys = {kFactor}, .pair_by_pair = true},
      {.type = "dynamic",
       .scaling = "dynamic",
       .keys = {kFactor},
       .read = &W::dynamic,
       .takes_head_dim = true},
      {.type = "yarn",
       .scaling = "yarn",
       .keys = {kFactor,
                kOriginal,
                kGain,
                {"beta_fast", "beta_fast", KeyKind::number, kOptional},
                {"beta_slow", "beta_slow", KeyKind::number, kOptional},
                {"mscale", "mscale", KeyKind::number, kOptional},
                {"mscale_all_dim", "mscale_all_dim", KeyKind::number, kOptional},
                {"truncate", "truncate", KeyKind::other, kOptional}},
       .read = &W::yarn,
       .takes_head_dim = true},
      {.type = "llama3",
       .scaling = "llama3",
       .keys = {kFactor,
                {"low_freq_factor", "low_freq_factor"},
                {"high_freq_factor", "high_freq_factor"},
                kOriginal},
       .check = &W::check_llama3,
       .pair_by_pair = true},
      {.type = "longrope",
       .scaling = "longrope",
       .keys = {{"short_factor", "short_factor", KeyKind::list},
                {"long_factor", "long_factor", KeyKind::list},
                kOriginal,
                kFactorOrRatio,
                kGain},
       .read = &W::longrope,
       .takes_head_dim = true,
       .pair_by_pair = true},
      {.type = "proportional",
       .scaling = "proportional",
       .keys = {kFactorOrRatio,
                {"partial_rotary_factor", "fraction", KeyKind::number, kOptional, -1e-300}},
       .read = &W::proportional},
      {.type = "ntk",
       .scaling = "ntk",
       .keys = {kFactor, {"mixed_b", "mixed_b", KeyKind::number, kOptional}},
       .read = &W::ntk,
       .own_keys = true},
      {.type = "qwen_dynamic",
       .scaling = "qwen_dynamic",
       .keys = {{"trained_length", "trained_length", KeyKind::whole}},
       .check = &W::hold_length,
       .own_keys = true},
  };
  return types;
}

const ScalingType* scaling_type(std::string_view rope_type) {
  for (const ScalingType& t : scaling_types())
    if (t.type == rope_type) return &t;
  return nullptr;
}

const ScalingKey* ScalingType::find(std::string_view key) const {
  const auto at =
      std::find_if(keys.begin(), keys.end(), [key](const ScalingKey& k) { return k.key == key; });
  return at == keys.end() ? nullptr : &*at;
}

}  // namespace posenc::hf
