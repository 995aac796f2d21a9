// SPDX-License-Identifier: Apache-2.0
// What belongs to the call: stages before the product, stick-breaking, mixes of heads, pages,
// merging, against programs that have them.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "attention/term_tools.h"
#include "posenc/positions/grid.h"
#include "posenc/relative/alibi.h"
#include "support/attention_case.h"

namespace posenc {
namespace {

using support::AttentionCase;
using support::Suite;

const Suite& calls() {
  static const Suite s("attention");
  return s;
}
const Suite& calls_of_bias() {
  static const Suite s("relative_bias");
  return s;
}

// Swin V2's table of log offsets through its network, 16 sigmoid(w2 max(w1 x + b1, 0)): [2, 25].
std::vector<double> swin_v2_table(AttentionCase& c) {
  const std::vector<double> x = c.array("coords_log").value, w1 = c.array("w1").value,
                            b1 = c.array("b1").value, w2 = c.array("w2").value;
  std::vector<double> table;
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t r = 0; r < 25; ++r) {
      double sum = 0;
      for (std::size_t u = 0; u < b1.size(); ++u)
        sum += w2[h * b1.size() + u] *
               std::fmax(w1[2 * u] * x[2 * r] + w1[2 * u + 1] * x[2 * r + 1] + b1[u], 0);
      table.push_back(1 / (1 + std::exp(-sum)));
    }
  return table;
}

// l2 and head_scale: cosine attention with a logit scale.
TEST(AttentionCall, NormsAndHeadScaleAreSwinV2) {
  AttentionCase c(calls_of_bias(), "swin_v2_attn_hf");
  c.tolerance = 2e-11;
  const OwnedPositions p = grid({3, 3});
  c.args.query_positions = c.args.key_positions = p;
  ProductTerm t;
  t.scale = 16;
  t.lines[0] = c.lowered.line(iota(5, 0, 5), -2, 0);
  t.lines[1] = c.lowered.line(iota(5), -2, 1);
  t.table = c.lowered.table(swin_v2_table(c), 2, 25, 1);
  c.lowered.add(t);
  std::vector<double> logit = c.array("logit_scale").value, scale;
  for (const double x : logit) scale.push_back(std::exp(std::fmin(x, std::log(100.0))));
  const Index shape[] = {1, 2};
  c.lowered.requests.head_scale = c.lowered.array(scale, shape);
  c.lowered.requests.scale = 1;
  c.lowered.requests.prepare = {Stage{.kind = StageKind::l2, .epsilon = 1e-12}};
  c.run();
  c.expect_core();
  c.expect_pairs("scores", c.detail.scores);
  std::vector<double> d = dense(c.d_head_scale);
  for (std::size_t h = 0; h < 2; ++h) d[h] = logit[h] > std::log(100.0) ? 0 : d[h] * scale[h];
  c.expect("grad_logit_scale", d);
}

// Sigmoids that break a stick from the last visible key on; the remainder is dropped, or kept.
TEST(AttentionCall, StickBreaking) {
  static const Suite content("relative_content");
  struct Setting {
    const Suite& suite;
    const char* name;
    bool own_key, own_value;
  };
  for (const Setting& s : {Setting{calls_of_bias(), "stick_breaking", false, true},
                           Setting{calls_of_bias(), "stick_breaking_current", true, true},
                           Setting{content, "stickbreaking_fla", false, false},
                           Setting{content, "stickbreaking_fla_attend_current", true, false},
                           Setting{content, "stickbreaking_fla_gqa", false, false},
                           Setting{content, "stickbreaking_ref", false, false}}) {
    AttentionCase c(s.suite, s.name);
    c.args.normalisation =
        s.own_value ? Normalisation::stick_breaking_own : Normalisation::stick_breaking;
    c.args.mask.causal = true;
    if (!s.own_key) c.args.mask.window_right = -1;
    c.run();
    c.expect_core();
    if (c.has("weights")) c.expect_pairs("weights", c.detail.probabilities);
    if (!c.has("remainder")) continue;
    std::vector<double> rest = dense(c.result.log_sum_exp);
    for (double& x : rest) x = std::exp(x);
    c.expect("remainder", rest);
  }
}

// One side a head: half of the heads look back, half ahead.
TEST(AttentionCall, HeadsHaveSides) {
  const auto want = calls_of_bias()("alibi_bias_half_heads", "bias");
  const std::vector<double> zero(120, 0), half = Alibi{}.slope(3);
  std::vector<double> out(120), slopes = half;
  slopes.insert(slopes.end(), half.begin(), half.end());
  const ConstTensorView p = tensor(slopes.data(), {6});
  LoweredTerms low;
  Alibi{.learned = AlibiLearned::slopes}.lower({.heads = 6, .head_dim = 4}, std::span(&p, 1), low);
  const std::uint8_t side[] = {1, 1, 1, 2, 2, 2};
  const OwnedPositions at = arange(0, 5);
  AttentionArgs a;
  a.q = a.k = a.v = heads(zero.data(), 5, 6, 4);
  a.scale = 1;
  a.query_positions = a.key_positions = at;
  a.terms = low.terms;
  a.mask.head_side = tensor(side, {6});
  support::AttentionDetail detail;
  support::attention_forward(a, {heads(out.data(), 5, 6, 4), {}}, &detail);
  for (std::size_t i = 0; i < want.value.size(); ++i) {
    if (std::isinf(want.value[i]))
      EXPECT_EQ(detail.scores[i], want.value[i]) << i;
    else
      EXPECT_NEAR(detail.scores[i], want.value[i], 3e-14) << i;
  }
}

// mix_after: probabilities halved, as an ONNX model's own function does it.
TEST(AttentionCall, ProbabilitiesAreMixed) {
  const char* name = "onnx_flexattention_prob_mod";
  AttentionCase c(calls(), name);
  const auto q = c.view("Q");
  c.args.q = heads(q, HeadsLayout::bhtd);
  c.args.k = heads(c.view("K"), HeadsLayout::bhtd);
  c.args.v = heads(c.view("V"), HeadsLayout::bhtd);
  c.args.scale = 1 / std::sqrt(static_cast<double>(q.shape[3]));
  const double half[] = {0.5, 0, 0, 0.5};
  c.args.mix_after = tensor(half, {2, 2});
  c.tolerance = 4e-7;
  c.run();
  c.expect("Y", c.out);
}

// Queries of three sequences in one row read pages: row s of the table is sequence s.
TEST(AttentionCall, PackedQueriesReadPages) {
  AttentionCase c(calls(), "vllm_paged_causal_gqa");
  c.tolerance = 1e-6;  // the peer takes its softmax in float32
  c.args.q = heads(c.view("query"), HeadsLayout::thd);
  c.args.k = heads(c.view("key_cache"), HeadsLayout::bthd);
  c.args.v = heads(c.view("value_cache"), HeadsLayout::bthd);
  c.args.scale = 1 / std::sqrt(8.0);
  c.args.block_table = c.integers("block_tables");
  c.args.mask.causal = true;
  c.args.mask.query_cu_seqlens = c.integers(std::vector<Index>{0, 1, 6, 9}, {4});
  c.args.mask.key_length = c.integers(std::vector<Index>{11, 7, 3}, {3});
  const TensorView out = c.zeros({9, 4, 8});
  support::attention_forward(c.args, {heads(out, HeadsLayout::thd), {}});
  c.expect("out", out);
}

// Partial results of a ring, and their gradient by differences.
TEST(AttentionCall, MergedPartsAreTheWhole) {
  AttentionCase c(calls(), "merge_ring_update");
  c.tolerance = 1e-6;  // blocks pass through float32 in the peer
  std::deque<std::vector<double>> value;
  std::vector<AttentionResult> parts, d_parts;
  for (const char* block : {"block0", "block1", "block2"}) {
    value.push_back(c.array(std::string(block) + "_out").value);
    value.push_back(c.array(std::string(block) + "_lse").value);
    parts.push_back({heads(tensor(value[value.size() - 2].data(), {1, 6, 2, 8}), HeadsLayout::bthd),
                     tensor(value.back().data(), {1, 2, 6})});
    d_parts.push_back({heads(c.zeros({1, 6, 2, 8}), HeadsLayout::bthd), c.zeros({1, 2, 6})});
  }
  const TensorView out = c.zeros({1, 6, 2, 8}), lse = c.zeros({1, 2, 6});
  const AttentionResult whole{heads(out, HeadsLayout::bthd), lse};
  support::merge_forward(parts, whole);
  c.expect("direct_out", out);
  c.expect("direct_lse", lse);
  for (const Normalisation how : {Normalisation::softmax, Normalisation::stick_breaking}) {
    std::vector<double> up, up_lse;
    for (int i = 0; i < 96; ++i) up.push_back(std::cos(3.0 * i + 1));
    for (int i = 0; i < 12; ++i) up_lse.push_back(0.3 * std::cos(1.0 * i));
    for (const AttentionResult& d : d_parts) {
      std::fill_n(static_cast<double*>(d.out.data), 96, 0.0);
      std::fill_n(data_of<double>(d.log_sum_exp), 12, 0.0);
    }
    support::merge_forward(parts, whole, how);
    support::merge_backward(parts, whole, heads(tensor(up.data(), {1, 6, 2, 8}), HeadsLayout::bthd),
                            tensor(up_lse.data(), {1, 2, 6}), d_parts, how);
    const auto loss = [&] {
      support::merge_forward(parts, whole, how);
      double s = 0;
      for (std::size_t i = 0; i < up.size(); ++i) s += up[i] * data_of<double>(out)[i];
      for (std::size_t i = 0; i < up_lse.size(); ++i) s += up_lse[i] * data_of<double>(lse)[i];
      return s;
    };
    for (std::size_t n = 0; n < value.size(); ++n)
      for (std::size_t i = 0; i < value[n].size(); i += 5) {
        const AttentionResult& d = d_parts[n / 2];
        const double got = n % 2 == 0 ? static_cast<const double*>(d.out.data)[i]
                                      : data_of<double>(d.log_sum_exp)[i];
        const double kept = value[n][i], e = 1e-6;
        value[n][i] = kept + e;
        const double above = loss();
        value[n][i] = kept - e;
        const double slope = (above - loss()) / (2 * e);
        value[n][i] = kept;
        EXPECT_NEAR(got, slope, 1e-7 * std::fmax(1, std::fabs(slope))) << n << " " << i;
      }
  }
}

// vLLM's merge with parts that saw nothing; two of them are nothing.
TEST(AttentionCall, EmptyPartsCountNothing) {
  AttentionCase c(calls(), "vllm_merge_with_empty_sides");
  std::deque<std::vector<double>> value;
  std::vector<AttentionResult> parts;
  for (const char* side : {"prefix", "suffix"}) {
    value.push_back(c.array(std::string(side) + "_output").value);
    value.push_back(c.array(std::string(side) + "_lse").value);
    for (double& x : value.back())
      if (std::isinf(x)) x = -HUGE_VAL;  // the peer's +inf is empty too
    parts.push_back({heads(tensor(value[value.size() - 2].data(), {5, 3, 4}), HeadsLayout::thd),
                     tensor(value.back().data(), {1, 3, 5})});
  }
  const TensorView out = c.zeros({5, 3, 4}), lse = c.zeros({1, 3, 5});
  support::merge_forward(parts, {heads(out, HeadsLayout::thd), lse});
  const std::vector<double> want = c.array("output").value;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]))
      EXPECT_EQ(data_of<double>(out)[i], 0) << i;
    else
      EXPECT_NEAR(data_of<double>(out)[i], want[i], 1e-12) << i;
  }
}

// Stick-breaking merges from the last keys to the first.
TEST(AttentionCall, StickBreakingMergesFromTheLastKeys) {
  static const Suite content("relative_content");
  std::vector<std::uint8_t> early, late;
  for (int i = 0; i < 14; ++i) {
    early.push_back(i % 7 < 4);
    late.push_back(i % 7 >= 4);
  }
  AttentionCase whole(content, "stickbreaking_fla"), first(content, "stickbreaking_fla"),
      last(content, "stickbreaking_fla");
  for (AttentionCase* c : {&whole, &first, &last}) {
    c->args.normalisation = Normalisation::stick_breaking;
    c->args.mask.causal = true;
    c->args.mask.window_right = -1;
  }
  first.args.mask.key_visible = tensor(early.data(), {2, 7});
  last.args.mask.key_visible = tensor(late.data(), {2, 7});
  for (AttentionCase* c : {&whole, &first, &last}) c->run();
  const AttentionResult parts[] = {last.result, first.result};
  const TensorView out = whole.zeros({2, 2, 7, 4}), lse = whole.zeros({2, 2, 7});
  support::merge_forward(parts, {heads(out, HeadsLayout::bhtd), lse},
                         Normalisation::stick_breaking);
  for (Index i = 0; i < out.count(); ++i)
    EXPECT_NEAR(data_of<double>(out)[i], data_of<double>(whole.out)[i], 1e-14);
  for (Index i = 0; i < lse.count(); ++i)
    EXPECT_NEAR(data_of<double>(lse)[i], data_of<double>(whole.result.log_sum_exp)[i], 1e-13);
}

}  // namespace
}  // namespace posenc
