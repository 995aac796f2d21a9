// SPDX-License-Identifier: Apache-2.0
// What holds for every rotary definition of the registry, run through a plan in double, with gain 1
// and with gain 1.1386 (YaRN times four).
#include <gtest/gtest.h>

#include <cmath>

#include "laws/samples.h"
#include "posenc/rotary/plan.h"
#include "rotary_definitions/reference.h"
#include "support/random.h"

namespace posenc {
namespace {

using test::for_samples;
using test::Random;

constexpr Index kTokens = 5, kHeads = 2;
constexpr double kGain = 1.138629436111989;
constexpr double kClose = 4e-14;  // values of a few units in double
const Index kFar[] = {0, 1, -3, 1000, 131071};

struct Sample {
  RotarySpec spec;
  RotaryPlan plan;
  bool decays;
  std::string name;
};

// Every sample with gain 1 and with the other.
const std::vector<Sample>& specs() {
  static const std::vector<Sample> all = [] {
    std::vector<Sample> list;
    for_samples(RotarySchemes{}, [&](const auto& scheme) {
      using T = std::decay_t<decltype(scheme)>;
      if constexpr (RotaryScheme<T>)
        for (const double gain : {1.0, kGain}) {
          const std::size_t pairs = static_cast<std::size_t>(scheme.spectrum().pairs());
          const Encoding e{scheme, {Scaling{Divisors{std::vector<double>(pairs, 1.0), gain}}}};
          const RotarySpec spec = resolve(e);
          list.push_back(
              {spec, RotaryPlan(spec, DType::f64), !spec.blocks[0].log2_decay.empty(), to_text(e)});
        }
    });
    return list;
  }();
  return all;
}

template <class F>
void for_specs(F&& f) {
  EXPECT_GT(specs().size(), 50u);
  for (const Sample& s : specs()) {
    SCOPED_TRACE(s.name);
    f(s);
  }
}

// Integer positions [axes][tokens], the same walk in every axis but shifted.
struct Walk {
  std::vector<Index> value;
  Index axes;
  Positions view() const {
    return positions(tensor(value.data(), {axes, 1, static_cast<Index>(value.size()) / axes}));
  }
  std::vector<double> of(Index t) const {
    std::vector<double> v;
    const Index tokens = static_cast<Index>(value.size()) / axes;
    for (Index a = 0; a < axes; ++a)
      v.push_back(static_cast<double>(value[static_cast<std::size_t>(a * tokens + t)]));
    return v;
  }
};
Walk walk(Index axes, Index plus = 0, Index times = 1) {
  Walk w{{}, axes};
  for (Index a = 0; a < axes; ++a)
    for (const Index p : kFar) w.value.push_back(times * (p + 7 * a) + plus * (a + 1));
  return w;
}
Walk zeros(Index axes) {
  return {std::vector<Index>(static_cast<std::size_t>(axes * kTokens), 0), axes};
}

std::vector<double> data(const Sample& s, std::uint64_t seed) {
  return Random(seed).normals(static_cast<std::size_t>(kTokens * kHeads * s.spec.head_dim));
}
std::vector<double> turn(const Sample& s, std::vector<double> x, const Walk& w,
                         RotateMode sense = RotateMode::forward, bool key = false) {
  const Heads h = heads(x.data(), kTokens, kHeads, s.spec.head_dim);
  const QK qk = key ? QK{{}, h} : QK{h, {}};
  s.plan.apply(qk, w.view(), sense);
  return x;
}
double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
std::vector<bool> turned_channels(const RotarySpec& spec) {
  std::vector<bool> in(static_cast<std::size_t>(spec.head_dim), false);
  for (const RotaryBlock& b : spec.blocks)
    for (Index c = 0; c < b.width(); ++c) in[static_cast<std::size_t>(b.offset + c)] = true;
  return in;
}
void expect_close(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "element " << i;
}

TEST(RotaryLaws, PlanAgreesWithTheDefinitionInWords) {
  for_specs([](const Sample& s) {
    // Near positions: the reference's angles are doubles.
    const Walk w{std::vector<Index>(static_cast<std::size_t>(s.spec.axes() * kTokens), 0),
                 s.spec.axes()};
    Walk near = w;
    for (std::size_t i = 0; i < near.value.size(); ++i)
      near.value[i] = static_cast<Index>(i * 5 % 23) - 4;
    const std::vector<double> x = data(s, 1);
    for (const bool key : {false, true}) {
      const std::vector<double> y = turn(s, x, near, RotateMode::forward, key);
      for (Index t = 0; t < kTokens; ++t)
        for (Index h = 0; h < kHeads; ++h) {
          const auto at = (t * kHeads + h) * s.spec.head_dim;
          const std::vector<double> one(x.begin() + at, x.begin() + at + s.spec.head_dim);
          const std::vector<double> want = test::reference_rotate(
              s.spec, one, near.of(t), h, key ? test::Role::key : test::Role::query);
          expect_close({y.begin() + at, y.begin() + at + s.spec.head_dim}, want, 1e-12);
        }
    }
  });
}

TEST(RotaryLaws, ZeroTurnsNothing) {
  for_specs([](const Sample& s) {
    if (s.decays) return;
    const std::vector<double> x = data(s, 2), y = turn(s, x, zeros(s.spec.axes()));
    const std::vector<bool> in = turned_channels(s.spec);
    // Where even and odd part, the turn by 0 is the order alone.
    if (s.spec.blocks[0].output_order == OutputOrder::even_then_odd) {
      double before = 0, after = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double g = in[i % in.size()] ? s.spec.blocks[0].spectrum.gain : 1;
        before += g * x[i];
        after += y[i];
      }
      EXPECT_NEAR(before, after, 1e-12);
      return;
    }
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(y[i], in[i % in.size()] ? s.spec.blocks[0].spectrum.gain * x[i] : x[i], 1e-15);
  });
}

TEST(RotaryLaws, ChannelsOutsideTheBlocksAreCopiedToTheBit) {
  for_specs([](const Sample& s) {
    const std::vector<bool> in = turned_channels(s.spec);
    for (const RotateMode sense :
         {RotateMode::forward, RotateMode::gradient, RotateMode::inverse}) {
      const std::vector<double> x = data(s, 3), y = turn(s, x, walk(s.spec.axes()), sense);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (!in[i % in.size()]) {
          ASSERT_EQ(x[i], y[i]);
        }
    }
  });
}

TEST(RotaryLaws, NormOfEveryVector) {
  for_specs([](const Sample& s) {
    if (s.decays) return;
    const std::vector<bool> in = turned_channels(s.spec);
    const double g = s.spec.blocks[0].spectrum.gain;
    const std::vector<double> x = data(s, 4), y = turn(s, x, walk(s.spec.axes()));
    for (std::size_t v = 0; v < x.size(); v += in.size()) {
      double want = 0, got = 0;
      for (std::size_t c = 0; c < in.size(); ++c) {
        want += x[v + c] * x[v + c] * (in[c] ? g * g : 1);
        got += y[v + c] * y[v + c];
      }
      ASSERT_NEAR(want, got, kClose * want);
    }
  });
}

TEST(RotaryLaws, ShiftAddsToThePosition) {
  for_specs([](const Sample& s) {
    // even_then_odd leaves another order than it takes: a shift of what it left is another plan.
    if (s.spec.blocks[0].output_order == OutputOrder::even_then_odd) return;
    const Index axes = s.spec.axes();
    const Walk p = walk(axes), by = walk(axes, 11, 2);
    Walk sum = p;
    for (std::size_t i = 0; i < sum.value.size(); ++i) sum.value[i] += by.value[i];
    if (s.decays) return;
    const std::vector<double> x = data(s, 5);
    for (const bool key : {false, true})
      expect_close(turn(s, turn(s, x, p, RotateMode::forward, key), by, RotateMode::shift, key),
                   turn(s, x, sum, RotateMode::forward, key), 20 * kClose);
  });
}

TEST(RotaryLaws, InverseUndoes) {
  for_specs([](const Sample& s) {
    const Walk p = walk(s.spec.axes(), 3, s.decays ? 0 : 1);
    const std::vector<double> x = data(s, 6);
    for (const bool key : {false, true})
      expect_close(turn(s, turn(s, x, p, RotateMode::forward, key), p, RotateMode::inverse, key), x,
                   kClose);
  });
}

TEST(RotaryLaws, GradientIsTheTranspose) {
  for_specs([](const Sample& s) {
    const Walk p = walk(s.spec.axes(), 3, s.decays ? 0 : 1);
    const std::vector<double> x = data(s, 7), y = data(s, 8);
    for (const bool key : {false, true}) {
      const double a = dot(turn(s, x, p, RotateMode::forward, key), y);
      const double b = dot(x, turn(s, y, p, RotateMode::gradient, key));
      EXPECT_NEAR(a, b, 1e-12 * static_cast<double>(x.size()));
    }
  });
}

TEST(RotaryLaws, ScoresGoByTheDifference) {
  for_specs([](const Sample& s) {
    const Index axes = s.spec.axes();
    // One distance for all tokens; xPos near its centre.
    const Index spread = s.decays ? 0 : 1;
    const Walk q = walk(axes, 9, spread), k = walk(axes, 4, spread);
    Walk q2 = q, k2 = k;
    for (std::size_t i = 0; i < q.value.size(); ++i) q2.value[i] += 77, k2.value[i] += 77;
    const std::vector<double> x = data(s, 9), y = data(s, 10);
    const std::vector<double> a = turn(s, x, q), b = turn(s, y, k, RotateMode::forward, true);
    const std::vector<double> c = turn(s, x, q2), d = turn(s, y, k2, RotateMode::forward, true);
    EXPECT_NEAR(dot(a, b), dot(c, d), 1e-11);
  });
}

// Interleaved is half-split seen through the permutation i -> 2i, i + n -> 2i + 1.
TEST(RotaryLaws, PairingsArePermutationsOfEachOther) {
  for (const Index direction : {1, -1})
    for (const double gain : {1.0, kGain})
      for (const RotateMode sense :
           {RotateMode::forward, RotateMode::gradient, RotateMode::inverse, RotateMode::shift}) {
        Rope half;
        half.head_dim = 12;
        half.rotary_dim = 8;
        half.offset = 2;
        half.direction = direction;
        half.pairing = Pairing::half_split;
        Rope inter = half, split = half;
        inter.pairing = split.pairing = Pairing::interleaved;
        split.output_order = OutputOrder::even_then_odd;
        const std::vector<Divisors> chain{{std::vector<double>(4, 1.0), gain}};
        const auto sample = [&](const Rope& r) {
          const RotarySpec spec = resolve(r, chain);
          return Sample{spec, RotaryPlan(spec, DType::f64), false, ""};
        };
        const Sample h = sample(half), i = sample(inter), o = sample(split);
        const auto permute = [](std::vector<double> x, bool to_half) {
          const std::vector<double> in = x;
          for (std::size_t v = 0; v < x.size(); v += 12)
            for (std::size_t k = 0; k < 4; ++k)
              for (std::size_t m = 0; m < 2; ++m) {
                const std::size_t a = v + 2 + k + 4 * m, b = v + 2 + 2 * k + m;
                to_half ? x[a] = in[b] : x[b] = in[a];
              }
          return x;
        };
        const std::vector<double> x = data(h, 11);
        const Walk p = walk(1);
        const std::vector<double> want = turn(h, x, p, sense);
        expect_close(permute(turn(i, permute(x, false), p, sense), true), want, kClose);
        // even_then_odd takes interleaved and leaves half-split; backwards the other way round.
        if (sense == RotateMode::forward)
          expect_close(turn(o, permute(x, false), p, sense), want, kClose);
        if (sense == RotateMode::gradient || sense == RotateMode::inverse)
          expect_close(permute(turn(o, x, p, sense), true), want, kClose);
      }
}

TEST(RotaryLaws, ParseOfTextIsTheSame) {
  for_samples(RotarySchemes{}, [&](const auto& x) {
    const Encoding e{x, {}};
    EXPECT_EQ(parse_encoding(to_text(e)), e) << to_text(e);
  });
}

}  // namespace
}  // namespace posenc
