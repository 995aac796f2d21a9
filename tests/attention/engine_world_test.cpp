// SPDX-License-Identifier: Apache-2.0
// Every kind of term, stage and number at once through the engine and the reference; scores by
// their parts; results that are merged.
#include <gtest/gtest.h>

#include "attention/engine_compare.h"
#include "attention/gradient_world.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using EngineWorld = GradientWorld;

void expect_reference(const GradientSetting& setting) {
  EngineWorld w(setting);
  w.with([&](const AttentionArgs& a) {
    EXPECT_EQ(differences(of_engine(a), of_reference(a), 5e-13, 5e-13), "");
  });
}

TEST(AttentionEngine, EveryTermAtOnceIsTheReference) {
  for (const bool after : {false, true})
    for (const bool network : {false, true})
      for (const bool mixes : {false, true})
        expect_reference({.cap_after_terms = after,
                          .score_mlp = network,
                          .stages = network == mixes,
                          .mixes = mixes});
}
TEST(AttentionEngine, StickBreakingIsTheReference) {
  for (const Normalisation n : {Normalisation::stick_breaking, Normalisation::stick_breaking_own})
    for (const bool stages : {false, true})
      expect_reference({.stages = stages, .mixes = stages, .normalisation = n});
}

// [B, H, Tq, Tk] of a world.
struct PairArray {
  std::vector<double> x =
      std::vector<double>(EngineWorld::B * EngineWorld::H * EngineWorld::Tq * EngineWorld::Tk);
  TensorView view() {
    return tensor(x.data(), {EngineWorld::B, EngineWorld::H, EngineWorld::Tq, EngineWorld::Tk});
  }
};

TEST(AttentionEngine, ScoresAreThoseOfTheReference) {
  for (const bool after : {false, true}) {
    EngineWorld w({.cap_after_terms = after, .stages = true});
    w.with([&](const AttentionArgs& a) {
      ResultArrays to(a, DType::f64);
      support::AttentionDetail want;
      support::attention_forward(a, to.r, &want);
      PairArray content, scores, capped, p, qp, pk, pp;
      attend_scores(a, {content.view(), scores.view(), capped.view(), p.view(), qp.view(),
                        pk.view(), pp.view()});
      EXPECT_LE(difference(scores.x, want.scores), 5e-13);
      EXPECT_LE(difference(p.x, want.probabilities), 5e-13);
      if (!after) {
        EXPECT_LE(difference(capped.x, want.content), 5e-13);
      }
      // The parts together are the terms and, uncapped, the content.
      for (std::size_t i = 0; after && i < p.x.size(); ++i)
        EXPECT_NEAR(content.x[i] + qp.x[i] + pk.x[i] + pp.x[i], want.content[i] + want.terms[i],
                    1e-12);
    });
  }
}
TEST(AttentionEngine, ScoresOfAnotherShapeAreRefused) {
  EngineWorld w({});
  w.with([&](const AttentionArgs& a) {
    PairArray x;
    const TensorView wrong = tensor(x.x.data(), {2, 4, 4});
    EXPECT_EQ(test::refusal([&] { attend_scores(a, {.scores = wrong}); }),
              "[attention] scores must be [batch, heads, queries, keys], got [2, 4, 4] of f64");
  });
}

// Two results over the same queries and what comes of them, engine and reference side by side.
TEST(AttentionEngine, MergeIsTheReference) {
  constexpr Index b = 2, h = 2, t = 3, d = 4, rows = b * h * t;
  test::Random r(5);
  for (const Normalisation how : {Normalisation::softmax, Normalisation::stick_breaking}) {
    std::vector<std::vector<double>> out, lse, d_out, d_lse;
    for (int n = 0; n < 8; ++n) {  // 0..2 parts, 3: whole, 4..6: gradients of parts, 7: upstream
      out.push_back(r.normals(rows * d));
      lse.push_back(r.normals(rows));
      for (double& x : lse.back()) x = -std::fabs(x);
    }
    lse[0][1] = lse[1][1] = lse[2][1] = lse[1][4] = -HUGE_VAL;
    if (how == Normalisation::softmax) out[1][16] = std::nan("");  // of an empty part: not read
    const auto result = [&](std::size_t n) {
      return AttentionResult{heads(tensor(out[n].data(), {b, h, t, d}), HeadsLayout::bhtd),
                             tensor(lse[n].data(), {b, h, t})};
    };
    const std::vector<AttentionResult> plain{result(0), result(1), result(2)};
    const std::vector<AttentionResult> d_parts{result(4), result(5), result(6)};
    const std::vector<ConstAttentionResult> parts(plain.begin(), plain.end());
    support::merge_forward(plain, result(3), how);
    const std::vector<double> want = out[3], want_lse = lse[3];
    merge(parts, result(3), how);
    EXPECT_LE(difference(out[3], want), 1e-14);
    EXPECT_LE(difference(lse[3], want_lse), 1e-14);
    const auto kept = out, kept_lse = lse;
    support::merge_backward(plain, result(3), result(7).out, result(7).log_sum_exp, d_parts, how);
    const auto want_out = out, want_l = lse;
    for (std::size_t n = 0; n < out.size(); ++n) {
      std::copy(kept[n].begin(), kept[n].end(), out[n].begin());
      std::copy(kept_lse[n].begin(), kept_lse[n].end(), lse[n].begin());
    }
    merge_backward(parts, result(3), result(7), d_parts, how);
    for (std::size_t n = 4; n < 7; ++n) {
      EXPECT_LE(difference(out[n], want_out[n]), 1e-14);
      EXPECT_LE(difference(lse[n], want_l[n]), 1e-14);
    }
  }
}
TEST(AttentionEngine, MergeRefuses) {
  std::vector<double> x(4);
  const AttentionResult whole{heads(x.data(), 2, 1, 2), {}};
  EXPECT_EQ(test::refusal([&] { merge({}, whole, Normalisation::stick_breaking_own); }),
            "[attention] parts must be of softmax or stick_breaking, got \"stick_breaking_own\"");
  const std::vector<ConstAttentionResult> parts{whole};
  EXPECT_EQ(test::refusal([&] { merge(parts, whole); }),
            "[attention] a part must have log_sum_exp");
}

}  // namespace
}  // namespace posenc
