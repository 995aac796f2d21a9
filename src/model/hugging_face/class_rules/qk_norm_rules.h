// SPDX-License-Identifier: Apache-2.0
// How a class normalises q and k.
#pragma once
#include <optional>
#include <string>

#include "model/hugging_face/class_rules/members.h"

namespace posenc::inline v0::hf {

struct QkNormRules {
  std::string norm, over, weights, eps, switch_key, over_key, note;
  NameMap over_of;
  Json eps_default;
  bool after = false, rotated_only = false, keys_only = false, plus_one = false;
  static void describe(auto& s, auto&& v) {
    v("norm", s.norm, "rms, layer_norm, l2");
    v("over", s.over, "head: each head; all_heads: all heads at once; rotated: its rotated part");
    v("over_key", s.over_key, "the key that says over what");
    v("over_of", s.over_of, "over what for each of its values");
    v("after", s.after, "after the rotation; absent: before");
    v("rotated_only", s.rotated_only, "only in layers that rotate q and k");
    v("keys_only", s.keys_only, "k alone");
    v("weights", s.weights,
      "shared (default): one vector for all heads, or as wide as all of them; each_head; keys: of "
      "k alone; none");
    v("plus_one", s.plus_one, "multiplies by 1 + weight");
    v("eps", s.eps, "key of eps");
    v("eps_default", s.eps_default, "eps where the file has none");
    v("switch", s.switch_key, "the key that switches it; `defaults` has what the class holds");
    v("note", s.note, "what else an engine does there");
  }
};

}  // namespace posenc::v0::hf
