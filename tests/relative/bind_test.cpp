// SPDX-License-Identifier: Apache-2.0
// A scheme of somebody else's that reads what a call brings: forgetting gates, bias c_i - c_j of
// the running sum of log_gate.
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/core/error.h"
#include "posenc/relative/local_window.h"
#include "posenc/relative/transformer_xl.h"
#include "support/attention_case.h"

namespace posenc {
namespace {

struct GivenGates {
  static constexpr Card card{"forgetting_gates", "gates that forget", "test", ""};
  bool operator==(const GivenGates&) const = default;
  template <class S, class V>
  static constexpr void describe(S&, V&&) {}

  std::vector<Parameter> parameters(const ScoreShape&) const { return {}; }
  std::vector<Input> inputs(const ScoreShape& s) const {
    return {{.name = "log_gate", .shape = {kBatch, s.heads, kKeys}}};
  }
  void lower(const ScoreShape&, std::span<const ConstTensorView>, LoweredTerms& out) const {
    out.add(DecayTerm{});
  }
  // The running sums; the queries' view of them starts at the order of the first query.
  void bind(const ScoreShape& s, std::span<const ConstTensorView>, const CallData& call,
            std::span<Term> terms, TermStore& store) const {
    std::vector<double> c(static_cast<std::size_t>(call.batch * call.keys * s.heads));
    const ConstTensorView& gate = call.inputs[0];
    for (Index b = 0; b < call.batch; ++b)
      for (Index h = 0; h < s.heads; ++h) {
        double sum = 0;
        for (Index t = 0; t < call.keys; ++t) {
          sum +=
              data_of<double>(gate)[b * gate.stride[0] + h * gate.stride[1] + t * gate.stride[2]];
          c[static_cast<std::size_t>((b * call.keys + t) * s.heads + h)] = sum;
        }
      }
    const ConstHeads keys = store.vectors(std::move(c), call.batch, call.keys, s.heads, 1);
    auto& t = std::get<DecayTerm>(terms[0]);
    t.key.given = t.query.given = keys;
    t.query.given.tokens = call.queries;
    t.query.given.data =
        static_cast<const double*>(keys.data) + call.query_offset * keys.token_stride;
  }
  void pull_back(const ScoreShape& s, std::span<const ConstTensorView>, const CallData& call,
                 const LoweredGradient& g, std::span<const TensorView>,
                 std::span<const TensorView> d_inputs) const {
    const Heads &q = g.terms[0].query, &k = g.terms[0].key;
    const auto at = [](const Heads& x, Index b, Index t, Index h) {
      return static_cast<const double*>(
          x.data)[b * x.batch_stride + t * x.token_stride + h * x.head_stride];
    };
    for (Index b = 0; b < call.batch; ++b)
      for (Index h = 0; h < s.heads; ++h) {
        double sum = 0;
        for (Index t = call.keys; t-- > 0;) {
          const Index i = t - call.query_offset;
          sum += at(k, b, t, h) + (i >= 0 && i < call.queries ? at(q, b, i, h) : 0);
          data_of<double>(d_inputs[0])[(b * s.heads + h) * call.keys + t] += sum;
        }
      }
  }
};
static_assert(BindsInputs<GivenGates>);

TEST(RelativeSchemes, OneThatReadsWhatACallBrings) {
  static const support::Suite suite("relative_bias");
  support::AttentionCase c(suite, "forgetting_fla");
  c.args.mask.causal = true;
  const ScoreShape shape{.heads = c.args.q.heads, .head_dim = c.args.q.dim};
  const GivenGates scheme;
  scheme.lower(shape, {}, c.lowered);
  const ConstTensorView gate = c.view("log_gate");
  CallData call;
  call.batch = c.args.q.batch;
  call.queries = c.args.q.tokens;
  call.keys = c.args.k.tokens;
  call.inputs = std::span(&gate, 1);
  scheme.bind(shape, {}, call, c.lowered.terms, c.lowered);
  c.run();
  c.expect_core();
  const TensorView d = c.zeros_like(gate);
  scheme.pull_back(shape, {}, call, c.gradient(), {}, std::span(&d, 1));
  c.expect("grad_log_gate", d);
}

// The window's own definition, in two axes of positions.
TEST(LocalWindow, IsItsDefinition) {
  const LocalWindow scheme{.window = 1};
  const std::vector<double> near{1, 2, 3, 4, 5, 6}, far{-1, -2};
  const ConstTensorView p[] = {tensor(near.data(), {2, 3}), tensor(far.data(), {2})};
  const ScoreShape shape{.heads = 2, .head_dim = 1, .distance = {{-4, 4}, {-1, 1}}};
  LoweredTerms low;
  scheme.lower(shape, p, low);
  const OwnedPositions at =
      explicit_positions(std::vector<Index>{0, 1, 2, 3, 4, 7, 7, 7, 9, 9}, 1, 2);
  const std::vector<double> zero(10);
  std::vector<double> out(10);
  AttentionArgs a;
  a.q = a.k = a.v = heads(zero.data(), 5, 2, 1);
  a.scale = 1;
  a.query_positions = a.key_positions = at;
  a.terms = low.terms;
  support::AttentionDetail detail;
  support::attention_forward(a, {heads(out.data(), 5, 2, 1), {}}, &detail);
  for (Index h = 0; h < 2; ++h)
    for (Index i = 0; i < 5; ++i)
      for (Index j = 0; j < 5; ++j) {
        const bool close = (i < 3) == (j < 3) && std::abs(i - j) <= 1;
        const double want = close ? near[static_cast<std::size_t>(h * 3 + i - j + 1)]
                                  : far[static_cast<std::size_t>(h)];
        EXPECT_EQ(detail.scores[static_cast<std::size_t>((h * 5 + i) * 5 + j)], want)
            << h << " " << i << " " << j;
      }
}

// Parameters and their checks need no distances; lowering does.
TEST(TransformerXl, HasParametersBeforeAnyDistanceIsKnown) {
  EXPECT_EQ((TransformerXl{.d_model = 4}.parameters({.heads = 1, .head_dim = 1}).size()), 3u);
}

// Terms are scaled as the content is.
TEST(TransformerXl, TakesTheScaleOfTheContent) {
  const std::vector<double> w(16, 0.5), u(4, 1), v(4, 1);
  const ConstTensorView p[] = {tensor(w.data(), {4, 4}), tensor(u.data(), {2, 2}),
                               tensor(v.data(), {2, 2})};
  for (const std::optional<double> scale :
       {std::optional<double>(), std::optional(0.0), std::optional(0.3)}) {
    LoweredTerms low;
    TransformerXl{.d_model = 4}.lower(
        {.heads = 2, .head_dim = 2, .scale = scale, .distance = {{0, 3}}}, p, low);
    ASSERT_EQ(low.terms.size(), 3u);
    for (const Term& t : low.terms)
      EXPECT_EQ(std::get<ProductTerm>(t).scale, scale ? *scale : 1 / std::sqrt(2.0));
  }
}

}  // namespace
}  // namespace posenc
