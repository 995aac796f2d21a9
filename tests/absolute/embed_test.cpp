// SPDX-License-Identifier: Apache-2.0
// Looked-up rows, their sum and norm. The suite `absolute` has BERT, RoBERTa, GPT-2, LayoutLM,
// TAPAS and Segatron with all gradients; here laws, dtypes, refusals; large outputs and the ends of
// the types are in embed_numbers_test.cpp.
#include "posenc/absolute/embed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "posenc/core/philox.h"
#include "support/refusal.h"

namespace posenc {
namespace {

struct Numbers {
  std::vector<Index> shape;
  std::vector<double> value;
  Numbers(std::vector<Index> s, std::uint64_t seed) : shape(std::move(s)) {
    std::size_t n = 1;
    for (const Index x : shape) n *= static_cast<std::size_t>(x);
    const Draws draws(seed);
    for (std::size_t i = 0; i < n; ++i) value.push_back(seed == 0 ? 0 : draws.normal(i));
  }
  TensorView view() { return tensor(static_cast<void*>(value.data()), DType::f64, shape); }
};

constexpr Index kBatch = 3, kTokens = 5, kWidth = 11, kWords = 7;

// Words, positions beside them (one row of ids for all), a type that all share, given rows.
struct Setting {
  Numbers words{{kWords, kWidth}, 1}, places{{kTokens + 2, kWidth}, 2}, types{{2, kWidth}, 3};
  Numbers rows{{kTokens, kWidth}, 4}, gamma{{kWidth}, 5}, beta{{kWidth}, 6};
  Numbers up{{kBatch, kTokens, kWidth}, 7};
  std::vector<Index> ids{0, 3, 3, 6, 2, 2, 2, 2, 2, 2, 5, 4, 3, 3, 0};
  std::vector<std::int32_t> place{0, 1, 2, 3, 4}, type{1, 1, 1, 1, 1};
  bool normed = true;

  std::vector<EmbedPart> parts() {
    EmbedPart w, p, t, r;
    w.table = words.view(), w.ids = tensor(ids.data(), {kBatch, kTokens}), w.scale = 1.5;
    p.table = places.view(), p.ids = tensor(place.data(), {kTokens}), p.offset = 2;
    t.table = types.view(), t.ids = tensor(type.data(), {1, kTokens});
    r.rows = rows.view(), r.scale = -0.5;
    return {w, p, t, r};
  }
  std::optional<EmbedNorm> norm() {
    if (!normed) return {};
    return EmbedNorm{gamma.view(), beta.view(), 1e-5};
  }
  std::vector<double> forward(const Executor& executor = default_executor()) {
    Numbers y{{kBatch, kTokens, kWidth}, 0};
    embed(parts(), norm(), y.view(), executor);
    return y.value;
  }
  double loss() {
    const std::vector<double> y = forward();
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * up.value[i];
    return sum;
  }
};

TEST(Embed, AgainstTheDumbestLoop) {
  for (const bool normed : {true, false}) {
    Setting s;
    s.normed = normed;
    const std::vector<double> y = s.forward();
    for (Index b = 0; b < kBatch; ++b)
      for (Index t = 0; t < kTokens; ++t) {
        std::vector<long double> row;
        long double mean = 0, variance = 0;
        for (Index c = 0; c < kWidth; ++c) {
          const auto at = [&](const Numbers& n, Index r) {
            return static_cast<long double>(n.value[static_cast<std::size_t>(r * kWidth + c)]);
          };
          row.push_back(1.5L * at(s.words, s.ids[static_cast<std::size_t>(b * kTokens + t)]) +
                        at(s.places, t + 2) + at(s.types, 1) - 0.5L * at(s.rows, t));
          mean += row.back() / kWidth;
        }
        for (const long double x : row) variance += (x - mean) * (x - mean) / kWidth;
        for (Index c = 0; c < kWidth; ++c) {
          const auto k = static_cast<std::size_t>(c);
          const long double want =
              normed ? (row[k] - mean) / std::sqrt(variance + 1e-5L) * s.gamma.value[k] +
                           s.beta.value[k]
                     : row[k];
          EXPECT_NEAR(y[static_cast<std::size_t>((b * kTokens + t) * kWidth + c)],
                      static_cast<double>(want), 4e-15);
        }
      }
  }
}

void check_gradient(Setting& s, Numbers& parameter, const Numbers& gradient, const char* name) {
  for (std::size_t i = 0; i < parameter.value.size(); ++i) {
    const double kept = parameter.value[i], e = 1e-5;
    parameter.value[i] = kept + e;
    const double above = s.loss();
    parameter.value[i] = kept - e;
    const double below = s.loss();
    parameter.value[i] = kept;
    EXPECT_NEAR(gradient.value[i], (above - below) / (2 * e), 2e-8) << name << " " << i;
  }
}

TEST(Embed, GradientsAreThoseOfFiniteDifferences) {
  for (const bool normed : {true, false}) {
    Setting s;
    s.normed = normed;
    Numbers words{s.words.shape, 0}, places{s.places.shape, 0}, types{s.types.shape, 0};
    Numbers rows{s.rows.shape, 0}, gamma{s.gamma.shape, 0}, beta{s.beta.shape, 0};
    const TensorView to[] = {words.view(), places.view(), types.view(), rows.view()};
    EmbedGradients g{to, {}, {}};
    if (normed) g.gamma = gamma.view(), g.beta = beta.view();
    embed_gradient(s.parts(), s.norm(), s.up.view(), g);
    check_gradient(s, s.words, words, "words");
    check_gradient(s, s.places, places, "places");
    check_gradient(s, s.types, types, "types");
    check_gradient(s, s.rows, rows, "rows");
    if (normed) check_gradient(s, s.gamma, gamma, "gamma");
    if (normed) check_gradient(s, s.beta, beta, "beta");
    // Accumulated.
    const std::vector<double> once = words.value;
    embed_gradient(s.parts(), s.norm(), s.up.view(), g);
    for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(words.value[i], 2 * once[i]);
  }
}

TEST(Embed, FrozenRowsAreReadAndNotTrained) {
  Setting s;
  std::vector<EmbedPart> parts = s.parts();
  Numbers all{s.words.shape, 0}, some{s.words.shape, 0};
  const TensorView none;
  const TensorView to[] = {all.view(), none, none, none}, to2[] = {some.view(), none, none, none};
  embed_gradient(parts, s.norm(), s.up.view(), {to, {}, {}});
  parts[0].frozen = 3;
  Numbers y{{kBatch, kTokens, kWidth}, 0};
  embed(parts, s.norm(), y.view());
  EXPECT_EQ(y.value, s.forward());
  embed_gradient(parts, s.norm(), s.up.view(), {to2, {}, {}});
  for (std::size_t i = 0; i < some.value.size(); ++i)
    EXPECT_EQ(some.value[i], i / kWidth == 3 ? 0 : all.value[i]) << i;
}

// Threads that run tasks one after another, backwards: any order gives the same bits.
void backwards(void*, Index n, void (*task)(void*, Index), void* arg) {
  while (n-- > 0) task(arg, n);
}
TEST(Embed, EveryExecutorGivesTheSameBits) {
  constexpr Index batch = 16, tokens = 64, width = 160;
  Numbers words{{40, width}, 1}, types{{2, width}, 2}, up{{batch, tokens, width}, 3};
  std::vector<Index> ids;
  std::vector<std::int32_t> type(tokens, 1);
  for (Index i = 0; i < batch * tokens; ++i) ids.push_back(i * i % 40);
  EmbedPart w, t;
  w.table = words.view(), w.ids = tensor(ids.data(), {batch, tokens});
  t.table = types.view(), t.ids = tensor(type.data(), {tokens});
  const EmbedPart parts[] = {w, t};
  const std::optional<EmbedNorm> norm{EmbedNorm{}};
  std::vector<std::vector<double>> results;
  for (const Index threads : {0, 1, 3, 7}) {
    const Executor own{nullptr, threads, backwards};
    const Executor& executor = threads == 0 ? inline_executor() : own;
    Numbers y{{batch, tokens, width}, 0}, d{words.shape, 0}, dt{types.shape, 0}, dg{{width}, 0};
    embed(parts, norm, y.view(), executor);
    const TensorView to[] = {d.view(), dt.view()};
    embed_gradient(parts, norm, up.view(), {to, dg.view(), {}}, executor);
    for (const Numbers* n : {&d, &dt, &dg})
      y.value.insert(y.value.end(), n->value.begin(), n->value.end());
    results.push_back(std::move(y.value));
  }
  for (const auto& r : results) EXPECT_EQ(r, results[0]);
}

// Channels apart, and one tensor for two parts: the sum of both.
TEST(Embed, GradientsOfAnyStrideAndOfSharedTables) {
  Setting s;
  const std::vector<EmbedPart> parts = s.parts();
  Numbers words{s.words.shape, 0}, apart{{kWords, 2 * kWidth}, 0}, both{s.words.shape, 0};
  const TensorView none;
  TensorView wide = apart.view();
  wide.shape[1] = kWidth, wide.stride[1] = 2;
  const TensorView a[] = {words.view(), none, none, none}, b[] = {wide, none, none, none};
  embed_gradient(parts, s.norm(), s.up.view(), {a, {}, {}});
  embed_gradient(parts, s.norm(), s.up.view(), {b, {}, {}});
  for (std::size_t i = 0; i < words.value.size(); ++i) {
    EXPECT_EQ(apart.value[2 * i], words.value[i]);
    EXPECT_EQ(apart.value[2 * i + 1], 0);
  }
  EmbedPart again = parts[0];
  again.ids = parts[0].ids, again.scale = 0.5;
  const EmbedPart twice[] = {parts[0], again};
  Numbers first{s.words.shape, 0}, second{s.words.shape, 0};
  const TensorView two[] = {first.view(), second.view()}, one[] = {both.view(), both.view()};
  const Executor threads{nullptr, 3, backwards};
  embed_gradient(twice, s.norm(), s.up.view(), {two, {}, {}}, threads);
  embed_gradient(twice, s.norm(), s.up.view(), {one, {}, {}}, threads);
  for (std::size_t i = 0; i < both.value.size(); ++i)
    EXPECT_NEAR(both.value[i], first.value[i] + second.value[i], 1e-14);
}

// Narrow dtypes: the double result of the same numbers, rounded once.
TEST(Embed, NarrowDtypesRoundOnce) {
  Setting s;
  for (Numbers* n : {&s.words, &s.places, &s.types, &s.rows, &s.gamma, &s.beta})
    for (double& v : n->value) v = std::round(v * 32) / 32;  // held by every dtype
  const std::vector<double> want = s.forward();
  std::vector<EmbedPart> parts = s.parts();
  std::vector<std::vector<float>> kept;
  const auto narrow = [&](Numbers& n) {
    kept.emplace_back(n.value.begin(), n.value.end());
    return tensor(static_cast<void*>(kept.back().data()), DType::f32, n.shape);
  };
  kept.reserve(8);
  parts[0].table = narrow(s.words), parts[1].table = narrow(s.places);
  parts[2].table = narrow(s.types), parts[3].rows = narrow(s.rows);
  std::vector<float> y(want.size());
  embed(parts, EmbedNorm{narrow(s.gamma), narrow(s.beta), 1e-5},
        tensor(y.data(), {kBatch, kTokens, kWidth}));
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], static_cast<float>(want[i])) << i;
  // GPT-2 in bfloat16: 1.0078125 + 2 = 3.0078125, between 3 and 3.015625, to even.
  std::vector<std::uint16_t> table{0x3f81}, place{0x4000}, out(1);
  const std::vector<Index> zero{0};
  const Index one[] = {1, 1};
  EmbedPart word, position;
  word.table = tensor(static_cast<void*>(table.data()), DType::bf16, one);
  position.table = tensor(static_cast<void*>(place.data()), DType::bf16, one);
  word.ids = position.ids = tensor(zero.data(), {1});
  const EmbedPart gpt2[] = {word, position};
  embed(gpt2, {}, tensor(static_cast<void*>(out.data()), DType::bf16, one));
  EXPECT_EQ(out[0], 0x4040);
}

TEST(Embed, Refusals) {
  Setting s;
  Numbers y{{kBatch, kTokens, kWidth}, 0};
  const auto says = [&](const std::vector<EmbedPart>& parts, const std::optional<EmbedNorm>& norm,
                        const TensorView& to) {
    try {
      embed(parts, norm, to);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  std::vector<EmbedPart> parts = s.parts();
  s.ids[7] = kWords;
  EXPECT_EQ(says(parts, {}, y.view()), "[embed] an id must have a row in its table of 7, got 7");
  s.ids[7] = -1;
  EXPECT_EQ(says(parts, {}, y.view()), "[embed] an id must have a row in its table of 7, got -1");
  s.ids[7] = 0, parts[0].offset = 2;
  EXPECT_EQ(says(parts, {}, y.view()),
            "[embed] an id plus the offset of 2 must have a row in its table of 7, got 6");
  parts[0].offset = 0;
  s.ids[7] = Index{1} << 37;
  EXPECT_NE(says(parts, {}, y.view()).find("got 137438953472"), std::string::npos);
  s.ids[7] = 0;
  for (const double v : y.value) EXPECT_EQ(v, 0);  // nothing was written
  EXPECT_EQ(says({}, {}, y.view()), "[embed] there must be a part");
  parts[0].ids = {};
  EXPECT_EQ(says(parts, {}, y.view()), "[embed] a part must have a table and ids, or rows");
  parts = s.parts();
  parts[1].scale = std::nan("");
  EXPECT_EQ(says(parts, {}, y.view()), "[embed] scale must be finite, got nan");
  parts = s.parts();
  EXPECT_EQ(says(parts, EmbedNorm{{}, {}, -1}, y.view()),
            "[embed] epsilon must be finite and not negative, got -1");
  EXPECT_NE(says(parts, {}, tensor(y.value.data(), {kTokens, kWidth})).find("ids must be"),
            std::string::npos);
  EXPECT_EQ(says(parts, {}, tensor(y.value.data(), {1, 1, 2 * kWidth})),
            "[embed] a table must be [n, " + std::to_string(2 * kWidth) +
                "] of the dtype of y, f64, channels together, got [" + std::to_string(kWords) +
                ", " + std::to_string(kWidth) + "] of f64");
  parts[0].frozen = kWords;
  EXPECT_EQ(says(parts, {}, y.view()), "[embed] frozen must be a row of the table of 7, got 7");
  parts[0].frozen = -1;
  EXPECT_EQ(says(parts, {}, y.view()), "[embed] frozen must be a row of the table of 7, got -1");
  parts = s.parts();
  TensorView negative = y.view();
  negative.shape[1] = -negative.shape[1];
  EXPECT_NE(says(parts, {}, negative).find("must not be negative"), std::string::npos);
  std::vector<double> one_row(kWidth);
  TensorView over_itself = tensor(one_row.data(), {1, kWidth});
  over_itself.shape[0] = kWords, over_itself.stride[0] = 0;
  std::vector<TensorView> shared(parts.size());
  shared[0] = over_itself;
  EXPECT_EQ(test::refusal([&] {
              embed_gradient(parts, {}, y.view(), {shared, {}, {}});
            }).substr(0, 30),
            "[embed] elements of a gradient");
  std::vector<double> gamma(1);
  EXPECT_EQ(says(parts, EmbedNorm{tensor(gamma.data(), {1}), {}, 0}, y.view()),
            "[embed] gamma must be [" + std::to_string(kWidth) +
                "] of the dtype of y, f64, got [1] of f64");
  Numbers empty{{kBatch, 0, kWidth}, 0};
  EmbedPart words = parts[0];
  words.ids = tensor(s.ids.data(), {kBatch, 0});
  embed(std::span(&words, 1), {}, tensor(y.value.data(), {kBatch, 0, kWidth}));  // zero tokens
  // ... which need no memory: as empty lists of other programs come.
  double* nothing = nullptr;
  EmbedPart given;
  given.rows = tensor(nothing, {kBatch, 0, kWidth});
  words.ids = tensor(static_cast<const Index*>(nullptr), {kBatch, 0});
  const TensorView none = tensor(nothing, {kBatch, 0, kWidth});
  EXPECT_EQ(says({words, given}, {}, none), "accepted");
  const EmbedPart both[] = {words, given};
  std::vector<double> d_table(kWords * kWidth);
  const TensorView d[] = {tensor(d_table.data(), {kWords, kWidth}), none};
  embed_gradient(both, {}, none, {d, {}, {}});
  words.ids.shape = {kBatch, kTokens};
  EXPECT_EQ(says({words}, {}, y.view()), "[embed] a part must have a table and ids, or rows");
}

}  // namespace
}  // namespace posenc
