// SPDX-License-Identifier: Apache-2.0
// Gradients of q, k and v that are written in place of added: memory that is not initialised gives the same bits as zeros.
#include <gtest/gtest.h>

#include "attention/float_call.h"
#include "attention/random_call.h"
#include "posenc/attention/selective.h"
#include "posenc/rotary/rope.h"

namespace posenc {
namespace {

constexpr const char* kOverwritten[] = {"q", "k", "v"};

// fn(gradients) adds to them; every array begins with `first`, those of q, k and v with `own`.
template <class F>
std::vector<std::vector<double>> gradients_of(const AttentionArgs& a, bool overwrite, const F& fn) {
  GradientArrays g(a);
  for (std::size_t n = 0; n < g.value.size(); ++n) {
    const bool own = std::find(std::begin(kOverwritten), std::end(kOverwritten), g.name[n]) !=
                     std::end(kOverwritten);
    std::fill(g.value[n].begin(), g.value[n].end(), own && overwrite ? std::nan("") : 0);
  }
  g.g.overwrite = overwrite;
  fn(g.g);
  return {g.value.begin(), g.value.end()};
}
std::vector<std::vector<double>> of_call(const AttentionArgs& a, bool overwrite) {
  const EngineUpstream up(a);
  ResultArrays to(a, a.q.dtype);
  attend(a, to.r);
  return gradients_of(a, overwrite, [&](const AttentionGradients& g) {
    attend_backward(a, to.r, {up.d_out, up.d_lse}, g);
  });
}

TEST(Overwrite, RandomCallsHaveTheBitsOfZeros) {
  int fast = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const RandomCall call(seed);
    ASSERT_EQ(of_call(call.args, true), of_call(call.args, false)) << seed;
    fast += explain_plan(call.args).backward_engine == "fast" ? 1 : 0;
  }
  EXPECT_GT(fast, 50);
}

// Slices of the keys, parts of the heads, stages, no keys, and numbers that go to the exact engine.
TEST(Overwrite, EveryWayOfTheFastEngine) {
  const RotarySpec rope = resolve(Rope{.head_dim = 8, .pairing = Pairing::half_split});
  Stage rotate;
  rotate.kind = StageKind::rotate, rotate.rotary = &rope;
  const Stage stages[] = {rotate};
  for (const bool staged : {false, true})
    for (const auto [heads, groups, keys] :
         {std::array<Index, 3>{1, 1, 2500}, {5, 1, 60}, {8, 8, 60}, {2, 2, 0}}) {
      FloatCall call(1, 40, keys, heads, groups, 8, 5, 3);
      if (staged) call.args.prepare = stages;
      ASSERT_EQ(explain_plan(call.args).backward_engine, "fast");
      EXPECT_EQ(of_call(call.args, true), of_call(call.args, false)) << heads << " " << keys;
      if (keys == 0) continue;
      call.narrow[1][3] = 1e30f;
      EXPECT_EQ(of_call(call.args, true), of_call(call.args, false)) << heads << " " << keys;
    }
}

TEST(Overwrite, OneViewOfTwoGradientsGetsTheirSum) {
  FloatCall call(1, 50, 50, 2, 2, 8, 8, 3);
  const EngineUpstream up(call.args);
  ResultArrays to(call.args, DType::f32);
  attend(call.args, to.r);
  std::vector<float> sums[2] = {std::vector<float>(800), std::vector<float>(800, std::nanf(""))};
  for (const bool overwrite : {false, true}) {
    AttentionGradients g;
    g.k = g.v = heads(tensor(sums[overwrite ? 1 : 0].data(), {1, 50, 2, 8}), HeadsLayout::bthd);
    g.overwrite = overwrite;
    attend_backward(call.args, to.r, {up.d_out, up.d_lse}, g);
  }
  EXPECT_EQ(sums[0], sums[1]);
}

TEST(Overwrite, ScoresAndSelectiveAttention) {
  FloatCall call(1, 6, 6, 2, 2, 8, 8, 3);
  const EngineUpstream up(call.args);
  const std::vector<double> d(2 * 6 * 6, 0.5);
  ResultArrays to(call.args, DType::f32);
  attend_selective(call.args, to.r);
  const auto of_scores = [&](const AttentionGradients& g) {
    attend_scores_backward(call.args, tensor(d.data(), {1, 2, 6, 6}), g);
  };
  const auto selective = [&](const AttentionGradients& g) {
    attend_selective_backward(call.args, to.r, {up.d_out, up.d_lse}, g);
  };
  EXPECT_EQ(gradients_of(call.args, true, of_scores), gradients_of(call.args, false, of_scores));
  EXPECT_EQ(gradients_of(call.args, true, selective), gradients_of(call.args, false, selective));
}

}  // namespace
}  // namespace posenc
