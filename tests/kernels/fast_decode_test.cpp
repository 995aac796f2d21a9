// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine for few queries beside plain ones in double, on every instruction set.
#include "kernels/attention/fast_decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/convert.h"
#include "kernels/attention/fast_strips.h"
#include "posenc/core/isa.h"
#include "support/random.h"

namespace posenc::inline v0::detail {
namespace {

// Tokens of one type, and their numbers as doubles.
struct DecodeCache {
  DecodeCache(std::size_t type, Index channels, test::Random& random) : width(channels) {
    for (Index n = 0; n < kDecodeKeys * channels; ++n) {
      const auto x = static_cast<float>(random.normal());
      narrow.push_back(x);
      half.push_back(type == 1 ? f16_from(x) : bf16_from(x));
      wide.push_back(static_cast<double>(type == 0   ? x
                                         : type == 1 ? f32_from_f16(half.back())
                                                     : f32_from_bf16(half.back())));
    }
    for (Index j = 0; j < kDecodeKeys; ++j)
      tokens.push_back(type == 0 ? static_cast<const void*>(narrow.data() + j * channels)
                                 : half.data() + j * channels);
  }
  double at(Index j, Index c) const { return wide[static_cast<std::size_t>(j * width + c)]; }
  Index width;
  std::vector<float> narrow;
  std::vector<std::uint16_t> half;
  std::vector<double> wide;
  std::vector<const void*> tokens;
};

template <class Check>
void on_every_isa_and_type(const Check& check) {
  test::Random random(5);
  for (const Isa isa : supported_isas()) {
    SCOPED_TRACE(isa_name(isa));
    const FastDecodeKernels& k = fast_decode_kernels(isa);
    for (std::size_t type = 0; type < 3; ++type)
      for (const Index channels : {k.lanes, k.lanes + 1, 2 * k.lanes - 1, 40 * k.lanes, Index{80}})
        for (const Index rows : {1, 2, 3, 4, 7, 8})
          if (channels >= k.lanes) check(k, type, channels, rows, random);
  }
}
Index whole(Index channels, Index lanes) {
  return (channels + lanes - 1) / lanes * lanes;
}
// Where channel c of a row is: the last vector holds the last channels.
std::size_t place_of(Index c, Index channels, Index lanes) {
  const Index full = channels / lanes * lanes;
  return static_cast<std::size_t>(c < full ? c : c + whole(channels, lanes) - channels);
}

// Heads with the same tokens and rows of their own.
constexpr Index kHeads = 3;
struct DecodeHeads {
  DecodeHeads(const FastDecodeKernels& k, const DecodeCache& tokens, Index channels, Index count)
      : rows(count),
        width(whole(channels, k.lanes)),
        q(static_cast<std::size_t>(kHeads * rows * width)),
        out(q.size(), 0.5f),
        x(static_cast<std::size_t>(kHeads * rows * kDecodeKeys)),
        sums(static_cast<std::size_t>(kHeads * rows * k.lanes * k.lanes)) {
    for (Index h = 0; h < kHeads; ++h) {
      FastDecodeHead& to = head[h];
      to.k = to.v = tokens.tokens.data(), to.q = q.data() + h * rows * width;
      to.out = out.data() + h * rows * width, to.x = x.data() + h * rows * kDecodeKeys;
      to.keys = kDecodeKeys;
    }
    all.first = head, all.count = kHeads, all.rows = rows;
    all.width = width, all.channels = channels, all.sums = sums.data();
  }
  Index rows, width;
  std::vector<float> q, out, x, sums;
  FastDecodeHead head[kHeads];
  FastDecodeHeads all;
};

TEST(FastDecode, Scores) {
  on_every_isa_and_type([](const FastDecodeKernels& k, std::size_t type, Index channels, Index rows,
                           test::Random& random) {
    const DecodeCache keys(type, channels, random);
    DecodeHeads heads(k, keys, channels, rows);
    std::vector<double> plain;
    for (Index r = 0; r < kHeads * rows; ++r)
      for (Index c = 0; c < channels; ++c) {
        float& to =
            heads.q[static_cast<std::size_t>(r * heads.width) + place_of(c, channels, k.lanes)];
        to = static_cast<float>(random.normal());
        plain.push_back(static_cast<double>(to));
      }
    for (const AccessPattern access :
         {AccessPattern::sequential, AccessPattern::interleave_pages}) {
      heads.all.access = access;
      std::fill(heads.x.begin(), heads.x.end(), NAN);
      k.scores[type](heads.all);
      for (Index r = 0; r < kHeads * rows; ++r)
        for (Index j = 0; j < kDecodeKeys; ++j) {
          double want = 0, sum = 0;
          for (Index c = 0; c < channels; ++c) {
            const double y = plain[static_cast<std::size_t>(r * channels + c)] * keys.at(j, c);
            want += y, sum += std::fabs(y);
          }
          ASSERT_NEAR(static_cast<double>(heads.x[static_cast<std::size_t>(r * kDecodeKeys + j)]),
                      want, 1e-6 * sum)
              << r << " " << j << " of " << channels;
        }
    }
  });
}

// Keys that are rotated on the way, in a window of their channels.
TEST(FastDecode, ScoresOfTurnedKeys) {
  on_every_isa_and_type([](const FastDecodeKernels& k, std::size_t type, Index channels, Index rows,
                           test::Random& random) {
    if (channels % k.lanes != 0 || channels < 4 * k.lanes) return;
    const DecodeCache keys(type, channels, random);
    DecodeHeads heads(k, keys, channels, rows);
    for (float& x : heads.q) x = static_cast<float>(random.normal());
    for (const bool interleaved : {false, true})
      for (const Index pairs : {k.lanes, (channels - k.lanes) / 2 / k.lanes * k.lanes}) {
        const Index columns = (interleaved ? 2 : 1) * pairs;
        std::vector<float> turns;
        for (Index n = 0; n < 2 * kDecodeKeys * columns; ++n)
          turns.push_back(interleaved && n % 2 != 0 ? turns.back()
                                                    : static_cast<float>(random.normal()));
        heads.all.turns = {turns.data(), 2 * columns, k.lanes, pairs, interleaved};
        k.scores[type](heads.all);
        const auto turned = [&](Index j, Index c) {
          const Index at = c - k.lanes, step = interleaved ? 1 : pairs;
          if (at < 0 || at >= 2 * pairs) return keys.at(j, c);
          const bool second = interleaved ? at % 2 != 0 : at >= pairs;
          const Index first = second && !interleaved ? at - pairs : at;
          const auto row = static_cast<std::size_t>(j * 2 * columns + first);
          const double cos = turns[row], sin = turns[row + static_cast<std::size_t>(columns)];
          return second ? keys.at(j, c) * cos + keys.at(j, c - step) * sin
                        : keys.at(j, c) * cos - keys.at(j, c + step) * sin;
        };
        for (Index r = 0; r < kHeads * rows; ++r)
          for (Index j = 0; j < kDecodeKeys; ++j) {
            double want = 0, sum = 0;
            for (Index c = 0; c < channels; ++c) {
              const double y =
                  static_cast<double>(heads.q[static_cast<std::size_t>(r * heads.width + c)]) *
                  turned(j, c);
              want += y, sum += std::fabs(y);
            }
            ASSERT_NEAR(static_cast<double>(heads.x[static_cast<std::size_t>(r * kDecodeKeys + j)]),
                        want, 4e-6 * sum)
                << r << " " << j << " of " << channels << (interleaved ? " interleaved" : "");
          }
      }
  });
}

TEST(FastDecode, Values) {
  on_every_isa_and_type([](const FastDecodeKernels& k, std::size_t type, Index channels, Index rows,
                           test::Random& random) {
    const DecodeCache values(type, channels, random);
    for (const Index keys : {Index{1}, Index{7}, kDecodeKeys}) {
      DecodeHeads heads(k, values, channels, rows);
      for (float& p : heads.x) p = static_cast<float>(random.uniform());
      heads.head[0].keys = keys, heads.head[1].keys = 0;
      k.values[type](heads.all);
      for (Index r = 0; r < kHeads * rows; ++r)
        for (Index c = 0; c < channels; ++c) {
          double want = 0.5;
          for (Index j = 0; j < heads.head[r / rows].keys; ++j)
            want += static_cast<double>(heads.x[static_cast<std::size_t>(r * kDecodeKeys + j)]) *
                    values.at(j, c);
          ASSERT_NEAR(static_cast<double>(heads.out[static_cast<std::size_t>(r * heads.width) +
                                                    place_of(c, channels, k.lanes)]),
                      want, 3e-5)
              << r << " " << c << " of " << channels;
        }
    }
  });
}

// A row of scores, of which the last ones are hidden.
struct DecodeRowWorld {
  explicit DecodeRowWorld(const FastDecodeKernels& kernels) : k(kernels) {
    for (Index j = 0; j < kDecodeKeys; ++j) {
      x[j] = static_cast<float>(j) / 8;
      start[j] = j < 20 ? 0.25f : -HUGE_VALF;
    }
    row.x = x, row.start = start, row.base = 1, row.reference = &reference, row.sums = sums;
    row.keys = 21;
  }
  double sum() const {
    double s = 0;
    for (Index n = 0; n < k.lanes; ++n) s += static_cast<double>(sums[n]);
    return s;
  }
  // Of all calls so far, whose weights are relative to one reference at the end.
  double want(double more) const {
    double s = 0;
    for (Index j = 0; j < 20; ++j) s += std::exp2(static_cast<double>(j) / 8 + more - reference);
    return s;
  }
  const FastDecodeKernels& k;
  float x[kDecodeKeys], start[kDecodeKeys], sums[64] = {}, out[64] = {};
  double reference = 0;
  FastDecodeRow row;
};

TEST(FastDecode, WeightsOfARow) {
  for (const Isa isa : supported_isas()) {
    SCOPED_TRACE(isa_name(isa));
    const FastDecodeKernels& k = fast_decode_kernels(isa);
    DecodeRowWorld w(k), moved(k);
    ASSERT_TRUE(k.weights(w.row));
    EXPECT_NEAR(w.sum(), w.want(1.25), 1e-4);
    EXPECT_NEAR(static_cast<double>(w.x[8]), std::exp2(2.25), 1e-5);
    for (Index j = 20; j < kDecodeKeys; ++j) EXPECT_EQ(w.x[j], 0) << j;

    moved.out[0] = 3;
    ASSERT_TRUE(k.rescale(moved.row, moved.out, 1));
    EXPECT_EQ(moved.reference, 4);  // the whole number above 19 / 8 + 1.25
    EXPECT_NEAR(moved.sum(), moved.want(1.25), 1e-6);
    const double before = moved.want(1.25);
    moved.out[0] = 3;
    for (Index j = 0; j < kDecodeKeys; ++j) moved.x[j] = static_cast<float>(j) / 8;
    moved.row.base = 11;
    ASSERT_TRUE(k.rescale(moved.row, moved.out, 1));
    EXPECT_EQ(moved.reference, 14);
    EXPECT_EQ(moved.out[0], 3 * 0x1p-10f);
    EXPECT_NEAR(moved.sum(), moved.want(11.25) + before * 0x1p-10, 1e-6);
  }
}

TEST(FastDecode, ScoresThatFloatCannotWorkWith) {
  for (const Isa isa : supported_isas()) {
    SCOPED_TRACE(isa_name(isa));
    const FastDecodeKernels& k = fast_decode_kernels(isa);
    for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF, 0x1p23f, -0x1p23f, 60.0f})
      for (const Index at : {0, 7, 19, 20}) {
        DecodeRowWorld w(k);
        w.x[at] = bad;
        // Too large an exponent alone moves the reference; a hidden score may be anything.
        const bool hidden = at == 20;
        EXPECT_EQ(k.weights(w.row), hidden && std::fabs(bad) < 100) << bad << " " << at;
        if (!(hidden && std::fabs(bad) < 100)) {
          EXPECT_EQ(w.sum(), 0);
          EXPECT_EQ(k.rescale(w.row, w.out, 1), hidden || bad == 60) << bad << " " << at;
        }
      }
  }
}

}  // namespace
}  // namespace posenc::v0::detail
