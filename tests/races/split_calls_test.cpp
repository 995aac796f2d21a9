// SPDX-License-Identifier: Apache-2.0
// Every call that is split over an executor, with a thread of its own for each task: the thread sanitizer sees
// whatever two tasks share. The bits are those of one thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "posenc/absolute/embed.h"
#include "posenc/absolute/extend.h"
#include "posenc/absolute/plan.h"
#include "posenc/absolute/sinusoidal.h"
#include "posenc/attention/path.h"
#include "posenc/attention/plan.h"
#include "posenc/attention/selective.h"
#include "posenc/posenc.h"
#include "posenc/rotary/pope.h"
#include "support/random.h"

namespace posenc {
namespace {

// The most tasks that a call was split into.
void run_apart(void* most, Index n, void (*task)(void*, Index), void* arg) {
  Index& seen = *static_cast<Index*>(most);
  seen = std::max(seen, n);
  std::vector<std::thread> threads;
  for (Index i = 0; i < n; ++i) threads.emplace_back(task, arg, i);
  for (std::thread& t : threads) t.join();
}

using Numbers = std::vector<double>;

// call(executor) gives whatever it wrote.
template <class F>
void expect_one_answer(const F& call) {
  Index most = 0;
  const auto got = call(Executor{&most, 4, run_apart});
  EXPECT_GT(most, 1) << "the call is too small to be split";
  EXPECT_TRUE(got == call(inline_executor()));
}

std::vector<float> floats(Index n, std::uint64_t seed) {
  return test::Random(seed).normals<float>(static_cast<std::size_t>(n));
}
Numbers doubles(Index n, std::uint64_t seed) {
  return test::Random(seed).normals(static_cast<std::size_t>(n));
}

constexpr Index kTokens = 1024, kHeads = 4, kDim = 64;  // 1 MiB of floats
constexpr Index kElements = kTokens * kHeads * kDim;

const RotarySpec& races_spec() {
  static const RotarySpec spec =
      resolve(Rope{.head_dim = kDim, .base = 10000, .pairing = Pairing::half_split});
  return spec;
}
template <class T>
auto split_heads(std::vector<T>& x) {
  return heads(x.data(), kTokens, kHeads, static_cast<Index>(x.size()) / kTokens / kHeads);
}

TEST(SplitCalls, Rotation) {
  const RotaryPlan plan(races_spec(), DType::f32);
  const OwnedPositions p = arange(7, kTokens);
  expect_one_answer([&](const Executor& e) {
    std::vector<float> q = floats(kElements, 1), k = floats(kElements, 2);
    std::vector<float> rows(static_cast<std::size_t>(kTokens * plan.row_columns()));
    plan.apply(split_heads(q), split_heads(k), p, RotateMode::forward, e);
    plan.rows(p, tensor(rows.data(), {kTokens, plan.row_columns()}), e);
    plan.apply_rows(split_heads(k), tensor(rows.data(), {kTokens, plan.row_columns()}),
                    RotateMode::inverse, e);
    rerotate(split_heads(q), races_spec(), p, races_spec(), arange(-9, kTokens), e);
    q.insert(q.end(), k.begin(), k.end());
    return q;
  });
}

TEST(SplitCalls, GradientsOfThePhaseAndOfRows) {
  const RotaryPlan plan(races_spec(), DType::f32);
  const OwnedPositions p = arange(0, kTokens);
  std::vector<float> x = floats(kElements, 1), d = floats(kElements, 2);
  const Index pairs = kDim / 2;
  std::vector<float> cos = floats(kTokens * pairs, 3), sin = floats(kTokens * pairs, 4);
  const auto qk = [](std::vector<float>& v) { return ConstQK{split_heads(v), {}}; };
  expect_one_answer([&](const Executor& e) {
    Numbers frequency(static_cast<std::size_t>(pairs)), position(kTokens), gain(1);
    std::vector<std::byte> scratch(plan.phase_gradients_workspace(qk(x)));
    plan.phase_gradients(qk(x), qk(d), p,
                         {0, tensor(frequency.data(), {1, 1, pairs}), tensor(gain.data(), {1}),
                          tensor(position.data(), {1, 1, kTokens})},
                         scratch, e);
    Numbers d_cos(cos.size()), d_sin(sin.size());
    plan.row_gradients(
        qk(x), qk(d),
        {tensor(cos.data(), {kTokens, pairs}),
         tensor(sin.data(), {kTokens, pairs}),
         TableLayout::half,
         {}},
        {tensor(d_cos.data(), {kTokens, pairs}), tensor(d_sin.data(), {kTokens, pairs})}, e);
    return std::vector<Numbers>{frequency, position, gain, d_cos, d_sin};
  });
}

TEST(SplitCalls, Pope) {
  const PopePlan plan(Pope{.head_dim = kDim}, DType::f32);
  const OwnedPositions p = arange(3, kTokens);
  std::vector<float> x = floats(kElements, 1), d = floats(2 * kElements, 2);
  const std::vector<float> bias(static_cast<std::size_t>(kHeads * kDim), -1.f);
  const ConstTensorView b = tensor(bias.data(), {kHeads, kDim});
  expect_one_answer([&](const Executor& e) {
    std::vector<float> out(static_cast<std::size_t>(2 * kElements)), d_x(x.size());
    Numbers d_bias(bias.size());
    plan.apply(split_heads(x), split_heads(out), p, b, e);
    plan.gradient(split_heads(x), split_heads(d), p, b, split_heads(d_x),
                  tensor(d_bias.data(), {kHeads, kDim}), e);
    out.insert(out.end(), d_x.begin(), d_x.end());
    return std::pair(out, d_bias);
  });
}

TEST(SplitCalls, RowsOfCosineAndSine) {
  const Spectrum& spectrum = races_spec().blocks[0].spectrum;
  constexpr Index kRows = 4 * kTokens;
  const OwnedPositions p = arange(5, kRows);
  expect_one_answer([&](const Executor& e) {
    std::vector<float> rows(static_cast<std::size_t>(kRows * kDim));
    phase_rows(spectrum, p, tensor(rows.data(), {kRows, kDim}), TableLayout::half, Precision::exact,
               e);
    return rows;
  });
}

TEST(SplitCalls, InputPlanAndItsGradient) {
  constexpr Index kWidth = 512;
  LoweredInput low;
  Sinusoidal{.width = kWidth}.lower({}, low);
  InputTerm learned;
  learned.table = low.table(doubles(kTokens * kWidth, 1), kTokens, kWidth);
  learned.width = kWidth;
  low.terms.push_back(learned);
  const InputPlan plan(low, DType::f32);
  const OwnedPositions p = arange(0, kTokens);
  std::vector<float> x = floats(kTokens * kWidth, 2), d = floats(kTokens * kWidth, 3);
  const auto view = [](auto& v) { return tensor(v.data(), {kTokens, kWidth}); };
  expect_one_answer([&](const Executor& e) {
    std::vector<float> y(x.size()), d_x(x.size());
    Numbers table(x.size());
    std::vector<std::byte> scratch(plan.gradient_workspace(1, kTokens));
    std::vector<InputGradient> to(2);
    to[1].table = view(table);
    plan.apply(view(x), p, view(y), e);
    plan.gradient(view(x), p, view(d), view(d_x), to, scratch, e);
    y.insert(y.end(), d_x.begin(), d_x.end());
    return std::pair(y, table);
  });
}

TEST(SplitCalls, EmbedAndItsGradient) {
  constexpr Index kBatch = 2, kEach = 256, kWidth = 512, kWords = 40;
  for (const bool normed : {false, true}) {
    std::vector<float> words = floats(kWords * kWidth, 1), places = floats(kEach * kWidth, 2);
    std::vector<float> gamma = floats(kWidth, 3), beta = floats(kWidth, 4);
    std::vector<float> up = floats(kBatch * kEach * kWidth, 5);
    std::vector<Index> ids(static_cast<std::size_t>(kBatch * kEach));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<Index>(i * i % kWords);
    EmbedPart w, p;
    w.table = tensor(words.data(), {kWords, kWidth}), w.ids = tensor(ids.data(), {kBatch, kEach});
    p.rows = tensor(places.data(), {kEach, kWidth});
    const EmbedPart parts[] = {w, p};
    std::optional<EmbedNorm> norm;
    if (normed)
      norm = EmbedNorm{tensor(gamma.data(), {kWidth}), tensor(beta.data(), {kWidth}), 1e-5};
    expect_one_answer([&](const Executor& e) {
      std::vector<float> y(up.size());
      std::vector<float> d_words(words.size()), d_places(places.size()), d_gamma(kWidth),
          d_beta(kWidth);
      embed(parts, norm, tensor(y.data(), {kBatch, kEach, kWidth}), e);
      const TensorView to[] = {tensor(d_words.data(), {kWords, kWidth}),
                               tensor(d_places.data(), {kEach, kWidth})};
      EmbedGradients g{to, {}, {}};
      if (normed)
        g.gamma = tensor(d_gamma.data(), {kWidth}), g.beta = tensor(d_beta.data(), {kWidth});
      embed_gradient(parts, norm, tensor(up.data(), {kBatch, kEach, kWidth}), g, e);
      return std::vector<std::vector<float>>{y, d_words, d_places, d_gamma, d_beta};
    });
  }
}

TEST(SplitCalls, ExtendedTables) {
  constexpr Index kWidth = 256;
  const std::vector<float> table = floats(16 * 16 * kWidth, 1);
  expect_one_answer([&](const Executor& e) {
    std::vector<float> out(static_cast<std::size_t>(24 * 24 * kWidth)), d(table.size());
    const Extension how{.how = ExtendHow::bicubic};
    const TensorView to = tensor(out.data(), {24 * 24, kWidth});
    extend_table(tensor(table.data(), {16 * 16, kWidth}), {16, 16}, to, {24, 24}, how, e);
    extend_gradient(to, {24, 24}, tensor(d.data(), {16 * 16, kWidth}), {16, 16}, how, e);
    out.insert(out.end(), d.begin(), d.end());
    return out;
  });
}

// q, k and v, one row of the batch, and what comes out of a call.
struct AttentionNumbers {
  static constexpr Index kQueries = 64, kChannels = 16;
  Numbers q = doubles(kQueries * 2 * kChannels, 1), k = doubles(kQueries * 2 * kChannels, 2),
          v = doubles(kQueries * 2 * kChannels, 3), up = doubles(kQueries * 2 * kChannels, 4);
  OwnedPositions at = arange(0, kQueries);

  static Heads view(Numbers& x) { return heads(x.data(), kQueries, 2, kChannels); }
  AttentionArgs call() {
    AttentionArgs a;
    a.q = view(q), a.k = view(k), a.v = view(v);
    a.query_positions = a.key_positions = at;
    a.scale = 0.25, a.mask.causal = true;
    return a;
  }
};

// forward and backward, as attend and attend_backward; what each writes.
template <class Forward, class Backward>
std::vector<Numbers> attention_answers(const Forward& forward, const Backward& backward) {
  constexpr Index kQueries = AttentionNumbers::kQueries;
  Numbers out(static_cast<std::size_t>(kQueries * 2 * AttentionNumbers::kChannels)),
      lse(2 * kQueries);
  Numbers d_q(out.size()), d_k(out.size()), d_v(out.size());
  const AttentionResult result{AttentionNumbers::view(out), tensor(lse.data(), {1, 2, kQueries})};
  forward(result);
  AttentionGradients to;
  to.q = AttentionNumbers::view(d_q), to.k = AttentionNumbers::view(d_k);
  to.v = AttentionNumbers::view(d_v);
  backward(result, to);
  return {out, lse, d_q, d_k, d_v};
}

TEST(SplitCalls, AttentionWithTermsAndItsGradient) {
  AttentionNumbers n;
  Numbers bias = doubles(8 * 2, 5);
  const AttentionPlan plan({"t5 bidirectional=false num_buckets=8 max_distance=20", "alibi"},
                           {.heads = 2, .head_dim = AttentionNumbers::kChannels, .scale = 1});
  const NamedArray parameters[] = {{"table", tensor(bias.data(), {8, 2})}};
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(n.at, n.at));
  AttentionArgs a = n.call();
  a.scale = 1;
  expect_one_answer([&](const Executor& e) {
    Numbers d_bias(bias.size()), scores(2 * 64 * 64);
    std::vector<Numbers> all = attention_answers(
        [&](const AttentionResult& r) { lowered.forward(a, {}, r, e); },
        [&](const AttentionResult& r, const AttentionGradients& to) {
          const NamedGradient named[] = {{"table", tensor(d_bias.data(), {8, 2})}};
          lowered.backward(a, {}, r, {AttentionNumbers::view(n.up), {}}, to, named, e);
        });
    AttentionScores wanted;
    wanted.scores = tensor(scores.data(), {1, 2, 64, 64});
    lowered.scores(a, {}, wanted, e);
    all.push_back(d_bias), all.push_back(scores);
    return all;
  });
}

TEST(SplitCalls, SelectiveAttention) {
  AttentionNumbers n;
  const AttentionArgs a = n.call();
  expect_one_answer([&](const Executor& e) {
    return attention_answers(
        [&](const AttentionResult& r) { attend_selective(a, r, {}, e); },
        [&](const AttentionResult& r, const AttentionGradients& to) {
          attend_selective_backward(a, r, {AttentionNumbers::view(n.up), {}}, to, {}, e);
        });
  });
}

TEST(SplitCalls, PathAttention) {
  AttentionNumbers n;
  constexpr Index kQueries = AttentionNumbers::kQueries;
  Numbers w = doubles(kQueries * AttentionNumbers::kChannels, 5), beta(kQueries, 0.3);
  PathArgs a{.q = AttentionNumbers::view(n.q), .k = AttentionNumbers::view(n.k)};
  a.v = AttentionNumbers::view(n.v);
  a.w = heads(w.data(), kQueries, 1, AttentionNumbers::kChannels);
  a.beta = heads(beta.data(), kQueries, 1, 1);
  expect_one_answer([&](const Executor& e) {
    Numbers d_w(w.size()), d_beta(beta.size());
    std::vector<Numbers> all =
        attention_answers([&](const AttentionResult& r) { attend_path(a, r, e); },
                          [&](const AttentionResult&, const AttentionGradients& g) {
                            PathGradients to{.q = g.q, .k = g.k, .v = g.v};
                            to.w = heads(d_w.data(), kQueries, 1, AttentionNumbers::kChannels);
                            to.beta = heads(d_beta.data(), kQueries, 1, 1);
                            attend_path_backward(a, {AttentionNumbers::view(n.up), {}}, to, e);
                          });
    all.push_back(d_w), all.push_back(d_beta);
    return all;
  });
}

}  // namespace
}  // namespace posenc
