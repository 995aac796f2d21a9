// SPDX-License-Identifier: Apache-2.0
// Members of ClassRules about what acts in the score, and the norm of q and k.
#pragma once
#include <optional>
#include <string>

#include "model/hugging_face/class_rules/members.h"

namespace posenc::inline v0::hf {

// The definition of what acts in the score, and where its parameters stand.
struct ScoreRules {
  std::string only_if, needs, rule, text;
  NameMap keys, unread, tensors;
  static void describe(auto& s, auto&& v) {
    v("only_if", s.only_if, "only with this switch");
    v("needs", s.needs, "a key without which (null, 0) nothing acts");
    v("rule", s.rule,
      "a function that sets further fields: direction, window, window_of_patches, same_image, "
      "halved_image, size_of_patches, windows_but_global, windows_of_blocks, boxes, deberta, "
      "deberta_v1, udop, xlnet, funnel, layoutlm, clipped_below, inkling, inkling2, levit");
    v("text", s.text, "fields of its scheme that the class has");
    v("keys", s.keys, "fields of its scheme, each by its key");
    v("unread", s.unread, "keys that the class holds and does not obey, and the fields that count");
    v("tensors", s.tensors,
      "names of tensors by parameter; {layer}, {stage}, {block}, {module} and {stack} are filled "
      "in");
  }
};

// What multiplies q.k, where it is not head_dim^-1/2.
struct ScaleRules {
  Json factor, power;
  std::string key, switch_key, by_layer, terms;
  Json key_power;
  static void describe(auto& s, auto&& v) {
    v("factor", s.factor, "a number; default 1");
    v("power", s.power, "of head_dim; default -1/2, with a key 0");
    v("key", s.key, "a key whose value is a factor; where it is null head_dim^-1/2");
    v("key_power", s.key_power, "power of that value; default 1");
    v("switch", s.switch_key, "where this is false there is no factor");
    v("by_layer", s.by_layer, "with this switch it is divided by the layer's number, from 1");
    v("terms", s.terms,
      "divided by the root of 1 + those of pos_att_type: c2p_p2c (no others count) or all");
  }
};

// What multiplies the channels of q: factor / sqrt(head_dim) ln(1 + exp(tensor)).
struct ChannelScaleRules {
  std::string tensor;
  Json factor;
  static void describe(auto& s, auto&& v) {
    v("tensor", s.tensor, "name of the tensor; {layer} is filled in");
    v("factor", s.factor, "a number");
  }
};

// A causal convolution of k and v before their norm and rotation, each channel by itself, added to them.
struct ConvolutionRules {
  std::string key, tokens_weigh_in;
  bool averaged = false;
  static void describe(auto& s, auto&& v) {
    v("key", s.key, "how many tokens it is over");
    v("averaged", s.averaged, "the sum is divided by the root of its terms");
    v("tokens_weigh_in", s.tokens_weigh_in,
      "module that projects weights more from the hidden state, in layers without a window");
  }
};

// A learned score beside those of the keys.
struct SinkRules {
  std::string tensor;
  bool sliding_only = false, by_query = false;
  static void describe(auto& s, auto&& v) {
    v("tensor", s.tensor, "name of the tensor; {layer} is filled in");
    v("by_query", s.by_query, "the tensor makes it of the hidden state, for each query and head");
    v("sliding_only", s.sliding_only, "only layers with a window");
  }
};

// How a class normalises q and k.
struct QkNormRules {
  std::string norm, over, weights, eps, switch_key, over_key, note;
  NameMap over_of;
  std::string threshold;
  Json eps_default;
  bool after = false, rotated_only = false, keys_only = false, plus_one = false;
  static void describe(auto& s, auto&& v) {
    v("norm", s.norm, "rms, layer_norm, l2, l2_clip");
    v("threshold", s.threshold, "key of the largest norm (l2_clip)");
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
