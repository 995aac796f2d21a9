// SPDX-License-Identifier: Apache-2.0
// Masks, scales, soft caps, sinks and grouped heads of the reference against PyTorch's SDPA and
// flex_attention, FlashAttention's reference and Gemma's, gpt-oss's conventions.
#include <gtest/gtest.h>

#include "posenc/relative/alibi.h"
#include "support/attention_case.h"

namespace posenc {
namespace {

using support::AttentionCase;

const support::Suite& suite() {
  static const support::Suite s("attention");
  return s;
}
ScoreShape shape_of(const AttentionArgs& a) {
  return {.heads = a.q.heads, .head_dim = a.q.dim};
}

TEST(AttentionReference, SdpaPlainScaledGrouped) {
  for (const char* name : {"sdpa_plain", "sdpa_decode_one_query", "sdpa_value_dim_differs",
                           "sdpa_scale_given", "sdpa_causal_square", "sdpa_gqa"}) {
    AttentionCase c(suite(), name);
    const std::string n = name;
    c.args.mask.causal =
        n == "sdpa_causal_square" || n == "sdpa_gqa" || n == "sdpa_value_dim_differs";
    if (n == "sdpa_scale_given") c.args.scale = 0.3;
    c.run();
    c.expect_core();
  }
}

TEST(AttentionReference, CausalUpperLeftAndLowerRight) {
  for (const char* name :
       {"sdpa_causal_more_keys", "sdpa_causal_more_queries", "sdpa_upper_left_more_keys"}) {
    AttentionCase c(suite(), name);
    c.args.mask.causal = true;
    c.args.mask.query_offset = 0;
    c.run();
    c.expect_core();
  }
  for (const char* name : {"sdpa_lower_right_more_keys", "sdpa_lower_right_more_queries"}) {
    AttentionCase c(suite(), name);
    c.args.mask.causal = true;
    c.run();
    c.expect_core();
  }
}

TEST(AttentionReference, DenseMasksAndTheirGradients) {
  for (const char* name : {"sdpa_bool_mask", "sdpa_empty_rows_bool"}) {
    AttentionCase c(suite(), name);
    c.args.mask.visible = c.flags("mask");
    c.run();
    c.expect_core();
  }
  for (const char* name : {"sdpa_float_bias", "sdpa_gqa_bias", "sdpa_empty_rows_minus_inf",
                           "sdpa_empty_rows_finfo_min"}) {
    AttentionCase c(suite(), name);
    c.args.mask.bias = c.view("mask");
    c.run();
    c.expect_core();
    c.expect("grad_mask", c.d_bias);
  }
}

TEST(AttentionReference, FlexMasks) {
  const auto run = [](const char* name, const auto& set) {
    AttentionCase c(suite(), name);
    set(c);
    c.run();
    c.expect_core();
  };
  run("flex_no_mask", [](AttentionCase&) {});
  run("flex_causal", [](AttentionCase& c) { c.args.mask.causal = true; });
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
  run("flex_chunked_left_padded", [](AttentionCase& c) {
    c.args.mask.causal = true;
    c.args.mask.chunk = 4;
    ConstTensorView origin = c.integers("left_padding");
    origin.rank = 2;
    origin.shape[1] = 1;
    origin.stride[1] = 0;
    c.args.mask.chunk_origin = origin;
    c.args.mask.key_visible = c.flags("padding_mask");
  });
  run("flex_packed_from_position_ids", [](AttentionCase& c) {
    c.args.mask.causal = true;
    c.args.mask.window_left = 2;
    c.args.mask.query_document = c.args.mask.key_document = c.integers("packed_sequence");
  });
}

TEST(AttentionReference, LogSumExpHasAGradient) {
  AttentionCase c(suite(), "flex_causal");
  c.args.mask.causal = true;
  c.run("grad_lse");
  c.expect("grad_q_with_lse", c.d_q);
  c.expect("grad_k_with_lse", c.d_k);
  c.expect("grad_v_with_lse", c.d_v);
}

TEST(AttentionReference, SoftCapStandsBeforeOrAfterTheTerms) {
  {
    AttentionCase c(suite(), "flex_softcap_causal");
    c.args.mask.causal = true;
    c.args.scale = 1;
    c.args.softcap = 2;
    c.run();
    c.expect_core();
  }
  for (const bool after : {false, true}) {
    AttentionCase c(suite(), after ? "flex_alibi_then_softcap" : "flex_softcap_then_alibi");
    c.args.mask.causal = true;
    c.args.scale = 1;
    c.args.softcap = 2;
    c.args.softcap_after_terms = after;
    Alibi{}.lower(shape_of(c.args), {}, c.lowered);
    c.run();
    c.expect_core();
  }
}

TEST(AttentionReference, FlashWindowsChunksSinkTokensAndSinks) {
  {
    AttentionCase c(suite(), "flash_attn_causal_more_queries", HeadsLayout::bthd);
    c.args.mask.causal = true;
    c.run();
    c.expect_core();
  }
  {
    AttentionCase c(suite(), "flash_attn_window_both_sides", HeadsLayout::bthd);
    c.args.mask.window_left = 2;
    c.args.mask.window_right = 1;
    c.run();
    c.expect_core();
  }
  {
    AttentionCase c(suite(), "flash_attn4_chunk", HeadsLayout::bthd);
    c.args.mask.causal = true;
    c.args.mask.chunk = 4;
    c.run();
    c.expect_core();
  }
  {
    AttentionCase c(suite(), "flash_attn4_window_with_sink_tokens", HeadsLayout::bthd);
    c.args.mask.causal = true;
    c.args.mask.window_left = 3;
    c.args.mask.sink_tokens = 2;
    c.run();
    c.expect_core();
  }
  {
    AttentionCase c(suite(), "flash_attn4_learnable_sink", HeadsLayout::bthd);
    c.tolerance = 2e-6;  // the peer's sink passes through float32
    c.args.mask.causal = true;
    c.args.sink = c.view("learnable_sink");
    c.run();
    c.expect_core();
    c.expect("grad_learnable_sink", c.d_sink);
  }
}

TEST(AttentionReference, RaggedRowsBySequenceBoundaries) {
  for (const bool windowed : {false, true}) {
    const char* name =
        windowed ? "flash_attn_varlen_window_softcap_gqa" : "flash_attn_varlen_causal";
    AttentionCase c(suite(), name, HeadsLayout::bthd);
    const auto packed = [&](const char* what) {
      ConstTensorView v = c.view(what);  // [t, h, d]
      return heads(v, HeadsLayout::thd);
    };
    c.args.q = packed("q_packed");
    c.args.k = packed("k_packed");
    c.args.v = packed("v_packed");
    c.args.query_positions = c.args.key_positions = {};
    c.args.mask.query_offset = 0;
    c.args.mask.causal = true;
    c.args.mask.query_cu_seqlens = c.integers("cu_seqlens_q");
    c.args.mask.key_cu_seqlens = c.integers("cu_seqlens_k");
    if (windowed) c.args.mask.window_left = 3, c.args.softcap = 2;
    const TensorView out = c.zeros({c.args.q.tokens, c.args.q.heads, c.args.v.dim});
    support::attention_forward(c.args, {heads(out, HeadsLayout::thd), {}});
    c.expect("out_packed", out);
  }
}

TEST(AttentionReference, ShardsOfARingSeeByOrder) {
  for (const char* name : {"ring_plain", "ring_zigzag"}) {
    const AttentionCase whole(suite(), name, HeadsLayout::bthd);
    for (int r = 0; r < 4; ++r) {
      AttentionCase c(suite(), name, HeadsLayout::bthd);
      c.tolerance = 1e-6;
      const std::string rank = "rank" + std::to_string(r) + "_";
      const std::vector<Index> own = c.array(rank + "positions").integers();
      const Index h = c.args.q.heads, d = c.args.q.dim;
      std::vector<double> q;
      for (const Index t : own)
        for (Index i = 0; i < h * d; ++i)
          q.push_back(static_cast<const double*>(c.args.q.data)[t * h * d + i]);
      std::vector<Index> all(16);
      for (Index t = 0; t < 16; ++t) all[static_cast<std::size_t>(t)] = t;
      c.args.q = heads(tensor(q.data(), {1, 4, h, d}), HeadsLayout::bthd);
      c.args.query_positions = positions(std::span<const Index>(own));
      c.args.mask.causal = true;
      c.args.mask.query_offset = 0;
      c.args.mask.query_order = tensor(own.data(), {1, 4});
      c.args.mask.key_order = tensor(all.data(), {1, 16});
      const TensorView out = c.zeros({1, 4, h, d});
      const TensorView lse = c.zeros({1, h, 4});
      support::attention_forward(c.args, {heads(out, HeadsLayout::bthd), lse});
      c.expect(rank + "out", out);
      c.expect(rank + "lse", lse);
    }
  }
}

}  // namespace
}  // namespace posenc
