// SPDX-License-Identifier: Apache-2.0
// AttentionPlan: what it hands to the engine, names, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "posenc/absolute/initial.h"
#include "posenc/attention/initial_parameters.h"
#include "posenc/positions/sequence.h"
#include "posenc/registry.h"
#include "posenc/relative/t5.h"
#include "posenc/rotary/plan.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::HasSubstr;

constexpr Index kPlanTokens = 9, kPlanHeads = 2, kPlanDim = 4;

std::vector<double> plan_waves(std::size_t n, double phase) {
  std::vector<double> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = std::sin(static_cast<double>(3 * i) + phase);
  return v;
}

struct PlanWorld {
  std::vector<double> q = plan_waves(kPlanTokens * kPlanHeads * kPlanDim, 1),
                      k = plan_waves(q.size(), 2), v = plan_waves(q.size(), 3), out = q,
                      table = plan_waves(8 * kPlanHeads, 4);
  OwnedPositions at = arange(0, kPlanTokens);

  AttentionArgs call() const {
    AttentionArgs a;
    a.q = heads(q.data(), kPlanTokens, kPlanHeads, kPlanDim);
    a.k = heads(k.data(), kPlanTokens, kPlanHeads, kPlanDim);
    a.v = heads(v.data(), kPlanTokens, kPlanHeads, kPlanDim);
    a.query_positions = a.key_positions = at;
    a.mask.causal = true;
    return a;
  }
  AttentionResult result() { return {heads(out.data(), kPlanTokens, kPlanHeads, kPlanDim), {}}; }
  ConstTensorView t5_table() const { return tensor(table.data(), {8, kPlanHeads}); }
  static AttentionSizes sizes() { return {.heads = kPlanHeads, .head_dim = kPlanDim}; }
};

constexpr std::string_view kT5 = "t5 bidirectional=false num_buckets=8 max_distance=20";

TEST(AttentionPlan, IsTheStructCallOfItsSchemes) {
  PlanWorld w;
  const AttentionPlan plan(kT5, PlanWorld::sizes());
  const NamedArray parameters[] = {{"table", w.t5_table()}};
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(w.at, w.at));
  lowered.forward(w.call(), {}, w.result());
  const std::vector<double> got = w.out;

  LoweredTerms low;
  const ConstTensorView p[] = {w.t5_table()};
  T5{.bidirectional = false, .num_buckets = 8, .max_distance = 20}.lower(
      {.heads = kPlanHeads, .head_dim = kPlanDim, .distance = {{-8, 8}}}, p, low);
  AttentionArgs a = w.call();
  a.terms = low.terms;
  a.scale = 1;  // T5 asks for it
  attend(a, w.result());
  EXPECT_EQ(got, w.out);
}

// Two sets of parameters beside each other; neither the plan nor the caller's arrays need to stay.
TEST(AttentionPlan, LoweredSchemesOwnTheirParameters) {
  PlanWorld w;
  std::optional<AttentionPlan> plan(std::in_place, kT5, PlanWorld::sizes());
  const auto lower = [&] {
    const NamedArray parameters[] = {{"table", w.t5_table()}};
    return plan->lower(parameters, distance_ranges(w.at, w.at));
  };
  const auto result_of = [&](const LoweredAttention& lowered) {
    lowered.forward(w.call(), {}, w.result());
    return w.out;
  };
  const LoweredAttention first = lower();
  const std::vector<double> before = result_of(first);
  for (double& x : w.table) x = -x;
  const LoweredAttention second = lower();
  EXPECT_NE(result_of(second), before);
  EXPECT_EQ(result_of(first), before);
  const LoweredAttention copy = first;
  plan.reset();
  w.table.assign(w.table.size(), 0.0);
  EXPECT_EQ(result_of(copy), before);
  // What pull_back reads is the copy too.
  std::vector<double> d_table(w.table.size()), again = d_table;
  const auto gradient = [&](const LoweredAttention& lowered, std::vector<double>& d) {
    const NamedGradient named[] = {{"table", tensor(d.data(), {8, kPlanHeads})}};
    lowered.backward(w.call(), {}, w.result(), w.result(), {}, named);
  };
  result_of(first), gradient(first, d_table);
  result_of(copy), gradient(copy, again);
  EXPECT_EQ(d_table, again);
}

TEST(AttentionPlan, RotatesAndAddsTerms) {
  PlanWorld w;
  const AttentionSizes sizes{.heads = kPlanHeads, .head_dim = kPlanDim, .scale = 0.5};
  const AttentionPlan plan({"rope head_dim=4 pairing=half_split", "alibi", kT5}, sizes);
  const NamedArray parameters[] = {{"table", w.t5_table()}};
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(w.at, w.at));
  lowered.forward(w.call(), {}, w.result());
  const std::vector<double> got = w.out;

  const RotaryPlan rotary(resolve(parse_encoding("rope head_dim=4 pairing=half_split")),
                          DType::f64);
  PlanWorld rotated;
  rotary.apply(QK{heads(rotated.q.data(), kPlanTokens, kPlanHeads, kPlanDim),
                  heads(rotated.k.data(), kPlanTokens, kPlanHeads, kPlanDim)},
               w.at);
  const AttentionPlan bare({"alibi", kT5}, sizes);
  const LoweredAttention lowered_bare = bare.lower(parameters, distance_ranges(w.at, w.at));
  lowered_bare.forward(rotated.call(), {}, rotated.result());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], rotated.out[i], 1e-14);
}

// T5 asks for scale 1: then it is that of Shaw's rows beside it too.
TEST(AttentionPlan, WhatOneSchemeAsksForIsTheScaleOfAll) {
  PlanWorld w;
  const std::vector<double> rows = plan_waves(3 * kPlanDim, 5);
  const NamedArray parameters[] = {{"0.table", w.t5_table()},
                                   {"1.table", tensor(rows.data(), {3, kPlanDim})}};
  const char* shaw = "shaw left=1 right=1 values=none";
  const auto run = [&](std::optional<double> scale) {
    const AttentionPlan plan({kT5, shaw},
                             {.heads = kPlanHeads, .head_dim = kPlanDim, .scale = scale});
    const LoweredAttention lowered = plan.lower(parameters, distance_ranges(w.at, w.at));
    lowered.forward(w.call(), {}, w.result());
    return w.out;
  };
  EXPECT_EQ(run({}), run(1));
  EXPECT_NE(run({}), run(0.5));
  EXPECT_NE(run({}), run(0));
}

// A key of padding gets nothing of what is left, though it is the query's own.
TEST(AttentionPlan, StickBreakingLeavesNothingToPadding) {
  PlanWorld w;
  const AttentionPlan plan("stick_breaking own=true", PlanWorld::sizes());
  const LoweredAttention lowered = plan.lower({});
  std::vector<std::int64_t> length{5};
  AttentionArgs a = w.call();
  a.mask.window_right = -1;
  a.mask.key_length = tensor(length.data(), {1});
  std::vector<double> nan = w.v;
  for (std::size_t i = 5 * kPlanHeads * kPlanDim; i < nan.size(); ++i) nan[i] = std::nan("");
  a.v = heads(std::as_const(nan).data(), kPlanTokens, kPlanHeads, kPlanDim);
  lowered.forward(a, {}, w.result());
  for (const double x : w.out) EXPECT_TRUE(std::isfinite(x));
}

TEST(AttentionPlan, SchemesOfOneNameAreNumbered) {
  const AttentionPlan plan({kT5, "t5 bidirectional=true num_buckets=4 max_distance=9"},
                           PlanWorld::sizes());
  const std::vector<Parameter> p = plan.parameters();
  ASSERT_EQ(p.size(), 2u);
  EXPECT_EQ(p[0].name, "0.table");
  EXPECT_EQ(p[1].name, "1.table");
}

TEST(AttentionPlan, PositionsCountUpWhereNoneAreGiven) {
  PlanWorld w;
  const AttentionPlan plan("alibi", PlanWorld::sizes());
  const LoweredAttention lowered = plan.lower({}, distance_ranges(w.at, w.at));
  lowered.forward(w.call(), {}, w.result());
  const std::vector<double> got = w.out;
  AttentionArgs a = w.call();
  a.query_positions = a.key_positions = {};
  lowered.forward(a, {}, w.result());
  EXPECT_EQ(got, w.out);
}

// Lines are constant beyond what was lowered, KERPLE is not: fluent at first, wrong later.
TEST(AttentionPlan, DistancesBeyondThoseLoweredAreRefused) {
  PlanWorld w;
  const std::vector<double> one{1, 1};
  const ConstTensorView numbers = tensor(one.data(), {2});
  const NamedArray parameters[] = {{"bias_p", numbers}, {"bias_a", numbers}};
  const AttentionPlan plan("kerple kernel=log", PlanWorld::sizes());
  const DistanceRange past[] = {{0, 8}}, few[] = {{-8, 7}};
  LoweredAttention lowered = plan.lower(parameters, past);  // what a causal mask shows
  EXPECT_NO_THROW(lowered.forward(w.call(), {}, w.result()));
  AttentionArgs both = w.call();
  both.mask.causal = false;
  EXPECT_THAT(refusal([&] { lowered.forward(both, {}, w.result()); }), HasSubstr("0 to 8, got -8"));
  lowered = plan.lower(parameters, few);
  EXPECT_THAT(refusal([&] { lowered.forward(w.call(), {}, w.result()); }),
              HasSubstr("-8 to 7, got 8"));
  both = w.call();
  both.mask.window_left = 7;
  EXPECT_NO_THROW(lowered.forward(both, {}, w.result()));
  const AttentionPlan alibi("alibi", PlanWorld::sizes());  // has no lines
  const LoweredAttention lowered_alibi = alibi.lower({}, few);
  EXPECT_NO_THROW(lowered_alibi.forward(w.call(), {}, w.result()));
}

TEST(AttentionPlan, DistancesOfPositions) {
  const OwnedPositions q = explicit_positions(std::vector<double>{0.5, 7.25}, 1, 1);
  const OwnedPositions k = explicit_positions(std::vector<Index>{2, 3, 40}, 1, 1);
  const std::vector<DistanceRange> d = distance_ranges(q, k);
  ASSERT_EQ(d.size(), 1u);
  EXPECT_EQ(d[0].min, -40);
  EXPECT_EQ(d[0].max, 6);
  EXPECT_EQ(distance_ranges(arange(0, 0), k)[0].max, 0);
  const std::vector<double> nan{std::nan("")};
  const Positions bad = positions(std::span(nan));
  EXPECT_THAT(refusal([&] { distance_ranges(bad, k); }), HasSubstr("[distance]"));
}

// A plan for other heads would add the slopes of other heads: 2^-4 for the first of two, 2^-8 for one.
TEST(AttentionPlan, SizesOfACallAreThePlans) {
  PlanWorld w;
  const auto run = [&](const AttentionSizes& sizes) {
    const AttentionPlan plan("alibi", sizes);
    const LoweredAttention lowered = plan.lower({}, distance_ranges(w.at, w.at));
    return refusal([&] { lowered.forward(w.call(), {}, w.result()); });
  };
  EXPECT_THAT(run({.heads = 1, .head_dim = kPlanDim}),
              HasSubstr("q must have the heads of the plan, 1, got 2"));
  EXPECT_THAT(run({.heads = 4, .head_dim = kPlanDim}),
              HasSubstr("q must have the heads of the plan, 4, got 2"));
  EXPECT_THAT(run({.heads = kPlanHeads, .head_dim = 8}),
              HasSubstr("q must have the head_dim of the plan, 8, got 4"));
  EXPECT_THAT(run({.heads = kPlanHeads, .head_dim = kPlanDim, .key_heads = 1}),
              HasSubstr("k must have the key_heads of the plan, 1, got 2"));
  EXPECT_THAT(run({.heads = kPlanHeads, .head_dim = kPlanDim, .value_dim = 3}),
              HasSubstr("v must have the value_dim of the plan, 3, got 4"));
}

// In the words of a call: which scheme, which array, of which shape.
TEST(AttentionPlan, RefusalsNameWhatAUserKnows) {
  PlanWorld w;
  const AttentionSizes sizes{.heads = kPlanHeads, .head_dim = kPlanDim};
  const auto lowered = [&](const char* scheme, std::span<const DistanceRange> distance) {
    std::vector<double> numbers(4096, 0.5);
    const AttentionPlan plan(scheme, sizes);
    std::vector<NamedArray> all;
    const std::vector<Parameter> wanted = plan.parameters();
    for (const Parameter& p : wanted)
      all.push_back({p.name, tensor(std::as_const(numbers).data(), DType::f64, p.shape)});
    const LoweredAttention lowered = plan.lower(all, distance);
    lowered.forward(w.call(), {}, w.result());
  };
  const std::vector<DistanceRange> one = distance_ranges(w.at, w.at);
  EXPECT_THAT(
      refusal([&] { lowered("t5 axis=1 bidirectional=true", one); }),
      HasSubstr("[attention_plan] query_positions and key_positions must have the axes that "
                "t5 reads, as [axes, batch, tokens], got 1"));
  EXPECT_THAT(refusal([&] { lowered("kerple", {}); }),
              HasSubstr("lower must be given distance_ranges of the positions, by which kerple"));
  EXPECT_THAT(refusal([&] { lowered("alibi axis=1", one); }),
              HasSubstr("query_positions must have the axes that alibi reads, at least 2 as [axes, "
                        "batch, tokens], got 1"));
  EXPECT_THAT(refusal([&] { lowered("alibi batch=3 learned=slopes", one); }),
              HasSubstr("q must have the batch that alibi has numbers for, 3, got 1"));
  EXPECT_THAT(refusal([&] { lowered("forgetting", one); }),
              HasSubstr("inputs must have the array \"log_gate\" of forgetting, [batch or 1, keys, "
                        "2] of f64 or f32, which is missing"));
  const AttentionPlan t5(kT5, sizes);
  EXPECT_THAT(refusal([&] { t5.lower({}); }),
              HasSubstr("parameters must have the array \"table\" of t5, ["));
}

// The numbers of parameter i are the draws of sequence i, and moving the owner keeps the views.
TEST(AttentionPlan, InitialParameters) {
  const AttentionPlan plan("tupe positions=8 num_buckets=4", PlanWorld::sizes());
  const std::vector<Parameter> listed = plan.parameters();
  InitialParameters first(plan.parameters(), 7);
  const InitialParameters learned = std::move(first);
  ASSERT_EQ(learned.named().size(), listed.size());
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const NamedArray& a = learned.named()[i];
    EXPECT_EQ(a.name, listed[i].name);
    const std::vector<double> want = initial_values(listed[i], Draws(7, 0, i));
    const double* got = static_cast<const double*>(a.array.data);
    EXPECT_EQ(std::vector<double>(got, got + want.size()), want) << a.name;
  }
  EXPECT_EQ(*static_cast<const double*>(learned.named()[1].array.data), 1.0);  // ln_weight
  plan.lower(learned.named(), std::vector<DistanceRange>{{-8, 8}});
}

TEST(AttentionPlan, Refusals) {
  PlanWorld w;
  const AttentionSizes sizes = PlanWorld::sizes();
  const auto says = [&](std::initializer_list<std::string_view> text, const AttentionSizes& s) {
    return refusal([&] { AttentionPlan(text, s); });
  };
  EXPECT_THAT(says({"sinusoidal width=8"}, sizes), HasSubstr("must act in attention"));
  EXPECT_THAT(
      says({"rope head_dim=4 pairing=half_split", "rope head_dim=4 pairing=interleaved"}, sizes),
      HasSubstr("one rotary encoding"));
  EXPECT_THAT(says({"rope head_dim=8 pairing=half_split"}, sizes), HasSubstr("head_dim"));
  EXPECT_THAT(says({"alibi"}, {.heads = 0, .head_dim = 4}), HasSubstr("heads"));
  EXPECT_THAT(says({"alibi"}, {.heads = 6, .head_dim = 4, .key_heads = 4}),
              HasSubstr("key_heads must divide"));
  const AttentionPlan plan(kT5, sizes);
  EXPECT_THAT(refusal([&] { plan.lower({}); }), HasSubstr("table"));
  const NamedArray unknown[] = {{"table", w.t5_table()}, {"tabel", w.t5_table()}};
  EXPECT_THAT(refusal([&] { plan.lower(unknown); }), HasSubstr("tabel"));
  const LoweredAttention lowered = plan.lower(std::span(unknown, 1), distance_ranges(w.at, w.at));
  EXPECT_THAT(refusal([&] { lowered.forward(w.call(), unknown, w.result()); }),
              HasSubstr("no inputs"));
  AttentionArgs other = w.call();
  other.scale = 0.25;
  EXPECT_THAT(refusal([&] { lowered.forward(other, {}, w.result()); }), HasSubstr("scale"));
  other = w.call();
  other.q = heads(std::as_const(w.q).data(), kPlanTokens, kPlanHeads * 2, kPlanDim / 2);
  EXPECT_THAT(refusal([&] { lowered.forward(other, {}, w.result()); }), HasSubstr("heads"));
  const NamedGradient named[] = {{"nothing", {}}};
  EXPECT_THAT(refusal([&] {
                lowered.backward(w.call(), {}, w.result(), w.result(), AttentionGradients{}, named);
              }),
              HasSubstr("nothing"));
}

}  // namespace
}  // namespace posenc
