// SPDX-License-Identifier: Apache-2.0
// PaTH attention against flash-linear-attention, and its gradients against differences.
#include "posenc/attention/path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "support/refusal.h"
#include "support/suite.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::HasSubstr;

void expect_path(const std::string& what, const std::vector<double>& got,
                 const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::fabs(got[i] - want[i]), 1e-13 * std::fmax(1, std::fabs(want[i])))
        << what << " at " << i;
}

TEST(Path, IsWhatFlashLinearAttentionComputes) {
  static const support::Suite suite("relative_content");
  for (const std::string name : {"path_fla", "path_fla_gated"}) {
    SCOPED_TRACE(name);
    std::deque<std::vector<double>> kept;
    const auto heads_of = [&](const std::string& what) {
      const support::SuiteArray array = suite(name, what);
      kept.push_back(array.value);
      std::vector<Index> shape = array.shape;
      if (shape.size() == 3) shape.push_back(1);
      return heads(tensor(kept.back().data(), DType::f64, shape), HeadsLayout::bhtd);
    };
    const PathArgs a{.q = heads_of("q"),
                     .k = heads_of("k"),
                     .v = heads_of("v"),
                     .w = heads_of("w"),
                     .beta = heads_of("beta"),
                     .log_gate = heads_of("log_gates")};
    const Heads out = heads_of("q");
    attend_path(a, {out, {}});
    expect_path("out", kept.back(), suite(name, "out").value);
    PathGradients to;
    std::vector<std::pair<std::string, std::vector<double>*>> wanted;
    const auto gradient = [&](const char* what) {
      const Heads h = heads_of(what);
      std::fill(kept.back().begin(), kept.back().end(), 0.0);
      wanted.emplace_back(std::string("grad_") + what, &kept.back());
      return h;
    };
    to.q = gradient("q");
    to.k = gradient("k");
    to.v = gradient("v");
    to.w = gradient("w");
    to.beta = gradient("beta");
    to.log_gate = gradient("log_gates");
    attend_path_backward(a, {heads_of("grad_out"), {}}, to);
    for (const auto& [what, got] : wanted) expect_path(what, *got, suite(name, what).value);
  }
}

// A call of 5 queries behind 2 cached keys, heads in groups, a window, gates outside the scale.
struct PathTestNumbers {
  std::vector<double> q, k, v, w, beta, gate, out, lse;
  PathTestNumbers()
      : q(make(2 * 5 * 4 * 3, 1)),
        k(make(2 * 7 * 2 * 3, 2)),
        v(make(2 * 7 * 2 * 2, 3)),
        w(make(2 * 7 * 1 * 3, 4)),
        beta(make(2 * 7 * 1, 5)),
        gate(make(2 * 7 * 4, 6)),
        out(2 * 5 * 4 * 2),
        lse(2 * 4 * 5) {}
  static std::vector<double> make(std::size_t n, double phase) {
    std::vector<double> x;
    for (std::size_t i = 0; i < n; ++i)
      x.push_back(0.7 * std::sin(7 * static_cast<double>(i) + phase));
    return x;
  }
  static Heads of(std::vector<double>& x, Index tokens, Index n, Index dim) {
    return heads(tensor(x.data(), {2, tokens, n, dim}), HeadsLayout::bthd);
  }
  PathArgs args(Index window) {
    return {.q = of(q, 5, 4, 3),
            .k = of(k, 7, 2, 3),
            .v = of(v, 7, 2, 2),
            .w = of(w, 7, 1, 3),
            .beta = of(beta, 7, 1, 1),
            .log_gate = of(gate, 7, 4, 1),
            .scale = 0.8,
            .gates_scaled = false,
            .query_offset = 2,
            .window_left = window};
  }
  AttentionResult result() { return {of(out, 5, 4, 2), tensor(lse.data(), {2, 4, 5})}; }
  double loss(Index window) {
    attend_path(args(window), result());
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * std::cos(static_cast<double>(i));
    for (std::size_t i = 0; i < lse.size(); ++i) sum += lse[i] * std::sin(static_cast<double>(i));
    return sum;
  }
};

TEST(Path, GradientsAreDerivatives) {
  for (const Index window : {kUnbounded, Index{2}}) {
    PathTestNumbers n;
    PathTestNumbers d, up;
    for (std::vector<double>* x : {&d.q, &d.k, &d.v, &d.w, &d.beta, &d.gate})
      std::fill(x->begin(), x->end(), 0.25);
    for (std::size_t i = 0; i < up.out.size(); ++i) up.out[i] = std::cos(static_cast<double>(i));
    for (std::size_t i = 0; i < up.lse.size(); ++i) up.lse[i] = std::sin(static_cast<double>(i));
    const PathGradients to{.q = PathTestNumbers::of(d.q, 5, 4, 3),
                           .k = PathTestNumbers::of(d.k, 7, 2, 3),
                           .v = PathTestNumbers::of(d.v, 7, 2, 2),
                           .w = PathTestNumbers::of(d.w, 7, 1, 3),
                           .beta = PathTestNumbers::of(d.beta, 7, 1, 1),
                           .log_gate = PathTestNumbers::of(d.gate, 7, 4, 1)};
    attend_path_backward(n.args(window), up.result(), to);
    const std::pair<std::vector<double>*, std::vector<double>*> pairs[] = {
        {&n.q, &d.q}, {&n.k, &d.k},       {&n.v, &d.v},
        {&n.w, &d.w}, {&n.beta, &d.beta}, {&n.gate, &d.gate}};
    for (const auto& [x, g] : pairs)
      for (std::size_t i = 0; i < x->size(); ++i) {
        const double kept = (*x)[i], e = 1e-5;
        (*x)[i] = kept + e;
        const double above = n.loss(window);
        (*x)[i] = kept - e;
        const double below = n.loss(window);
        (*x)[i] = kept;
        const double slope = (above - below) / (2 * e);
        EXPECT_NEAR((*g)[i] - 0.25, slope, 2e-8 * (1 + std::abs(slope))) << i;
      }
  }
}

TEST(Path, Refusals) {
  PathTestNumbers n;
  const auto of = [&](auto change) {
    PathArgs a = n.args(3);
    change(a);
    return refusal([&] { attend_path(a, n.result()); });
  };
  EXPECT_EQ(of([](PathArgs&) {}), "accepted");
  EXPECT_THAT(of([](PathArgs& a) { a.w = {}; }), HasSubstr("[path] w must be given"));
  EXPECT_THAT(of([](PathArgs& a) { a.query_offset = 3; }), HasSubstr("queries must be among"));
  EXPECT_THAT(of([](PathArgs& a) { a.query_offset = -1; }), HasSubstr("queries must be among"));
  EXPECT_THAT(of([](PathArgs& a) { a.window_left = -1; }), HasSubstr("window_left"));
  EXPECT_THAT(of([](PathArgs& a) { a.w.dim = 2; }), HasSubstr("w must have 3 channels"));
  EXPECT_THAT(of([](PathArgs& a) { a.k.heads = 3; }),
              HasSubstr("k must have heads that divide those of q, 4"));
  EXPECT_THAT(of([](PathArgs& a) { a.v.tokens = 6; }), HasSubstr("v must have the tokens"));
  EXPECT_THAT(of([](PathArgs& a) { a.beta.batch = 1; }), HasSubstr("beta must have the batch"));
  EXPECT_THAT(of([](PathArgs& a) { a.scale = std::nan(""); }), HasSubstr("scale must be finite"));
  EXPECT_THAT(refusal([&] { attend_path(n.args(3), {{}, {}}); }), HasSubstr("out must be"));
  PathGradients to;
  to.k = PathTestNumbers::of(n.k, 6, 2, 3);
  EXPECT_THAT(refusal([&] { attend_path_backward(n.args(3), n.result(), to); }),
              HasSubstr("the gradient of k must have its shape"));
}

// Many batch entries: heads of one key head share their sums. One entry: each head has its own.
TEST(Path, GradientsDoNotDependOnHowHeadsAreCut) {
  constexpr Index kBatch = 8, kTokens = 6, kHeads = 6, kGroups = 2, kDim = 3;
  const auto numbers = [](Index n, double phase) {
    std::vector<double> x;
    for (Index i = 0; i < n; ++i) x.push_back(std::sin(3 * static_cast<double>(i) + phase));
    return x;
  };
  const Index heads_of[] = {kHeads, kGroups, kGroups, 3, 3, 1};  // q, k, v, w, beta, log_gate
  const Index dims[] = {kDim, kDim, kDim, kDim, 1, 1};
  std::vector<double> x[6], whole[6], single[6];
  for (std::size_t n = 0; n < 6; ++n) {
    x[n] = numbers(kBatch * kTokens * heads_of[n] * dims[n], static_cast<double>(n));
    whole[n].assign(x[n].size(), 0), single[n] = whole[n];
  }
  const std::vector<double> up = numbers(kBatch * kTokens * kHeads * kDim, 9);
  const auto run = [&](Index first, Index batch, std::vector<double>* to) {
    const auto view = [&](auto& array, std::size_t n) {
      return heads(tensor(array.data() + first * kTokens * heads_of[n] * dims[n],
                          {batch, kTokens, heads_of[n], dims[n]}),
                   HeadsLayout::bthd);
    };
    const auto in = [&](std::size_t n) { return view(std::as_const(x[n]), n); };
    const PathArgs a{
        .q = in(0), .k = in(1), .v = in(2), .w = in(3), .beta = in(4), .log_gate = in(5)};
    attend_path_backward(a, ConstAttentionResult(view(up, 0), {}),
                         {view(to[0], 0), view(to[1], 1), view(to[2], 2), view(to[3], 3),
                          view(to[4], 4), view(to[5], 5)});
  };
  run(0, kBatch, whole);
  for (Index b = 0; b < kBatch; ++b) run(b, 1, single);
  for (std::size_t n = 0; n < 6; ++n)
    expect_path("gradient " + std::to_string(n), whole[n], single[n]);
}

}  // namespace
}  // namespace posenc
