// SPDX-License-Identifier: Apache-2.0
// Which engine of a list runs a call, and what explain_plan says of it and of the terms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "attention/engines/engine.h"
#include "attention/term_tools.h"
#include "posenc/attention/plan.h"
#include "posenc/positions/sequence.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ChoiceCall {
  std::vector<double> q = std::vector<double>(6 * 2 * 4, 0.5), out = q, table{0.1, 0.2, 0.3, 0.4};
  OwnedPositions at = arange(0, 6);
  LoweredTerms low;
  AttentionArgs a;
  ChoiceCall() {
    a.q = a.k = a.v = heads(std::as_const(q).data(), 6, 2, 4);
    a.query_positions = a.key_positions = at;
    a.scale = 0.5;
  }
  AttentionResult result() { return {heads(out.data(), 6, 2, 4), {}}; }
};

// An engine that takes calls without a mask, and writes one number.
std::string_view masked(const detail::ReadyCall& c, const detail::LoweredCall&) {
  return c.args.mask.causal ? "has no causal mask" : "";
}
constexpr detail::Engine kSevens{
    "sevens", masked,
    [](const detail::ReadyCall&, const detail::LoweredCall&, const AttentionResult& r,
       detail::CallArena&, const Executor&) { static_cast<double*>(r.out.data)[0] = 7; },
    masked, nullptr};

TEST(EngineChoice, TheFirstThatTakesTheCallRunsIt) {
  const detail::Engine list[] = {kSevens, detail::engines().back()};
  ChoiceCall c;
  detail::CallArena arena;
  const detail::ReadyCall call(c.a, arena);
  const detail::Engine& open = detail::choose_engine(list, call, {});
  EXPECT_EQ(open.name, "sevens");
  open.forward(call, {}, c.result(), arena, default_executor());
  EXPECT_EQ(c.out[0], 7);
  c.a.mask.causal = true;
  EXPECT_EQ(detail::choose_engine(list, call, {}).name, "exact");
}

TEST(EngineChoice, TheExactEngineIsTheLastAndTakesEveryCall) {
  ASSERT_FALSE(detail::engines().empty());
  EXPECT_EQ(detail::engines().back().name, "exact");
  const AttentionArgs none;
  detail::CallArena arena;
  EXPECT_EQ(detail::engines().back().why_not(detail::ReadyCall(none, arena), {}), "");
  EXPECT_EQ(detail::engines().back().backward_why_not(detail::ReadyCall(none, arena), {}), "");
}

// The classes of the schemes that the comments of term.h name.
TEST(TermClasses, OfTheKinds) {
  ChoiceCall c;
  const ConstTensorView numbers = tensor(std::as_const(c.table).data(), {1, 2, 2, 1});
  const ConstTensorView rows = tensor(std::as_const(c.table).data(), {1, 1, 1, 4});
  const IndexLine line = c.low.line({0, 1}, 0), other = c.low.line({0, 0}, 0);
  const IndexPair pair = c.low.pair({0, 1}, 1, 2), never = c.low.pair({-1, -1}, 1, 2);
  ProductTerm t5 = numbers_term(numbers, line);
  EXPECT_EQ(term_class(t5), TermClass::band);
  t5.lines[1] = other;
  EXPECT_EQ(term_class(t5), TermClass::pair_number);
  t5.lines = {}, t5.pair = pair;
  EXPECT_EQ(term_class(t5), TermClass::pair_number);
  t5.pair = never;
  EXPECT_EQ(term_class(t5), TermClass::none);
  EXPECT_EQ(term_class(query_rows(rows, line, 1)), TermClass::query_rows);
  EXPECT_EQ(term_class(key_rows(rows, line, 1)), TermClass::key_rows);
  EXPECT_EQ(term_class(query_rows(rows, line, 0)), TermClass::none);
  EXPECT_EQ(term_class(vector_key(tensor(std::as_const(c.table).data(), {1, 4}), 1)),
            TermClass::token_number);
  ProductTerm wider;
  wider.query = wider.key = kContent;
  EXPECT_EQ(term_class(wider), TermClass::product);
  wider.pair = pair;
  EXPECT_EQ(term_class(wider), TermClass::weighted_product);
  wider.pair = {}, wider.lines[0] = line, wider.table = numbers;
  EXPECT_EQ(term_class(wider), TermClass::weighted_product);
  EXPECT_EQ(term_class(LinearTerm{}), TermClass::linear);
  EXPECT_EQ(term_class(DecayTerm{}), TermClass::token_number);
  EXPECT_EQ(term_class(GatesTerm{}), TermClass::gates);
  EXPECT_EQ(term_class(DistanceMlpTerm{}), TermClass::distance_curve);
  EXPECT_EQ(term_class(ScoreMlpTerm{}), TermClass::all_heads);
  EXPECT_EQ(term_class(value_rows(rows, line)), TermClass::value_rows);
}

TEST(ExplainPlan, NamesEngineSchemesAndClasses) {
  ChoiceCall c;
  c.a.scale.reset();
  const AttentionPlan plan({"rope head_dim=4 pairing=half_split", "dape width=2", "alibi"},
                           {.heads = 2, .head_dim = 4});
  std::vector<std::vector<double>> values;
  std::vector<NamedArray> parameters;
  const std::vector<Parameter> needed = plan.parameters();
  for (const Parameter& p : needed) {
    Index n = 1;
    for (const Index size : p.shape) n *= size;
    values.emplace_back(static_cast<std::size_t>(n), 0.1);
  }
  for (std::size_t n = 0; n < needed.size(); ++n)
    parameters.push_back({needed[n].name, tensor(static_cast<const void*>(values[n].data()),
                                                 DType::f64, needed[n].shape)});
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(c.at, c.at));
  const PlanExplanation e = lowered.explain(c.a);
  EXPECT_EQ(e.engine, "exact");
  EXPECT_EQ(e.backward_engine, "exact");
  ASSERT_EQ(e.others.size(), 1u);
  EXPECT_EQ(e.others[0].engine, "fast");
  EXPECT_EQ(e.others[0].why_not, "q, k or v is f64");
  ASSERT_EQ(e.backward_others.size(), 1u);
  EXPECT_EQ(e.backward_others[0].why_not, "q, k or v is f64");
  // q, k twice and v in double, [2 heads, 6 tokens, 4 channels], are part of it.
  EXPECT_GE(e.workspace_bytes, std::size_t{4 * 2 * 6 * 4 * 8});
  ASSERT_EQ(e.terms.size(), 2u);  // the network is the last term, whatever the order of the schemes
  EXPECT_EQ(e.terms[0].name, "alibi");
  EXPECT_EQ(e.terms[0].of, TermClass::linear);
  EXPECT_EQ(e.terms[1].name, "dape");
  EXPECT_EQ(e.terms[1].of, TermClass::all_heads);

  c.a.scale = 0.5;
  const Term own[] = {LinearTerm{.table = tensor(std::as_const(c.table).data(), {1, 2, 1, 2})}};
  c.a.terms = own;
  const PlanExplanation of_call = explain_plan(c.a);
  ASSERT_EQ(of_call.terms.size(), 1u);
  EXPECT_EQ(of_call.terms[0].name, "linear");
  c.a.scale.reset();
  EXPECT_THAT(test::refusal([&] { explain_plan(c.a); }), HasSubstr("scale"));
}

// A band that the plan made and one that a call makes give the same bits.
TEST(LoweredBands, OfAPlanAndOfACall) {
  constexpr Index kTokens = 40;
  std::vector<double> q(kTokens * 8), table(32 * 2);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<double>(i));
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = std::cos(static_cast<double>(3 * i));
  const OwnedPositions all = arange(0, kTokens);
  const AttentionPlan plan({"t5 bidirectional=true", "alibi"}, {.heads = 2, .head_dim = 4});
  const NamedArray parameters[] = {{"table", tensor(std::as_const(table).data(), {32, 2})}};
  const auto run = [&](const std::vector<DistanceRange>& distance, Index first, Index queries) {
    const OwnedPositions at = arange(first, queries);
    AttentionArgs a;
    a.q = heads(std::as_const(q).data(), queries, 2, 4);
    a.k = a.v = heads(std::as_const(q).data(), kTokens, 2, 4);
    a.query_positions = at, a.key_positions = all;
    std::vector<double> out(static_cast<std::size_t>(queries) * 8), d_q(out.size()),
        d_table(table.size());
    const AttentionResult r{heads(out.data(), queries, 2, 4), {}};
    const LoweredAttention lowered = plan.lower(parameters, distance);
    lowered.forward(a, {}, r);
    const NamedGradient named[] = {{"table", tensor(d_table.data(), {32, 2})}};
    AttentionGradients g;
    g.q = heads(d_q.data(), queries, 2, 4);
    lowered.backward(a, {}, r, r, g, named);
    return std::vector<std::vector<double>>{out, d_q, d_table};
  };
  // The second range is too long for the plan to keep a band of it: each call makes its own.
  const std::vector<DistanceRange> near{{-kTokens, kTokens}}, far{{-(1 << 20), 1 << 20}};
  for (const auto& [first, queries] : {std::pair<Index, Index>{0, kTokens}, {30, 3}, {39, 1}})
    EXPECT_EQ(run(near, first, queries), run(far, first, queries)) << first;
}

TEST(LoweredAttention, IsCurrentForEqualParametersAndDistances) {
  std::vector<double> table(32 * 2, 0.25);
  std::vector<float> single(32 * 2, 0.25f);
  const AttentionPlan plan("t5 bidirectional=true", {.heads = 2, .head_dim = 4});
  const auto given = [&] {
    return std::vector<NamedArray>{{"table", tensor(std::as_const(table).data(), {32, 2})}};
  };
  const std::vector<DistanceRange> d{{-5, 5}}, wider{{-5, 6}};
  const LoweredAttention lowered = plan.lower(given(), d);
  EXPECT_TRUE(lowered.is_current(given(), d));
  EXPECT_TRUE(lowered.is_current(
      std::vector<NamedArray>{{"table", tensor(std::as_const(single).data(), {32, 2})}}, d));
  EXPECT_FALSE(lowered.is_current(given(), wider));
  EXPECT_FALSE(lowered.is_current({}, d));
  table[63] = -0.25;
  EXPECT_FALSE(lowered.is_current(given(), d));
}

}  // namespace
}  // namespace posenc
