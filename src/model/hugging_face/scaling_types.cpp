// SPDX-License-Identifier: Apache-2.0
// What transformers' ROPE_INIT_FUNCTIONS read from a dictionary.
#include "model/hugging_face/scaling_types.h"

#include <algorithm>
#include <string_view>

namespace posenc::inline v0::hf {
namespace {

// A number that the file may leave out, or null.
ScalingKey optional(std::string_view key, std::string_view field, double above = 0) {
  return {key, field, KeyKind::number, false, above};
}

}  // namespace

const std::vector<ScalingType>& scaling_types() {
  const ScalingKey factor{"factor", "factor"},
      ratio = optional("factor", "factor"),
      original{"original_max_position_embeddings", "original_context", KeyKind::whole},
      gain = optional("attention_factor", "attention_factor");
  static const std::vector<ScalingType> types = {
      {.type = "default", .keys = {}, .pair_by_pair = true},
      {.type = "linear", .keys = {factor}, .pair_by_pair = true},
      {.type = "dynamic", .keys = {factor}, .takes_head_dim = true},
      {.type = "yarn",
       .keys = {factor,
                original,
                gain,
                optional("beta_fast", "beta_fast"),
                optional("beta_slow", "beta_slow"),
                optional("mscale", "mscale"),
                optional("mscale_all_dim", "mscale_all_dim"),
                {"truncate", "truncate", KeyKind::other, false}},
       .takes_head_dim = true},
      {.type = "llama3",
       .keys = {factor,
                {"low_freq_factor", "low_freq_factor"},
                {"high_freq_factor", "high_freq_factor"},
                original},
       .pair_by_pair = true},
      {.type = "longrope",
       .keys = {{"short_factor", "short_factor", KeyKind::list},
                {"long_factor", "long_factor", KeyKind::list},
                original,
                ratio,
                gain},
       .takes_head_dim = true,
       .pair_by_pair = true},
      {.type = "proportional",
       .keys = {ratio, optional("partial_rotary_factor", "fraction", -1e-300)}},
      {.type = "ntk", .keys = {factor, optional("mixed_b", "mixed_b")}, .own_keys = true},
      {.type = "qwen_dynamic",
       .keys = {{"trained_length", "trained_length", KeyKind::whole}},
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
  const auto at = std::ranges::find_if(keys, [key](const ScalingKey& k) { return k.key == key; });
  return at == keys.end() ? nullptr : &*at;
}

const std::vector<std::string_view>& rope_members() {
  static const auto names = [] {
    // Read for every type, or by classes of their own.
    std::vector<std::string_view> all{"rope_type", "mrope_section", "long_mscale", "short_mscale"};
    for (const ScalingType& t : scaling_types())
      for (const ScalingKey& k : t.keys)
        if (!t.own_keys && k.field != "original_context" && k.field != "fraction" &&
            std::ranges::find(all, k.key) == all.end())
          all.push_back(k.key);
    std::ranges::sort(all);
    return all;
  }();
  return names;
}
const std::vector<std::string_view>& dictionary_members() {
  static const auto names = [] {
    std::vector<std::string_view> all = rope_members();
    for (const std::string_view key : {"original_max_position_embeddings", "partial_rotary_factor",
                                       "rope_theta", "type", "mrope_interleaved"})
      all.push_back(key);
    return all;
  }();
  return names;
}

}  // namespace posenc::v0::hf
