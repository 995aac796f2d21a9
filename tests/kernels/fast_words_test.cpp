// SPDX-License-Identifier: Apache-2.0
// Loops over pairs of bfloat16 beside plain ones in double: those of the machine, and plain ones that stand for them.
#include "kernels/attention/fast_words.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/convert.h"
#include "support/plain_words.h"
#include "support/random.h"

namespace posenc::inline v0::detail {
namespace {

template <class Check>
void on_all_word_kernels(const Check& check) {
  const Isa best = supported_isas().back();
  for (const WordKernels* k : {test::plain_words_of_vectors(), test::plain_words_of_tiles(),
                               usable_words(best, false), usable_words(best, true)})
    if (k != nullptr) {
      SCOPED_TRACE(k->products);
      k->begin();
      check(*k);
      k->end();
    }
}
float low_of(std::uint32_t word) {
  return f32_from_bf16(static_cast<std::uint16_t>(word));
}
float high_of(std::uint32_t word) {
  return f32_from_bf16(static_cast<std::uint16_t>(word >> 16));
}
Index whole(Index n, Index unit) {
  return (n + unit - 1) / unit * unit;
}
std::size_t at(Index n) {
  return static_cast<std::size_t>(n);
}

// Rows of normal numbers in bf16.
struct WordRows {
  WordRows(test::Random& random, Index count, Index channels, double size = 1) : dim(channels) {
    for (Index n = 0; n < count * channels; ++n) x.push_back(bf16_from(size * random.normal()));
  }
  const void* row(Index n) const { return x.data() + n * dim; }
  float number(Index n, Index c) const { return f32_from_bf16(x[at(n * dim + c)]); }
  Index dim;
  std::vector<std::uint16_t> x;
};

TEST(FastWords, PacksWhatItReads) {
  test::Random random(3);
  on_all_word_kernels([&](const WordKernels& k) {
    const Index panel = 2 * k.lanes, pairs = k.block_keys / 2;
    for (const Index channels : {1, 2, 3, 7, 16, 33, 40, 130, 300})
      for (const Index keys : {Index{1}, Index{3}, k.lanes, k.block_keys - 1, k.block_keys}) {
        const WordRows x(random, keys, channels);
        const Index words = whole((channels + 1) / 2, k.whole_words);
        std::vector<const void*> rows;
        for (Index j = 0; j < keys; ++j) rows.push_back(x.row(j));
        rows[0] = nullptr;  // a hidden key is 0
        const auto number = [&](Index j, Index c) {
          return j == 0 || j >= keys || c >= channels ? 0.0f : x.number(j, c);
        };
        const Index panels = (channels + panel - 1) / panel;
        std::vector<std::uint32_t> packed(at(k.block_keys * words), 7u),
            values(at(panels * panel * pairs), 7u), taken(at(words), 7u);
        ASSERT_TRUE(k.pack_keys(packed.data(), rows.data(), keys, channels, words));
        ASSERT_TRUE(k.pack_values(values.data(), rows.data(), keys, channels));
        ASSERT_TRUE(k.take_row(taken.data(), x.row(keys - 1), channels, words));
        for (Index j = 0; j < whole(keys, panel); ++j)
          for (Index w = 0; w < words; ++w) {
            const std::uint32_t word = packed[at((j / panel * words + w) * panel + j % panel)];
            ASSERT_EQ(low_of(word), number(j, 2 * w)) << j << " " << w;
            ASSERT_EQ(high_of(word), number(j, 2 * w + 1)) << j << " " << w;
          }
        for (Index j = 0; j < whole(keys, k.whole_keys); j += 2)
          for (Index c = 0; c < panels * panel; ++c) {
            const std::uint32_t word = values[at((c / panel * pairs + j / 2) * panel + c % panel)];
            ASSERT_EQ(low_of(word), number(j, c)) << j << " " << c;
            ASSERT_EQ(high_of(word), number(j + 1, c)) << j << " " << c;
          }
        for (Index w = 0; w < words; ++w) {
          const auto last = [&](Index c) { return c < channels ? x.number(keys - 1, c) : 0.0f; };
          ASSERT_EQ(low_of(taken[at(w)]), last(2 * w));
          ASSERT_EQ(high_of(taken[at(w)]), last(2 * w + 1));
        }
      }
  });
}

TEST(FastWords, NumbersThatProductsCannotWorkWithAreNamed) {
  on_all_word_kernels([&](const WordKernels& k) {
    const Index words = whole(32, k.whole_words);
    for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan(""), 0x1p59, -0x1p60})
      for (const Index channels : {37, 64})
        for (std::size_t n = 0; n < at(channels); ++n) {
          std::vector<std::uint16_t> good(at(channels), bf16_from(1.0)), wrong = good;
          wrong[n] = bf16_from(bad);
          std::vector<std::uint32_t> to(at(k.block_keys) * 128);
          const void *row = wrong.data(), *other = good.data(), *rows[] = {other, row};
          EXPECT_FALSE(k.pack_keys(to.data(), rows, 2, channels, words));
          EXPECT_FALSE(k.pack_values(to.data(), rows, 2, channels));
          EXPECT_FALSE(k.pack_values(to.data(), rows + 1, 1, channels));
          EXPECT_FALSE(k.take_row(to.data(), row, channels, words));
          EXPECT_TRUE(k.take_row(to.data(), other, channels, words));
          EXPECT_TRUE(k.pack_keys(to.data(), rows, 1, channels, words));
        }
  });
}

struct WordWorld {
  WordWorld(const WordKernels& kernels, std::size_t kind_, Index keys_, Index channels_,
            std::uint64_t seed, double size = 1)
      : k(kernels),
        kind(kind_),
        rows(kind_ == 0 ? kernels.rows : kernels.few_rows),
        keys(keys_),
        channels(channels_),
        random(seed),
        q(random, rows, channels, size),
        key(random, keys, channels),
        value(random, keys, channels) {
    const Index panel = 2 * k.lanes, panels = (channels + panel - 1) / panel;
    words = whole((channels + 1) / 2, k.whole_words);
    packed_q.resize(at(rows * words)), packed_keys.resize(at(k.block_keys * words));
    packed_values.resize(at(panels * panel * k.block_keys / 2), 0x7fc07fc0u);
    for (Index r = 0; r < rows; ++r) {
      k.take_row(packed_q.data() + r * words, q.row(r), channels, words);
      factors.push_back(static_cast<float>(0.3 + 0.01 * static_cast<double>(r)));
    }
    std::vector<const void*> from;
    for (Index j = 0; j < keys; ++j) from.push_back(key.row(j));
    k.pack_keys(packed_keys.data(), from.data(), keys, channels, words);
    for (Index j = 0; j < keys; ++j) from[at(j)] = value.row(j);
    k.pack_values(packed_values.data(), from.data(), keys, channels);
    out.assign(at(panels * panel * rows), 0.0f), sums.assign(at(rows * k.lanes), 0.0f);
    rounded_sums = sums;
    scores.assign(at(rows * k.block_keys), std::nanf(""));
    weights.assign(at(rows * k.block_keys / 2), 0x7fc07fc0u);
    reference.assign(at(rows), 0.0), base = reference;
    for (Index n = 0; n < rows * k.block_keys; ++n)
      start.push_back(n % k.block_keys < keys && random.uniform() < 0.9
                          ? static_cast<float>(random.normal())
                          : -HUGE_VALF);
    for (Index r = 0; r < rows; ++r) begins.push_back(start.data() + r * k.block_keys);
    block = {packed_keys.data(), packed_values.data(), words, (channels + k.lanes - 1) / k.lanes};
  }
  // Keys behind these are packed, and no row sees them.
  void see(Index fewer) {
    for (Index r = 0; r < rows; ++r)
      for (Index j = fewer; j < keys; ++j) start[at(r * k.block_keys + j)] = -HUGE_VALF;
    keys = fewer;
  }
  WordStrip strip(bool given) {
    shift.clear();
    for (std::size_t r = 0; r < base.size(); ++r)
      shift.push_back(static_cast<float>(base[r] - reference[r]));
    WordStrip s;
    s.rows.out = out.data(), s.rows.sums = sums.data(), s.rows.reference = reference.data();
    s.rows.start = given ? begins.data() : nullptr, s.rows.base = base.data();
    s.rows.shift = shift.data(), s.rows.weights = scores.data(), s.rows.keys = keys;
    s.q = packed_q.data(), s.factors = factors.data(), s.weights = weights.data();
    s.rounded = rounded_sums.data();
    return s;
  }
  // Sums as in float; the result within the rounding of weights, `times` added. tolerance: of float.
  void check(bool given, double times = 1, double tolerance = 3e-6) const {
    const Index panel = 2 * k.lanes;
    for (Index r = 0; r < rows; ++r) {
      double total = 0, sum = 0, rounded = 0;
      std::vector<double> want(at(channels)), size(want);
      for (Index j = 0; j < keys; ++j) {
        double x = 0;
        for (Index c = 0; c < channels; ++c)
          x += static_cast<double>(q.number(r, c)) * static_cast<double>(key.number(j, c));
        x = x * static_cast<double>(factors[at(r)]) + base[at(r)] - reference[at(r)] +
            (given ? static_cast<double>(start[at(r * k.block_keys + j)]) : 0);
        const double p = times * std::exp2(x);
        total += p;
        for (Index c = 0; c < channels; ++c) {
          const double v = static_cast<double>(value.number(j, c));
          want[at(c)] += p * v, size[at(c)] += p * std::fabs(v);
        }
      }
      for (Index n = 0; n < k.lanes; ++n) {
        sum += static_cast<double>(sums[at(r * k.lanes + n)]);
        rounded += static_cast<double>(rounded_sums[at(r * k.lanes + n)]);
      }
      ASSERT_NEAR(sum, total, tolerance * total) << r;
      ASSERT_NEAR(rounded, total, (0x1p-8 + tolerance) * total) << r;
      for (Index c = 0; c < channels; ++c)
        ASSERT_NEAR(static_cast<double>(out[at((c / panel * rows + r) * panel + c % panel)]),
                    want[at(c)], (0x1p-8 + tolerance) * size[at(c)])
            << r << " " << c;
    }
  }
  const WordKernels& k;
  std::size_t kind;
  Index rows, keys, channels, words;
  test::Random random;
  WordRows q, key, value;
  std::vector<std::uint32_t> packed_q, packed_keys, packed_values, weights;
  std::vector<float> factors, out, sums, rounded_sums, scores, start, shift;
  std::vector<double> reference, base;
  std::vector<const float*> begins;
  WordBlock block;
};

TEST(FastWords, OneStrip) {
  on_all_word_kernels([](const WordKernels& k) {
    for (const std::size_t kind : {0u, 1u})
      for (const Index keys : {Index{1}, Index{2}, k.lanes - 1, k.lanes, k.lanes + 1, 2 * k.lanes,
                               2 * k.lanes + 1, 3 * k.lanes, k.block_keys - 3, k.block_keys})
        for (const Index channels : {1, 2, 5, 16, 33, 40}) {
          const auto seed = static_cast<std::uint64_t>(channels);
          for (const bool given : {true, false}) {
            // Without start values nothing hides what stands behind the last key of a vector.
            if (!given && keys % k.lanes != 0) continue;
            SCOPED_TRACE(std::to_string(keys) + " keys, " + std::to_string(channels) +
                         " channels, kind " + std::to_string(kind));
            WordWorld w(k, kind, keys, channels, seed);
            WordStrip s = w.strip(given);
            s.rows.first = true;
            std::fill(w.out.begin(), w.out.end(), std::nanf(""));
            ASSERT_TRUE(k.strip[kind][given ? 1 : 0](w.block, s));
            w.check(given);
            s.rows.first = false;
            ASSERT_TRUE(k.strip[kind][given ? 1 : 0](w.block, s));
            w.check(given, 2);
            // The same relative to references that move.
            WordWorld moved(k, kind, keys, channels, seed);
            ASSERT_TRUE(k.rescale[kind][given ? 1 : 0](moved.block, moved.strip(given)));
            moved.check(given);
            for (const double m : moved.reference) ASSERT_EQ(m, std::floor(m));
          }
        }
  });
}

TEST(FastWords, StripsOfFewerKeysThanTheBlock) {
  on_all_word_kernels([](const WordKernels& k) {
    for (const std::size_t kind : {0u, 1u})
      for (const Index keys : {Index{1}, k.lanes, 3 * k.lanes, k.block_keys - 17}) {
        WordWorld w(k, kind, k.block_keys - 1, 16, 1), moved(k, kind, k.block_keys - 1, 16, 1);
        w.see(keys), moved.see(keys);
        ASSERT_TRUE(k.strip[kind][1](w.block, w.strip(true)));
        w.check(true);
        ASSERT_TRUE(k.rescale[kind][1](moved.block, moved.strip(true)));
        moved.check(true);
      }
  });
}

TEST(FastWords, TooLargeAnExponentChangesNothing) {
  on_all_word_kernels([](const WordKernels& k) {
    for (const std::size_t kind : {0u, 1u}) {
      WordWorld w(k, kind, k.block_keys, 16, 1);
      ASSERT_TRUE(k.strip[kind][0](w.block, w.strip(false)));
      const std::vector<float> out = w.out, sums = w.sums, rounded = w.rounded_sums;
      w.base[3] = 60;
      ASSERT_FALSE(k.strip[kind][0](w.block, w.strip(false)));
      EXPECT_EQ(w.out, out);
      EXPECT_EQ(w.sums, sums);
      EXPECT_EQ(w.rounded_sums, rounded);
    }
  });
}

// Scores of hundreds: the reference of a row becomes its largest one, and what it has so far is scaled.
TEST(FastWords, LargeScoresMoveReferences) {
  on_all_word_kernels([](const WordKernels& k) {
    for (const std::size_t kind : {0u, 1u}) {
      WordWorld w(k, kind, k.block_keys - 5, 24, 1, 40);
      WordStrip s = w.strip(true);
      s.rows.first = true;
      ASSERT_TRUE(k.rescale[kind][1](w.block, s));
      w.check(true, 1, 3e-5);
      // The same keys 3 higher: what was before is an eighth of it.
      const std::vector<double> before = w.reference;
      for (double& b : w.base) b += 3;
      ASSERT_TRUE(k.rescale[kind][1](w.block, w.strip(true)));
      for (std::size_t r = 0; r < before.size(); ++r) EXPECT_EQ(w.reference[r], before[r] + 3);
      w.check(true, 1.125, 3e-5);
      for (float& x : w.start) x *= 0x1p23f;
      EXPECT_FALSE(k.rescale[kind][1](w.block, w.strip(true)));
    }
  });
}

}  // namespace
}  // namespace posenc::v0::detail
