// SPDX-License-Identifier: Apache-2.0
// T5, ALiBi and Transformer-XL against their authors' and users' programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/relative/alibi.h"
#include "posenc/relative/t5.h"
#include "posenc/relative/transformer_xl.h"
#include "support/attention_case.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using support::AttentionCase;
using support::Suite;
using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Suite& bias_suite() {
  static const Suite s("relative_bias");
  return s;
}
ScoreShape shape_of(Index heads, Index head_dim, Index min, Index max) {
  return {.heads = heads, .head_dim = head_dim, .distance = {{min, max}}};
}
const Suite& attention_suite() {
  static const Suite s("attention");
  return s;
}

TEST(T5, BucketsOfTransformersAndMeshTensorflow) {
  struct Setting {
    const char* name;
    bool bidirectional;
    Index buckets, distance;
  };
  const Setting settings[] = {{"t5_buckets_hf_bidirectional_128_512", true, 128, 512},
                              {"t5_buckets_hf_bidirectional_32_128", true, 32, 128},
                              {"t5_buckets_hf_bidirectional_64_128", true, 64, 128},
                              {"t5_buckets_hf_bidirectional_64_256", true, 64, 256},
                              {"t5_buckets_hf_bidirectional_8_5", true, 8, 5},
                              {"t5_buckets_hf_causal_16_64", false, 16, 64},
                              {"t5_buckets_hf_causal_32_128", false, 32, 128},
                              {"t5_buckets_hf_causal_64_256", false, 64, 256},
                              {"t5_buckets_mesh_bidirectional_32_128", true, 32, 128},
                              {"t5_buckets_mesh_causal_32_128", false, 32, 128},
                              {"t5_buckets_mesh_causal_72_100", false, 72, 100}};
  for (const Setting& s : settings) {
    const T5 t5{
        .bidirectional = s.bidirectional, .num_buckets = s.buckets, .max_distance = s.distance};
    const std::vector<Index> thresholds = t5_thresholds(t5.side(), t5.max_distance);
    const auto relative = bias_suite()(s.name, "relative_position").integers();
    const auto bucket = bias_suite()(s.name, "bucket").integers();
    for (std::size_t i = 0; i < relative.size(); ++i)
      ASSERT_EQ(t5.bucket(-relative[i], thresholds), bucket[i]) << s.name << " " << relative[i];
  }
}

TEST(T5, TransformersLosesOneExactHit) {
  const T5 t5{.bidirectional = false, .num_buckets = 72, .max_distance = 100};
  const auto relative = bias_suite()("t5_buckets_hf_causal_72_100", "relative_position").integers();
  const auto bucket = bias_suite()("t5_buckets_hf_causal_72_100", "bucket").integers();
  for (std::size_t i = 0; i < relative.size(); ++i)
    EXPECT_EQ(t5.bucket(-relative[i]) - bucket[i], relative[i] == -60 ? 1 : 0) << relative[i];
}

TEST(T5, ThresholdsOfTheReference) {
  EXPECT_THAT(t5_thresholds(16, 128), ElementsAre(12, 16, 23, 32, 46, 64, 91));
  EXPECT_THAT(t5_thresholds(32, 128),
              ElementsAre(19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113));
  EXPECT_EQ((T5{}.bucket(kUnbounded)), 15);
  EXPECT_EQ((T5{}.bucket(-kUnbounded - 1)), 31);
  EXPECT_EQ((T5{.bidirectional = false}.bucket(-5)), 0);
}

TEST(T5, Refusals) {
  EXPECT_THAT(refusal([] { t5_thresholds(1, 128); }), HasSubstr("[t5] buckets"));
  EXPECT_THAT(refusal([] { t5_thresholds(16, 8); }), HasSubstr("[t5] max_distance"));
  LoweredTerms out;
  const ScoreShape shape = shape_of(2, 4, 0, 5);
  EXPECT_THAT(refusal([&] { T5{}.lower(shape, {}, out); }), HasSubstr("1 parameters"));
  std::vector<double> table(32 * 2);
  const ConstTensorView wrong = tensor(table.data(), {2, 32});
  EXPECT_THAT(refusal([&] { T5{}.lower(shape, std::span(&wrong, 1), out); }),
              HasSubstr("[t5] parameter table must be [32, 2] of f64 or f32"));
  EXPECT_THAT(refusal([] { T5{}.parameters(shape_of(0, 4, 0, 5)); }), HasSubstr("[t5] heads"));
  EXPECT_THAT(refusal([] { T5{}.parameters(shape_of(1, 4, 6, 5)); }),
              HasSubstr("[t5] min of the distances must not be above their max, got 6"));
  const std::vector<double> good(32 * 2);
  const ConstTensorView p = tensor(good.data(), {32, 2});
  EXPECT_THAT(refusal([&] { T5{}.lower({.heads = 2, .head_dim = 4}, std::span(&p, 1), out); }),
              HasSubstr("[shape] distance must have a range for each axis"));
}

TEST(T5, LayersOfTransformers) {
  struct Setting {
    const char* name;
    bool bidirectional;
    Index buckets, distance;
  };
  for (const Setting& s : {
           Setting{"t5_attn_beyond_clip", true, 8, 6},
           Setting{"t5_attn_decode", false, 32, 128},
           Setting{"t5_attn_decoder", false, 8, 6},
           Setting{"t5_attn_encoder", true, 32, 128},
           Setting{"t5_attn_mt5_decoder", false, 6, 10},
           Setting{"t5_attn_umt5", true, 16, 20},
       }) {
    AttentionCase c(bias_suite(), s.name);
    c.args.mask.visible = c.flags("mask");
    const ConstTensorView table = c.view("table");
    const T5 t5{
        .bidirectional = s.bidirectional, .num_buckets = s.buckets, .max_distance = s.distance};
    const Index tk = c.args.k.tokens;
    const ScoreShape shape = shape_of(c.args.q.heads, c.args.q.dim, -tk, tk);
    t5.lower(shape, std::span(&table, 1), c.lowered);
    c.run();
    c.expect_core();
    c.expect_pairs("scores", c.detail.scores);
    const TensorView d = c.zeros({s.buckets, c.args.q.heads});
    t5.pull_back(shape, std::span(&table, 1), {}, c.gradient(), std::span(&d, 1), {});
    c.expect("grad_table", d);
  }
  for (const char* name : {"flex_t5_bidirectional", "flex_t5_causal"}) {
    AttentionCase c(attention_suite(), name);
    const T5 t5{.bidirectional = std::string(name) == "flex_t5_bidirectional",
                .num_buckets = 8,
                .max_distance = 20};
    c.args.mask.causal = !t5.bidirectional;
    c.args.query_positions = c.args.key_positions = positions(c.integers("positions"));
    const ConstTensorView table = c.view("table");
    const ScoreShape shape = shape_of(2, 8, -1000, 1000);
    t5.lower(shape, std::span(&table, 1), c.lowered);
    c.run();
    c.expect_core();
    const TensorView d = c.zeros({8, 2});
    t5.pull_back(shape, std::span(&table, 1), {}, c.gradient(), std::span(&d, 1), {});
    c.expect("grad_table", d);
  }
}

TEST(Alibi, SlopesOfTheAuthorsAndOfModels) {
  for (const char* name :
       {"alibi_slopes_press", "alibi_slopes_bloom", "alibi_slopes_x_transformers"})
    for (const Index heads : {1, 2, 3, 5, 6, 8, 12, 16, 20, 24, 32, 40, 48, 71, 112}) {
      const auto want = bias_suite()(name, "slopes_" + std::to_string(heads)).value;
      const std::vector<double> got = Alibi{}.slope(heads);
      ASSERT_EQ(want.size(), got.size());
      // The authors multiply by a ratio head after head in double; BLOOM raises a float32 base.
      const double tolerance = std::string(name) == "alibi_slopes_bloom" ? 2e-6 : 3e-14;
      for (std::size_t h = 0; h < got.size(); ++h)
        EXPECT_NEAR(got[h], want[h], tolerance * want[h]) << name << " " << heads << " " << h;
    }
  EXPECT_THAT(Alibi{}.slope(8),
              ElementsAre(0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625));
  EXPECT_THAT(Alibi{}.slope(6), ElementsAre(0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125));
}

TEST(Alibi, MaskedFormsOfFlex) {
  for (const char* name : {"flex_alibi_causal", "flex_gqa_alibi_window",
                           "flex_alibi_two_sided_signed", "flex_alibi_literal_slopes_6_heads"}) {
    AttentionCase c(attention_suite(), name);
    Alibi alibi;
    const std::string n = name;
    if (n == "flex_alibi_two_sided_signed") alibi.future = AlibiFuture::signed_distance;
    if (n == "flex_alibi_literal_slopes_6_heads") {
      alibi.slopes = AlibiSlopes::literal;
      c.tolerance = 2e-6;  // float32 slopes
    }
    if (n != "flex_alibi_two_sided_signed") c.args.mask.visible = c.flags("visible");
    alibi.lower(shape_of(c.args.q.heads, 8, -9, 9), {}, c.lowered);
    c.run();
    c.expect_core();
  }
}

TEST(Alibi, LearnedSlopesAndTheirLogarithms) {
  {
    AttentionCase c(attention_suite(), "flex_alibi_learned_slopes");
    c.args.mask.visible = c.flags("visible");
    const Alibi alibi{.learned = AlibiLearned::slopes};
    const ConstTensorView slopes = c.view("slopes");
    const ScoreShape shape = shape_of(6, 8, -9, 9);
    alibi.lower(shape, std::span(&slopes, 1), c.lowered);
    c.run();
    c.expect_core();
    const TensorView d = c.zeros({6});
    alibi.pull_back(shape, std::span(&slopes, 1), {}, c.gradient(), std::span(&d, 1), {});
    c.expect("grad_slopes", d);
  }
  AttentionCase c(bias_suite(), "alibi_attn_learned_slopes");
  c.args.mask.visible = c.flags("mask");
  c.args.scale = 0.5;
  const Alibi alibi{.learned = AlibiLearned::log_slopes};
  ConstTensorView slopes = c.view("log_slopes");
  slopes.rank = 1;
  const ScoreShape shape = shape_of(3, 4, -9, 9);
  alibi.lower(shape, std::span(&slopes, 1), c.lowered);
  c.run();
  c.expect_core();
  const TensorView d = c.zeros({3});
  alibi.pull_back(shape, std::span(&slopes, 1), {}, c.gradient(), std::span(&d, 1), {});
  c.expect("grad_log_slopes", d);
}

TEST(Alibi, DeepMindsOffsetOnThePast) {
  const auto want = bias_suite()("alibi_bias_deepmind_offset", "bias_4_5_5");
  LoweredTerms low;
  Alibi{.past_offset = 0.5}.lower(shape_of(4, 1, -9, 9), {}, low);
  std::vector<double> zero(20, 0), out(20);
  const OwnedPositions p = arange(0, 5);
  AttentionArgs a;
  a.q = a.k = a.v = heads(std::as_const(zero).data(), 5, 4, 1);
  a.scale = 1;
  a.query_positions = a.key_positions = p;
  a.terms = low.terms;
  support::AttentionDetail detail;
  support::attention_forward(a, {heads(out.data(), 5, 4, 1), {}}, &detail);
  for (std::size_t i = 0; i < want.value.size(); ++i) EXPECT_EQ(detail.scores[i], want.value[i]);
}

TEST(Alibi, Refusals) {
  const ScoreShape s = shape_of(4, 8, 0, 9);
  EXPECT_THAT(refusal([&] { Alibi{.max_bias = NAN}.parameters(s); }),
              HasSubstr("[alibi] max_bias"));
  EXPECT_THAT(refusal([&] { Alibi{.alibi_heads = 5}.parameters(s); }),
              HasSubstr("[alibi] alibi_heads"));
  LoweredTerms out;
  const ConstTensorView extra;
  EXPECT_THAT(refusal([&] { Alibi{}.lower(s, std::span(&extra, 1), out); }),
              HasSubstr("[alibi] there must be 0 parameters"));
}

TEST(TransformerXl, ModulesOfTransformersAndTheAuthors) {
  static const Suite suite("relative_content");
  struct Setting {
    const char* name;
    Index clamp;
  };
  for (const Setting& s :
       {Setting{"transfo_xl_no_memory", 0}, Setting{"transfo_xl_decode", 0},
        Setting{"transfo_xl_clamp_len", 4}, Setting{"transfo_xl_same_length", 0}}) {
    AttentionCase c(suite, s.name);
    c.args.mask.visible = c.flags("visible");
    const std::vector<ConstTensorView> p{c.view("w_kr"), c.view("u"), c.view("v_bias")};
    const TransformerXl xl{.d_model = p[0].shape[1], .clamp_len = s.clamp};
    const ScoreShape shape =
        shape_of(c.args.q.heads, c.args.q.dim, -c.args.q.tokens, c.args.k.tokens - 1);
    xl.lower(shape, p, c.lowered);
    c.run();
    c.expect_core();
    c.expect_pairs("scores", c.detail.scores);
    const std::vector<TensorView> d{c.zeros_like(p[0]), c.zeros_like(p[1]), c.zeros_like(p[2])};
    xl.pull_back(shape, p, {}, c.gradient(), d, {});
    c.expect("grad_w_kr", d[0]);
    c.tolerance = 2e-6;  // stored as float32
    c.expect("grad_u", d[1]);
    c.expect("grad_v_bias", d[2]);
  }
}

TEST(TransformerXl, FutureKeysAreRightAsInXlnet) {
  static const Suite suite("relative_content");
  AttentionCase c(suite, "xlnet_bi_square");
  const ConstTensorView w = c.view("w_kr");  // [d_model, head, channel]
  std::vector<double> rows;                  // [head * channel, d_model]
  for (Index hx = 0; hx < 8; ++hx)
    for (Index m = 0; m < 8; ++m) rows.push_back(static_cast<const double*>(w.data)[m * 8 + hx]);
  const std::vector<ConstTensorView> p{tensor(rows.data(), {8, 8}), c.view("u"), c.view("v_bias")};
  TransformerXl{.d_model = 8}.lower(shape_of(2, 4, -5, 5), p, c.lowered);
  c.run();
  c.expect_core();
  c.expect_pairs("scores", c.detail.scores);
}

TEST(TransformerXl, Refusals) {
  const ScoreShape s = shape_of(2, 4, 0, 9);
  EXPECT_THAT(refusal([&] { TransformerXl{.d_model = 7}.parameters(s); }),
              HasSubstr("[transformer_xl] d_model"));
  EXPECT_THAT(refusal([&] { (TransformerXl{.d_model = 8, .base = -1}.parameters(s)); }),
              HasSubstr("[transformer_xl] base"));
  EXPECT_THAT(
      refusal([&] { (TransformerXl{.d_model = 8}.parameters(shape_of(2, 4, 0, kUnbounded))); }),
      HasSubstr("2^31"));
}

}  // namespace
}  // namespace posenc
