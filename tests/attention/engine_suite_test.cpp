// SPDX-License-Identifier: Apache-2.0
// Cases of the suites through the engine, in the peer's numbers.
#include <gtest/gtest.h>

#include "attention/engine_compare.h"
#include "posenc/relative/alibi.h"
#include "support/attention_case.h"

namespace posenc {
namespace {

using support::AttentionCase;

const support::Suite& attention_cases() {
  static const support::Suite s("attention");
  return s;
}

// The engine's numbers in place of the reference's, then the comparison with the peer.
void expect_peer(AttentionCase& c) {
  c.run();
  attend(c.args, c.result);
  if (c.has("grad_out")) {
    for (const TensorView* x : {&c.d_q, &c.d_k, &c.d_v, &c.d_sink, &c.d_bias})
      if (!x->empty()) std::fill_n(static_cast<double*>(x->data), x->count(), 0.0);
    AttentionGradients g;
    const HeadsLayout layout = HeadsLayout::bhtd;
    g.q = heads(c.d_q, layout), g.k = heads(c.d_k, layout), g.v = heads(c.d_v, layout);
    g.sink = c.d_sink, g.bias = c.d_bias;
    attend_backward(c.args, c.result, {c.heads_of("grad_out"), {}}, g);
  }
  c.expect_core();
}

TEST(AttentionEngineSuite, SdpaPlainMaskedGrouped) {
  for (const std::string name : {"sdpa_plain", "sdpa_decode_one_query", "sdpa_value_dim_differs",
                                 "sdpa_scale_given", "sdpa_causal_square", "sdpa_gqa"}) {
    AttentionCase c(attention_cases(), name);
    c.args.mask.causal =
        name == "sdpa_causal_square" || name == "sdpa_gqa" || name == "sdpa_value_dim_differs";
    if (name == "sdpa_scale_given") c.args.scale = 0.3;
    expect_peer(c);
  }
  for (const std::string name : {"sdpa_bool_mask", "sdpa_empty_rows_bool"}) {
    AttentionCase c(attention_cases(), name);
    c.args.mask.visible = c.flags("mask");
    expect_peer(c);
  }
  for (const std::string name : {"sdpa_float_bias", "sdpa_gqa_bias", "sdpa_empty_rows_minus_inf"}) {
    AttentionCase c(attention_cases(), name);
    c.args.mask.bias = c.view("mask");
    expect_peer(c);
    c.expect("grad_mask", c.d_bias);
  }
}

TEST(AttentionEngineSuite, FlexMasks) {
  const auto run = [](const char* name, const auto& set) {
    AttentionCase c(attention_cases(), name);
    set(c);
    expect_peer(c);
  };
  run("flex_chunked_prefill_offset", [](AttentionCase& c) { c.args.mask.causal = true; });
  run("flex_decode_offset", [](AttentionCase& c) {
    c.args.mask.causal = true;
    c.args.mask.window_left = 4;
  });
  run("flex_sliding_window_both_sides",
      [](AttentionCase& c) { c.args.mask.window_left = c.args.mask.window_right = 3; });
  run("flex_prefix_lm", [](AttentionCase& c) {
    c.args.mask.causal = true;
    c.args.mask.prefix = c.integers(std::vector<Index>{4}, {1});
  });
  run("flex_packed_from_position_ids", [](AttentionCase& c) {
    c.args.mask.causal = true;
    c.args.mask.window_left = 2;
    c.args.mask.query_document = c.args.mask.key_document = c.integers("packed_sequence");
  });
}

// BLOOM's layer: a linear term.
TEST(AttentionEngineSuite, LinearIsAlibi) {
  static const support::Suite biases("relative_bias");
  for (const char* name : {"alibi_attn_bloom", "alibi_attn_bloom_5_heads", "alibi_attn_bloom_chunk",
                           "alibi_attn_bloom_decode"}) {
    AttentionCase c(biases, name);
    ConstTensorView mask = c.flags("mask");
    mask.rank = 4;
    mask.shape = {mask.shape[0], 1, mask.shape[1], mask.shape[2], 0};
    mask.stride = {mask.stride[0], 0, mask.stride[1], mask.stride[2], 0};
    c.args.mask.visible = mask;
    c.args.query_positions = positions(c.integers("q_pos"));
    c.args.key_positions = positions(c.integers("k_pos"));
    Alibi{}.lower({.heads = c.args.q.heads, .head_dim = c.args.q.dim}, {}, c.lowered);
    expect_peer(c);
  }
}

}  // namespace
}  // namespace posenc
