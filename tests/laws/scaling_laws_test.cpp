// SPDX-License-Identifier: Apache-2.0
// What holds for every scaling of the registry.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "laws/samples.h"

namespace posenc {
namespace {

using test::for_samples;
using test::kWidth;
using test::scaling_samples;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// As long as a spectrum says so, its frequencies are base^(-2i/width).
void expect_geometric(const Spectrum& s) {
  if (!s.geometric) return;
  const Spectrum fresh = geometric_spectrum(s.geometric->base, s.geometric->width, s.pairs());
  EXPECT_EQ(s.frequency, fresh.frequency);
}

// As long as a spectrum says so, ggml computes the same frequencies and gain from these arguments
// (rope_yarn and ggml_rope_cache_init of ggml-cpu/ops.cpp, written down in double).
void expect_ggml(const Spectrum& s) {
  if (!s.ggml) return;
  const GgmlForm& g = *s.ggml;
  double gain = g.attn_factor;
  const auto dim = [&](double beta) {
    return static_cast<double>(g.n_dims) *
           std::log(static_cast<double>(g.original_context) / (beta * 2 * std::numbers::pi)) /
           (2 * std::log(g.base));
  };
  double low = 0, high = 0;
  if (g.ext_factor != 0) {
    low = std::max(0.0, std::floor(dim(g.beta_fast)));
    high = std::min(static_cast<double>(g.n_dims) - 1, std::ceil(dim(g.beta_slow)));
    gain *= 1 + 0.1 * std::log(1 / g.freq_scale);
  }
  EXPECT_NEAR(gain, s.gain, 1e-14 * std::abs(s.gain));
  for (Index i = 0; i < s.pairs(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    const double factor = g.factors.empty() ? 1.0 : g.factors.at(k);
    const double plain =
        std::pow(g.base, -2.0 * static_cast<double>(i) / static_cast<double>(g.n_dims)) / factor;
    double theta = g.freq_scale * plain;
    if (g.ext_factor != 0) {
      const double y = (static_cast<double>(i) - low) / std::max(0.001, high - low);
      const double mix = (1 - std::min(1.0, std::max(0.0, y))) * g.ext_factor;
      theta = theta * (1 - mix) + plain * mix;
    }
    EXPECT_NEAR(theta, s.frequency[k], 1e-13 * std::abs(s.frequency[k]) + 1e-28) << "pair " << i;
  }
}

void expect_whole(const Spectrum& s, const Spectrum& before) {
  EXPECT_NO_THROW(check_spectrum(s));
  EXPECT_EQ(s.pairs(), before.pairs());
  EXPECT_EQ(s.heads, before.heads);
  EXPECT_EQ(s.axes, before.axes);
  EXPECT_GT(s.gain, 0);
  EXPECT_GT(s.logit_factor, 0);
  expect_geometric(s);
  expect_ggml(s);
}

TEST(ScalingLaws, SizesFinitenessAndTheThreeFormsOfASpectrum) {
  int seen = 0;
  for (const Scaling& x : scaling_samples()) {
    SCOPED_TRACE(to_text(x));
    for (const double base : {10000.0, 500000.0, 3.0})
      for (const Index length : {1, 64, 65, 100, 4096}) {
        const Spectrum plain = geometric_spectrum(base, kWidth);
        const Spectrum s = x.rescale(plain, Context{length});
        expect_whole(s, plain);
        EXPECT_EQ(s, x.rescale(plain, Context{length}));
        EXPECT_LE(s.valid_from, length);
        EXPECT_GE(s.valid_to, length);
        ++seen;
      }
  }
  EXPECT_GE(seen, 15 * 45);
}

// Every scaling behind every other either refuses by its name or leaves a true spectrum.
TEST(ScalingLaws, Chains) {
  int refused = 0, fine = 0;
  const Spectrum plain = geometric_spectrum(10000, kWidth);
  const std::vector<Scaling> all = scaling_samples();
  for (const Scaling& first : all) {
    const Spectrum once = first.rescale(plain, Context{100});
    for (const Scaling& second : all) {
      SCOPED_TRACE(to_text(first) + " + " + to_text(second));
      try {
        const Spectrum twice = second.rescale(once, Context{100});
        expect_whole(twice, once);
        ++fine;
      } catch (const std::invalid_argument& e) {
        const std::string start = "[" + std::string(second.card().name) + "] needs frequencies";
        EXPECT_EQ(std::string(e.what()).substr(0, start.size()), start);
        EXPECT_FALSE(once.geometric);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(fine, 500);
}

TEST(ScalingLaws, FactorOneIsNothing) {
  std::vector<Scaling> ones;
  for_samples(Scalings{}, [&](const auto& x) {
    using T = std::decay_t<decltype(x)>;
    if constexpr (std::is_same_v<T, Linear> || std::is_same_v<T, Ntk> ||
                  std::is_same_v<T, NtkByParts> || std::is_same_v<T, Llama3> ||
                  std::is_same_v<T, Proportional> || std::is_same_v<T, Yarn> ||
                  std::is_same_v<T, MscaleLogit>) {
      T one = x;
      one.factor = 1;
      if constexpr (std::is_same_v<T, Proportional>) one.fraction = 1;
      if constexpr (std::is_same_v<T, Yarn>) {
        one.attention_factor.reset();
        one.attn_factor = 1;
      }
      ones.push_back(Scaling{one});
    }
  });
  const std::vector<double> list(kWidth / 2, 1.0), zeros(kWidth / 2, 0.0);
  ones.push_back(Scaling{Divisors{list, 1}});
  ones.push_back(Scaling{LearnedStretch{zeros}});
  ones.push_back(Scaling{RaisedBase{10000}});
  EXPECT_GT(ones.size(), 24u);
  const Spectrum plain = geometric_spectrum(10000, kWidth);
  for (const Scaling& one : ones) {
    SCOPED_TRACE(to_text(one));
    const Spectrum s = one.rescale(plain, Context{100});
    EXPECT_EQ(s.frequency, plain.frequency);
    EXPECT_EQ(s.gain, 1);
    EXPECT_EQ(s.logit_factor, 1);
    EXPECT_EQ(s.geometric, plain.geometric);
  }
}

// What a rule of length says for one length holds for the whole range that it states, no further.
TEST(ScalingLaws, RangeOfLengths) {
  const Spectrum plain = geometric_spectrum(10000, kWidth);
  int ranges = 0;
  for (const Scaling& x : scaling_samples()) {
    SCOPED_TRACE(to_text(x));
    for (const Index length : {1, 64, 65, 100, 128, 129, 1000}) {
      const Spectrum s = x.rescale(plain, Context{length});
      if (s.valid_from == 0 && s.valid_to == kUnbounded) continue;
      ++ranges;
      for (const Index other : {Index{1}, Index{64}, Index{65}, Index{100}, Index{101}, Index{128},
                                Index{200}, Index{4096}, s.valid_from, s.valid_to})
        if (other >= 1 && other >= s.valid_from && other <= s.valid_to) {
          EXPECT_EQ(x.rescale(plain, Context{other}), s) << length << " against " << other;
        }
      if (s.valid_to != kUnbounded) {
        EXPECT_NE(x.rescale(plain, Context{s.valid_to + 1}), s) << length;
      }
    }
  }
  EXPECT_GT(ranges, 40);
}

TEST(ScalingLaws, UnknownLengthIsRefusedWhereItCounts) {
  const Spectrum plain = geometric_spectrum(10000, kWidth);
  int refused = 0;
  for (const Scaling& x : scaling_samples()) {
    SCOPED_TRACE(to_text(x));
    if (x.rescale(plain, Context{1}) == x.rescale(plain, Context{100000})) {
      EXPECT_NO_THROW(x.rescale(plain, {}));
      continue;
    }
    ++refused;
    for (const Index unknown : {0, -1}) {
      try {
        x.rescale(plain, Context{unknown});
        ADD_FAILURE() << "length " << unknown;
      } catch (const std::invalid_argument& e) {
        const std::string start = "[" + std::string(x.card().name) + "] ";
        EXPECT_EQ(std::string(e.what()).substr(0, start.size()), start);
      }
    }
  }
  EXPECT_GE(refused, 8);
}

// Puts `bad` into the n-th number of a described value; false when there is none.
struct Spoil {
  int left;
  double bad;
  bool done = false;
  std::string name;
  double min = 0;
  void take(std::string_view field, const Field& about, double& x) {
    if (left-- != 0) return;
    name = field;
    min = about.min;
    done = true;
    x = bad;
  }
  void operator()(std::string_view n, double& x, const Field& f) { take(n, f, x); }
  void operator()(std::string_view n, std::optional<double>& x, const Field& f) {
    if (x) take(n, f, *x);
  }
  void operator()(std::string_view n, std::vector<double>& x, const Field& f) {
    if (!x.empty()) take(n, f, x[x.size() / 2]);
  }
  void operator()(std::string_view, auto&, const Field&) {}
};

// Every spoiled copy of every sample: scaling, name of the spoiled field, bad value.
struct Spoiled {
  Scaling scaling;
  std::string field;
  double bad;
};
std::vector<Spoiled> spoiled_samples() {
  std::vector<Spoiled> all;
  for_samples(Scalings{}, [&](const auto& x) {
    for (const double bad : {kNaN, kInfinity, -kInfinity, -1.0, 0.0})
      for (int n = 0;; ++n) {
        auto y = x;
        Spoil spoil{n, bad, false, {}, 0};
        y.describe(y, spoil);
        if (!spoil.done) break;
        if (std::isfinite(bad) && bad >= spoil.min) continue;  // allowed here
        all.push_back({Scaling{y}, spoil.name, bad});
      }
  });
  return all;
}

TEST(ScalingLaws, NumbersOutOfRangeAreRefusedByName) {
  const Spectrum plain = geometric_spectrum(10000, kWidth);
  const std::vector<Spoiled> all = spoiled_samples();
  EXPECT_GT(all.size(), 400u);
  for (const Spoiled& s : all) {
    SCOPED_TRACE(std::string(s.scaling.card().name) + " " + s.field + " " + number_text(s.bad));
    try {
      s.scaling.rescale(plain, Context{100});
      // A value that another replaces: f of the gain behind attention_factor or the mscales.
      EXPECT_TRUE(s.scaling.card().name == "longrope" &&
                  (s.field == "factor" || s.field == "short_mscale"));
    } catch (const std::invalid_argument& e) {
      const std::string start = "[" + std::string(s.scaling.card().name) + "] ";
      EXPECT_EQ(std::string(e.what()).substr(0, start.size()), start);
      EXPECT_NE(std::string(e.what()).find(s.field), std::string::npos) << e.what();
    }
  }
}

TEST(ScalingLaws, ListsOfAnotherLengthAreRefused) {
  const Spectrum shorter = geometric_spectrum(10000, kWidth - 2);
  int seen = 0;
  for (const Scaling& x : scaling_samples())
    if (to_text(x).find('[') != std::string::npos) {
      EXPECT_THROW(x.rescale(shorter, Context{100}), std::invalid_argument) << to_text(x);
      ++seen;
    }
  EXPECT_GE(seen, 10);
}

TEST(ScalingLaws, ParseOfTextIsTheSame) {
  Rope rope;
  rope.head_dim = kWidth;
  rope.pairing = Pairing::half_split;
  for (const Scaling& x : scaling_samples()) {
    const Encoding e{rope, {x}};
    EXPECT_EQ(parse_encoding(to_text(e)), e) << to_text(e);
  }
}

}  // namespace
}  // namespace posenc
