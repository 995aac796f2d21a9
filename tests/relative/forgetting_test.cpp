// SPDX-License-Identifier: Apache-2.0
// Forgetting gates against flash-linear-attention, the authors and x-transformers.
#include "posenc/relative/forgetting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/refusal.h"
#include "support/scheme_case.h"
#include "support/scheme_laws.h"

namespace posenc {
namespace {

using support::SchemeCase;
using support::Suite;
using test::refusal;
using ::testing::HasSubstr;

const Suite& forgetting_suite(bool content) {
  static const Suite bias("relative_bias"), contents("relative_content");
  return content ? contents : bias;
}

TEST(Forgetting, GivenLogGates) {
  const std::pair<const char*, Index> cases[] = {{"forgetting_fla", kUnbounded},
                                                 {"forgetting_fla_window", 3},
                                                 {"forgetting_author_chunk", kUnbounded},
                                                 {"forgetting_author_leftpad", kUnbounded},
                                                 {"fox_fla", kUnbounded},
                                                 {"fox_fla_window_gqa", 2}};
  for (const auto& [name, left] : cases) {
    const bool content = std::string(name).substr(0, 3) == "fox";
    const std::string gate = content ? "log_gates" : "log_gate";
    SchemeCase c(forgetting_suite(content), name);
    SCOPED_TRACE(name);
    c.given["log_gate"] = c.tokens_first(gate);
    c.args.mask.causal = true;
    c.args.mask.window_left = left;
    if (std::string(name) == "forgetting_author_chunk") c.args.scale = 0.5;
    if (c.has("seq_start")) {
      std::vector<Index> key, query;
      for (const Index start : {0, 3})
        for (Index j = 0; j < 5; ++j) key.push_back(j < start ? 0 : 1);
      query.assign(10, 1);
      c.args.mask.key_document = c.integers(key, {2, 5});
      c.args.mask.query_document = c.integers(query, {2, 5});
    }
    c.run_with(Forgetting{});
    c.expect_core();
    c.expect_exchanged("log_gate", "grad_" + gate);
  }
}

TEST(Forgetting, GatesOfAHiddenState) {
  struct Given {
    const char *name, *hidden, *w, *b;
    Index width;
    ForgettingForm form;
    double scale;
  };
  const char *w0 = "to_forget_gates_0_weight", *b0 = "to_forget_gates_0_bias";
  const Given cases[] = {
      {"fox_xt_causal", "hidden", "w_f", "b_f", 6, ForgettingForm::causal, 1},
      {"fox_xt_post_log_scale", "hidden", "w_f", "b_f", 6, ForgettingForm::causal, 0.5},
      {"fox_xt_bidirectional", "hidden", "w_f", "b_f", 6, ForgettingForm::bidirectional, 1},
      {"fox_xt_per_row", "hidden", "w_f", "", 6, ForgettingForm::per_row, 1},
      {"forgetting_x_transformers", "x", w0, b0, 10, ForgettingForm::causal, 1},
      {"forgetting_x_transformers_bidirectional", "x", w0, b0, 6, ForgettingForm::bidirectional, 1},
      {"forgetting_x_transformers_per_row", "x", w0, "", 6, ForgettingForm::per_row, 1}};
  for (const Given& t : cases) {
    SchemeCase c(forgetting_suite(std::string(t.name).substr(0, 3) == "fox"), t.name);
    SCOPED_TRACE(t.name);
    c.given["hidden"] = c.view(t.hidden);
    c.given["w_f"] = c.view(t.w);
    if (*t.b != 0) c.given["b_f"] = c.view(t.b);
    c.args.mask.causal = t.form != ForgettingForm::bidirectional;
    const Index columns = c.given["w_f"].shape[0];
    c.run_with(Forgetting{.form = t.form,
                          .gates = ForgettingGates::hidden,
                          .width = t.width,
                          .gate_dim = columns / (2 * c.args.q.heads),
                          .log_scale = t.scale});
    c.expect_core();
    c.expect_gradient("hidden", std::string("grad_") + t.hidden);
    c.expect_gradient("w_f", std::string("grad_") + t.w);
    if (*t.b != 0) c.expect_gradient("b_f", std::string("grad_") + t.b);
  }
}

TEST(Forgetting, GradientsAreDerivatives) {
  for (const ForgettingForm form :
       {ForgettingForm::causal, ForgettingForm::bidirectional, ForgettingForm::per_row})
    for (const ForgettingGates gates :
         {ForgettingGates::log_gate, ForgettingGates::logit, ForgettingGates::hidden}) {
      const bool causal = form != ForgettingForm::bidirectional;
      test::check_scheme_laws(
          Forgetting{.form = form, .gates = gates, .width = 3, .gate_dim = 2, .log_scale = 0.7},
          {.heads = 2, .key_heads = 2, .causal = causal});
    }
}

// A logit far from 0 on either side.
TEST(Forgetting, LogSigmoidHasNoOverflow) {
  const std::vector<double> z{-800, 800, 0};
  const ConstTensorView in = tensor(z.data(), {1, 3, 1});
  LoweredTerms low;
  const Forgetting f{.gates = ForgettingGates::logit};
  const ScoreShape s{.heads = 1, .head_dim = 1};
  f.lower(s, {}, low);
  CallData call;
  call.queries = call.keys = 3;
  call.inputs = std::span(&in, 1);
  f.bind(s, {}, call, low.terms, low);
  const double* c = static_cast<const double*>(std::get<DecayTerm>(low.terms[0]).key.given.data);
  EXPECT_EQ(c[0], -800);
  EXPECT_EQ(c[1], -800);
  EXPECT_DOUBLE_EQ(c[2], -800 - std::log(2));
  const std::vector<double> ones(3, 1);
  std::vector<double> d(3, 0.25);
  const TensorView to = tensor(d.data(), {1, 3, 1});
  TermGradient t;
  std::vector<double> dk{1, 1, 1};
  t.key = heads(tensor(dk.data(), {1, 3, 1, 1}), HeadsLayout::bthd);
  f.pull_back(s, {}, call, {std::span(&t, 1), {}}, {}, std::span(&to, 1));
  EXPECT_DOUBLE_EQ(d[0], 3.25);
  EXPECT_DOUBLE_EQ(d[1], 0.25);
  EXPECT_DOUBLE_EQ(d[2], 0.75);
}

TEST(Forgetting, Refusals) {
  const ScoreShape s{.heads = 2, .head_dim = 2};
  const auto of = [&](const Forgetting& f) { return refusal([&] { (void)f.parameters(s); }); };
  EXPECT_THAT(of({.gates = ForgettingGates::hidden}), HasSubstr("width must lie"));
  EXPECT_THAT(of({.form = ForgettingForm::per_row}), HasSubstr("gate_dim must lie"));
  EXPECT_THAT(of({.log_scale = std::nan("")}), HasSubstr("log_scale must be finite"));
  EXPECT_THAT(of({.bias_init = std::nan("")}), HasSubstr("bias_init must be finite"));
  const std::vector<double> z(16);
  const auto bound = [&](const std::vector<Index>& shape, Index queries, Index keys, Index offset) {
    const ConstTensorView in = tensor(static_cast<const void*>(z.data()), DType::f64, shape);
    CallData call;
    call.queries = queries;
    call.keys = keys;
    call.query_offset = offset;
    call.inputs = std::span(&in, 1);
    LoweredTerms low;
    Forgetting{}.lower(s, {}, low);
    return refusal([&] { Forgetting{}.bind(s, {}, call, low.terms, low); });
  };
  EXPECT_EQ(bound({1, 4, 2}, 2, 4, 2), "accepted");
  EXPECT_THAT(bound({1, 4, 2}, 2, 4, 3), HasSubstr("queries must be among the keys"));
  EXPECT_THAT(bound({1, 4, 2}, 2, 4, -1), HasSubstr("queries must be among the keys"));
  EXPECT_THAT(bound({1, 4, 1}, 2, 4, 2), HasSubstr("log_gate must have the shape"));
  EXPECT_THAT(bound({4, 2}, 2, 4, 2), HasSubstr("log_gate must have the rank"));
}

}  // namespace
}  // namespace posenc
