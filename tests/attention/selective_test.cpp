// SPDX-License-Identifier: Apache-2.0
// Selective attention against x-transformers, and its gradients against differences.
#include "posenc/attention/selective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "support/refusal.h"
#include "support/suite.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::HasSubstr;

TEST(Selective, IsWhatXTransformersComputes) {
  static const support::Suite suite("relative_content");
  std::deque<std::vector<double>> kept;
  const auto heads_of = [&](const char* what) {
    const support::SuiteArray array = suite("selective_xt", what);
    kept.push_back(array.value);
    return heads(tensor(kept.back().data(), DType::f64, array.shape), HeadsLayout::bhtd);
  };
  const auto expect = [&](const char* what, const std::vector<double>& got) {
    const std::vector<double> want = suite("selective_xt", what).value;
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_LE(std::fabs(got[i] - want[i]), 1e-13 * std::fmax(1, std::fabs(want[i])))
          << what << " at " << i;
  };
  AttentionArgs a;
  a.q = heads_of("q");
  a.k = heads_of("k");
  a.v = heads_of("v");
  a.scale = 0.5;
  a.mask.causal = true;
  std::vector<double> lse(2 * 3 * 7);
  const Heads out = heads_of("out");
  std::vector<double>& got = kept.back();
  std::fill(got.begin(), got.end(), 0.0);
  const AttentionResult result{out, tensor(lse.data(), {2, 3, 7})};
  attend_selective(a, result);
  expect("out", got);
  std::vector<double> d[3];
  AttentionGradients to;
  Heads* views[] = {&to.q, &to.k, &to.v};
  for (std::size_t n = 0; n < 3; ++n) {
    d[n].assign(2 * 3 * 7 * 4, 0.0);
    *views[n] = heads(tensor(d[n].data(), {2, 3, 7, 4}), HeadsLayout::bhtd);
  }
  attend_selective_backward(a, result, {heads_of("grad_out"), {}}, to);
  expect("grad_q", d[0]);
  expect("grad_k", d[1]);
  expect("grad_v", d[2]);
}

// More rows than a block has, grouped keys, a window, another head.
struct SelectiveTestNumbers {
  static constexpr Index kQueries = 67, kKeys = 69;
  std::vector<double> q, k, v, out, lse;
  SelectiveTestNumbers()
      : q(make(kQueries * 4 * 2, 1)),
        k(make(kKeys * 2 * 2, 2)),
        v(make(kKeys * 2 * 3, 3)),
        out(static_cast<std::size_t>(kQueries * 4 * 3)),
        lse(static_cast<std::size_t>(4 * kQueries)) {}
  static std::vector<double> make(Index n, double phase) {
    std::vector<double> x;
    for (Index i = 0; i < n; ++i) x.push_back(0.6 * std::sin(7 * static_cast<double>(i) + phase));
    return x;
  }
  AttentionArgs args() {
    AttentionArgs a;
    a.q = heads(q.data(), kQueries, 4, 2);
    a.k = heads(k.data(), kKeys, 2, 2);
    a.v = heads(v.data(), kKeys, 2, 3);
    a.scale = 0.9;
    a.mask.causal = true;
    a.mask.query_offset = 2;
    a.mask.window_left = 20;
    return a;
  }
  AttentionResult result() {
    return {heads(out.data(), kQueries, 4, 3), tensor(lse.data(), {1, 4, kQueries})};
  }
  double loss() {
    attend_selective(args(), result(), {.head = 2});
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * std::cos(static_cast<double>(i));
    for (std::size_t i = 0; i < lse.size(); ++i) sum += lse[i] * std::sin(static_cast<double>(i));
    return sum;
  }
};

TEST(Selective, GradientsAreDerivatives) {
  SelectiveTestNumbers n, d, up;
  for (std::size_t i = 0; i < up.out.size(); ++i) up.out[i] = std::cos(static_cast<double>(i));
  for (std::size_t i = 0; i < up.lse.size(); ++i) up.lse[i] = std::sin(static_cast<double>(i));
  for (std::vector<double>* x : {&d.q, &d.k, &d.v}) std::fill(x->begin(), x->end(), 0.0);
  n.loss();
  AttentionGradients to;
  to.q = heads(d.q.data(), SelectiveTestNumbers::kQueries, 4, 2);
  to.k = heads(d.k.data(), SelectiveTestNumbers::kKeys, 2, 2);
  to.v = heads(d.v.data(), SelectiveTestNumbers::kKeys, 2, 3);
  attend_selective_backward(n.args(), n.result(), up.result(), to, {.head = 2});
  const std::pair<std::vector<double>*, std::vector<double>*> pairs[] = {
      {&n.q, &d.q}, {&n.k, &d.k}, {&n.v, &d.v}};
  for (const auto& [x, g] : pairs)
    for (std::size_t i = 0; i < x->size(); i += 5) {
      const double kept = (*x)[i], e = 1e-6;
      (*x)[i] = kept + e;
      const double above = n.loss();
      (*x)[i] = kept - e;
      const double below = n.loss();
      (*x)[i] = kept;
      const double slope = (above - below) / (2 * e);
      EXPECT_NEAR((*g)[i], slope, 1e-7 * (1 + std::abs(slope))) << i;
    }
}

// Two calls, of which the second one has the sums of the first.
TEST(Selective, SumsOfEarlierQueries) {
  SelectiveTestNumbers n;
  n.loss();
  const std::vector<double> want = n.out;
  std::vector<double> masked(static_cast<std::size_t>(SelectiveTestNumbers::kKeys));
  const SelectiveOptions o{.head = 2,
                           .masked = tensor(masked.data(), {1, SelectiveTestNumbers::kKeys})};
  for (const Index first : {0, 40}) {
    AttentionArgs a = n.args();
    const Index count = first == 0 ? 40 : SelectiveTestNumbers::kQueries - 40;
    a.q = heads(std::as_const(n.q).data() + first * 4 * 2, count, 4, 2);
    a.mask.query_offset += first;
    attend_selective(a, {heads(n.out.data() + first * 4 * 3, count, 4, 3), {}}, o);
  }
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(n.out[i], want[i], 1e-14);
  AttentionGradients none;
  EXPECT_THAT(
      refusal([&] { attend_selective_backward(n.args(), n.result(), n.result(), none, o); }),
      HasSubstr("masked must not be given to gradients"));
  EXPECT_THAT(refusal([&] {
                attend_selective(n.args(), n.result(), {.masked = tensor(masked.data(), {1, 4})});
              }),
              HasSubstr("masked must be [batch, keys] of f64"));
}

TEST(Selective, AnyNumberOfThreadsGivesTheSameBits) {
  constexpr Index kTokens = 130, kDim = 16;
  const std::vector<double> q = SelectiveTestNumbers::make(kTokens * 4 * kDim, 1);
  const std::vector<double> k = SelectiveTestNumbers::make(kTokens * 2 * kDim, 2);
  const std::vector<double> up = SelectiveTestNumbers::make(kTokens * 4 * kDim, 3);
  AttentionArgs a;
  a.q = heads(q.data(), kTokens, 4, kDim);
  a.k = a.v = heads(k.data(), kTokens, 2, kDim);
  a.scale = 0.5, a.mask.causal = true;
  const auto run = [&](const Executor& e) {
    std::vector<std::vector<double>> x{q, q, k, k};
    const AttentionResult result{heads(x[0].data(), kTokens, 4, kDim), {}};
    attend_selective(a, result, {.head = 1}, e);
    AttentionGradients to;
    to.q = heads(x[1].data(), kTokens, 4, kDim);
    to.k = heads(x[2].data(), kTokens, 2, kDim), to.v = heads(x[3].data(), kTokens, 2, kDim);
    const ConstAttentionResult d(heads(up.data(), kTokens, 4, kDim), {});
    attend_selective_backward(a, result, d, to, {.head = 1}, e);
    return x;
  };
  const auto want = run(inline_executor());
  for (const Index threads : {2, 5}) {
    Executor e;
    e.concurrency = threads;
    e.run = [](void*, Index n, void (*task)(void*, Index), void* arg) {
      std::vector<std::thread> all;
      for (Index i = 0; i < n; ++i) all.emplace_back(task, arg, i);
      for (std::thread& t : all) t.join();
    };
    EXPECT_EQ(run(e), want) << threads;
  }
}

TEST(Selective, Refusals) {
  SelectiveTestNumbers n;
  const auto of = [&](auto change, SelectiveOptions o = {}) {
    AttentionArgs a = n.args();
    change(a);
    return refusal([&] { attend_selective(a, n.result(), o); });
  };
  const std::vector<double> one(1, 1), four(4, 1);
  EXPECT_EQ(of([](AttentionArgs&) {}), "accepted");
  EXPECT_THAT(of([](AttentionArgs&) {}, {.head = 4}), HasSubstr("[selective] head must be"));
  EXPECT_THAT(of([](AttentionArgs& a) { a.softcap = 5; }), HasSubstr("softcap must not"));
  EXPECT_THAT(of([](AttentionArgs& a) { a.normalisation = Normalisation::stick_breaking; }),
              HasSubstr("normalisation must not"));
  EXPECT_THAT(of([&](AttentionArgs& a) { a.sink = tensor(four.data(), {4}); }),
              HasSubstr("sink must not"));
  EXPECT_THAT(of([&](AttentionArgs& a) {
                a.head_scale = tensor(four.data(), {1, 4});
              }),
              HasSubstr("head_scale must not"));
}

}  // namespace
}  // namespace posenc
