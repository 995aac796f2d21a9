// SPDX-License-Identifier: Apache-2.0
// CoPE, stick-breaking, relative projection and no encoding against their programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/relative/cope.h"
#include "posenc/relative/nope.h"
#include "posenc/relative/relative_projection.h"
#include "posenc/relative/stick_breaking.h"
#include "support/refusal.h"
#include "support/scheme_case.h"
#include "support/scheme_laws.h"

namespace posenc {
namespace {

using support::SchemeCase;
using support::Suite;
using test::refusal;
using ::testing::HasSubstr;

const Suite& contextual_suite(bool content = true) {
  static const Suite bias("relative_bias"), contents("relative_content");
  return content ? contents : bias;
}

TEST(Cope, IsWhatItsAuthorsCompute) {
  for (const char* name : {"cope_ram_default", "cope_ram_nodiv", "cope_ram_sep_key",
                           "cope_ram_val_gates", "cope_ram_left_padding_window"}) {
    SchemeCase c(contextual_suite(), name);
    SCOPED_TRACE(name);
    const bool separate = c.has("key_cope"), values = std::string(name) == "cope_ram_val_gates";
    const bool both = !values && std::string(name) != "cope_ram_nodiv";
    if (separate) c.given["gate_key"] = c.tokens_first("key_cope");
    if (values) c.given["v"] = c.tokens_first("v");
    c.args.mask.visible = c.flags("visible");
    c.run_with(Cope{.positions = c.array("pos_emb").shape[2],
                    .scaling = both ? CopeScaling::both : CopeScaling::content,
                    .gates = separate ? CopeGates::separate
                             : values ? CopeGates::values
                                      : CopeGates::keys});
    c.expect_gradient("pos_emb", "grad_pos_emb");
    if (separate) c.expect_exchanged("gate_key", "grad_key_cope");
    c.expect("out", c.out);
    c.expect("grad_q", c.d_q);
    c.expect("grad_k", c.d_k);
    if (!values) {
      c.expect("grad_v", c.d_v);
      continue;
    }
    // The plan joins the gradient of the input v to that of the call's v: here by hand.
    const std::vector<double> want = c.numbers("grad_v");
    const std::vector<double> gate = c.exchanged_values("v");
    for (std::size_t i = 0; i < gate.size(); ++i)
      EXPECT_NEAR(data_of<double>(c.d_v)[i] + gate[i], want[i], 1e-12) << i;
  }
}

TEST(Cope, IsWhatXTransformersComputes) {
  for (const char* name :
       {"cope_xt_square", "cope_xt_clamped", "cope_xt_memory", "cope_xt_decode"}) {
    SchemeCase c(contextual_suite(), name);
    SCOPED_TRACE(name);
    c.args.mask.causal = true;
    c.run_with(Cope{.positions = c.array("pos_emb").shape[0],
                    .scaling = CopeScaling::content,
                    .table = CopeTable::rows});
    c.expect_core();
    c.expect_gradient("pos_emb", "grad_pos_emb");
  }
}

TEST(Cope, GradientsAreDerivatives) {
  for (const CopeGates gates : {CopeGates::keys, CopeGates::separate, CopeGates::values})
    for (const CopeScaling scaling : {CopeScaling::both, CopeScaling::content})
      test::check_scheme_laws(
          Cope{.positions = 9,
               .scaling = scaling,
               .gates = gates,
               .table = scaling == CopeScaling::both ? CopeTable::columns : CopeTable::rows},
          {.heads = 2,
           .key_heads = gates == CopeGates::values ? 1 : 2,
           .value_dim = 4,
           .causal = true,
           .number = [](const std::string&, Index i) {
             return 0.3 * std::sin(static_cast<double>(3 * i) + 1);
           }});
  EXPECT_THAT(refusal([] { (void)Cope{.positions = 0}.parameters({.heads = 1, .head_dim = 1}); }),
              HasSubstr("positions must lie between"));
}

TEST(StickBreaking, IsWhatProgramsCompute) {
  struct Given {
    const char* name;
    bool content, own, current;
  };
  const Given cases[] = {{"stick_breaking", false, true, false},
                         {"stick_breaking_current", false, true, true},
                         {"stickbreaking_fla", true, false, false},
                         {"stickbreaking_fla_attend_current", true, false, true},
                         {"stickbreaking_fla_gqa", true, false, false},
                         {"stickbreaking_ref", true, false, false},
                         {"stickbreaking_ref_attend_current", true, false, true}};
  for (const Given& t : cases) {
    SchemeCase c(contextual_suite(t.content), t.name);
    SCOPED_TRACE(t.name);
    c.args.mask.causal = true;
    if (!t.current) c.args.mask.window_right = -1;
    c.run_with(StickBreaking{.own = t.own});
    c.expect_core();
    if (c.has("weights")) c.expect_pairs("weights", c.detail.probabilities);
    if (!c.has("remainder")) continue;
    std::vector<double> left;
    for (Index i = 0; i < c.result.log_sum_exp.count(); ++i)
      left.push_back(std::exp(data_of<double>(c.result.log_sum_exp)[i]));
    c.expect("remainder", left);
  }
  test::check_scheme_laws(StickBreaking{}, {.causal = true, .window_right = -1});
  test::check_scheme_laws(StickBreaking{.own = true}, {.causal = true});
}

TEST(RelativeProjection, IsWhatXTransformersComputes) {
  for (const char* name : {"relative_projection_xt", "relative_projection_xt_memory"}) {
    SchemeCase c(contextual_suite(), name);
    SCOPED_TRACE(name);
    c.args.mask.causal = true;
    const auto bank = c.array("distance_bank").shape;
    c.run_with(RelativeProjection{.basis = bank[0], .max_distance = bank[1], .width = 6});
    c.expect_core();
    for (const char* p : {"distance_bank", "w_r", "b_r", "hidden"})
      c.expect_gradient(p, std::string("grad_") + p);
  }
  test::check_scheme_laws(RelativeProjection{.basis = 2, .max_distance = 3, .width = 3});
}

TEST(RelativeProjection, Refusals) {
  const ScoreShape s{.heads = 1, .head_dim = 1};
  const auto of = [&](const RelativeProjection& r) {
    return refusal([&] { (void)r.parameters(s); });
  };
  EXPECT_THAT(of({}), HasSubstr("width must lie"));
  EXPECT_THAT(of({.basis = 0, .width = 1}), HasSubstr("basis must lie"));
  EXPECT_THAT(of({.max_distance = 0, .width = 1}), HasSubstr("max_distance must lie"));
}

TEST(Nope, IsAttentionAlone) {
  for (const char* name : {"nope_causal_memory", "nope_padding", "nope_square"}) {
    SchemeCase c(contextual_suite(), name);
    SCOPED_TRACE(name);
    if (c.has("visible")) c.args.mask.visible = c.flags("visible");
    c.run_with(Nope{});
    EXPECT_TRUE(c.lowered.terms.empty());
    c.expect_core();
  }
  test::check_scheme_laws(Nope{}, {.causal = true});
}

}  // namespace
}  // namespace posenc
