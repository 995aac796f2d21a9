// SPDX-License-Identifier: Apache-2.0
// The reference's gradients against finite differences: every kind of term at once, with regions,
// stages, scales, soft cap, sink, dense bias, mixes, grouped heads and a window.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attention/gradient_world.h"
#include "support/attention_reference.h"

namespace posenc {
namespace {

using World = GradientWorld;
constexpr Index kOut = World::B * World::H * World::Tq * World::V;
constexpr Index kRows = World::B * World::H * World::Tq;

struct Upstream {
  std::vector<double> out, log_sum_exp;
  Upstream() {
    for (Index i = 0; i < kOut; ++i) out.push_back(std::cos(static_cast<double>(3 * i + 1)));
    for (Index i = 0; i < kRows; ++i) log_sum_exp.push_back(0.3 * std::cos(static_cast<double>(i)));
  }
};

double loss(World& w, const Upstream& up) {
  std::vector<double> out(kOut), lse(kRows);
  w.with([&](const AttentionArgs& a) {
    const TensorView o = tensor(out.data(), {World::B, World::H, World::Tq, World::V});
    support::attention_forward(
        a, {heads(o, HeadsLayout::bhtd), tensor(lse.data(), {World::B, World::H, World::Tq})});
  });
  double s = 0;
  for (std::size_t i = 0; i < out.size(); ++i) s += up.out[i] * out[i];
  for (std::size_t i = 0; i < lse.size(); ++i) s += up.log_sum_exp[i] * lse[i];
  return s;
}

void add_gradients(const AttentionArgs& a, const AttentionArgs& d, const World& w,
                   const Upstream& up) {
  std::vector<TermGradient> terms;
  for (const Term& t : d.terms) terms.push_back(writable(t));
  std::vector<StageGradient> stages;
  for (const Stage& s : d.prepare) stages.push_back({writable(s.q), writable(s.k)});
  const QK far{writable(d.regions[0].qk.q), writable(d.regions[0].qk.k)};
  AttentionGradients g;
  g.q = writable(d.q);
  g.k = writable(d.k);
  g.v = writable(d.v);
  g.prepare = stages;
  g.terms = terms;
  g.regions = std::span(&far, 1);
  g.sink = writable(d.sink);
  g.head_scale = writable(d.head_scale);
  g.query_factor = writable(d.query_factor);
  g.bias = writable(d.mask.bias);
  g.mix_before = writable(d.mix_before);
  g.mix_after = writable(d.mix_after);
  support::attention_backward(a, w.heads_of(up.out, World::H, World::Tq, World::V),
                              w.view(up.log_sum_exp, {World::B, World::H, World::Tq}), g);
}

void check_all(const GradientSetting& setting) {
  World w(setting), g(setting);  // g: the same shapes, holding gradients
  for (std::vector<double>* x : g.learned) std::fill(x->begin(), x->end(), 0.0);
  const Upstream up;
  w.with([&](const AttentionArgs& a) {
    g.with([&](const AttentionArgs& d) { add_gradients(a, d, w, up); });
  });
  std::size_t arrays = 0;
  for (std::size_t n = 0; n < w.learned.size(); ++n) {
    std::vector<double>& x = *w.learned[n];
    const std::size_t step = std::max<std::size_t>(1, x.size() / 7);
    bool moves = false;
    for (std::size_t i = 0; i < x.size(); i += step) {
      const double kept = x[i], e = 1e-5;
      x[i] = kept + e;
      const double above = loss(w, up);
      x[i] = kept - e;
      const double below = loss(w, up);
      x[i] = kept;
      EXPECT_NEAR((*g.learned[n])[i], (above - below) / (2 * e), 2e-8)
          << "array " << n << " element " << i;
      moves |= above != below;
    }
    arrays += moves ? 1 : 0;
  }
  EXPECT_GE(arrays, 28u);  // that have any influence: an array left out would pass
}

TEST(AttentionGradient, EveryTermAtOnce) {
  check_all({});
}
TEST(AttentionGradient, WithTheCapAfterTheTerms) {
  check_all({.cap_after_terms = true});
}
TEST(AttentionGradient, WithScoreMlp) {
  check_all({.score_mlp = true});
}
TEST(AttentionGradient, WithStages) {
  check_all({.stages = true});
}
TEST(AttentionGradient, WithHeadsMixed) {
  check_all({.mixes = true});
}
TEST(AttentionGradient, OfStickBreaking) {
  check_all({.normalisation = Normalisation::stick_breaking});
  check_all({.stages = true, .normalisation = Normalisation::stick_breaking_own});
}

}  // namespace
}  // namespace posenc
