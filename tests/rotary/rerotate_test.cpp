// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/rerotate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/convert.h"
#include "phase/reference.h"
#include "posenc/io/json.h"
#include "posenc/rotary/rope.h"
#include "support/random.h"
#include "support/suite.h"

namespace posenc {
namespace {

using Verdict = Rerotation::Verdict;

RotarySpec rope(Index dim, Pairing pairing = Pairing::half_split, double base = 1e4) {
  Rope r;
  r.head_dim = dim, r.base = base, r.pairing = pairing;
  return resolve(r);
}
// Another scaling of the same pairs.
RotarySpec stretched(RotarySpec s, double factor, double gain) {
  Spectrum& p = s.blocks[0].spectrum;
  for (std::size_t i = p.frequency.size() / 2; i < p.frequency.size(); ++i)
    p.frequency[i] /= factor;
  p.gain = gain;
  p.geometric.reset();
  return s;
}

// y = R(p) x by MPFR, one head, one token; even_then_odd and offsets as RotaryBlock says.
std::vector<double> turned(const RotarySpec& spec, const std::vector<double>& x,
                           const std::vector<Index>& position) {
  std::vector<double> y = x;
  test::Angle angle;
  for (const RotaryBlock& b : spec.blocks) {
    const Index n = b.pairs();
    for (Index k = 0; k < n; ++k) {
      angle.clear();
      for (Index a = 0; a < b.spectrum.axes; ++a)
        angle.add(std::int64_t{position[static_cast<std::size_t>(a)]},
                  b.spectrum.frequency[static_cast<std::size_t>(a * n + k)]);
      angle.done();
      double g = b.spectrum.gain;
      if (!b.log2_decay.empty())
        g *= std::exp2(-b.log2_decay[static_cast<std::size_t>(k)] *
                       (static_cast<double>(position[0]) - b.decay_center) / b.decay_scale);
      const bool half = b.pairing == Pairing::half_split;
      const bool moved = half || b.output_order == OutputOrder::even_then_odd;
      const auto at = [&](Index i) { return static_cast<std::size_t>(b.offset + i); };
      const double u = x[at(half ? k : 2 * k)], v = x[at(half ? n + k : 2 * k + 1)];
      const double c = g * angle.cos(), s = g * b.direction * angle.sin();
      y[at(moved ? k : 2 * k)] = u * c - v * s;
      y[at(moved ? n + k : 2 * k + 1)] = u * s + v * c;
    }
  }
  return y;
}

// Keys turned at old positions, moved, against keys turned at the new ones.
double worst(const RotarySpec& from, const RotarySpec& to,
             const std::vector<std::vector<Index>>& old_positions,
             const std::vector<std::vector<Index>>& new_positions, DType dtype, Index count = 3) {
  const Index dim = from.head_dim, tokens = static_cast<Index>(old_positions[0].size());
  test::Random random(11);
  std::vector<double> wide;
  std::vector<double> want;
  for (Index t = 0; t < tokens; ++t)
    for (Index h = 0; h < count; ++h) {
      const auto x = random.normals(static_cast<std::size_t>(dim));
      std::vector<Index> p, q;
      for (const auto& a : old_positions) p.push_back(a[static_cast<std::size_t>(t)]);
      for (const auto& a : new_positions) q.push_back(a[static_cast<std::size_t>(t)]);
      for (const double y : turned(from, x, p)) wide.push_back(y);
      for (const double y : turned(to, x, q)) want.push_back(y);
    }
  std::vector<float> narrow(wide.begin(), wide.end());
  std::vector<std::uint16_t> half(wide.size());
  for (std::size_t i = 0; i < half.size(); ++i)
    half[i] = dtype == DType::f16 ? f16_from(wide[i]) : bf16_from(wide[i]);
  const Index shape[] = {tokens, count, dim};
  void* data = dtype == DType::f64   ? static_cast<void*>(wide.data())
               : dtype == DType::f32 ? static_cast<void*>(narrow.data())
                                     : static_cast<void*>(half.data());
  const auto flat = [&](const std::vector<std::vector<Index>>& p, std::vector<Index>& out) {
    for (const auto& a : p) out.insert(out.end(), a.begin(), a.end());
    Positions view = positions(out);
    view.axes = static_cast<std::int32_t>(p.size()), view.count = tokens, view.axis_stride = tokens;
    return view;
  };
  std::vector<Index> old_flat, new_flat;
  const Positions old_view = flat(old_positions, old_flat);
  const Positions new_view = flat(new_positions, new_flat);
  rerotate(heads(tensor(data, dtype, shape), HeadsLayout::thd), from, old_view, to, new_view);
  double e = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double got = dtype == DType::f64   ? wide[i]
                       : dtype == DType::f32 ? static_cast<double>(narrow[i])
                       : dtype == DType::f16 ? static_cast<double>(f32_from_f16(half[i]))
                                             : static_cast<double>(f32_from_bf16(half[i]));
    e = std::max(e, std::fabs(got - want[i]) / std::max(1.0, std::fabs(want[i])));
  }
  return e;
}

const std::vector<std::vector<Index>> kOld{{0, 5, 131071, 1048575, Index{1} << 37, 7, -3}};
const std::vector<std::vector<Index>> kNew{
    {3, 0, 131000, -7, (Index{1} << 37) - 1000, 7, 2147483647}};

TEST(Rerotate, MovesToOtherPositions) {
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved}) {
    const RotarySpec s = rope(32, pairing);
    EXPECT_LE(worst(s, s, kOld, kNew, DType::f64), 3e-15);
    EXPECT_LE(worst(s, s, kOld, kNew, DType::f32), 1.2e-6);
    EXPECT_LE(worst(s, s, kOld, kNew, DType::f16), 4e-3);
    EXPECT_LE(worst(s, s, kOld, kNew, DType::bf16), 3e-2);
  }
}

TEST(Rerotate, MovesToAnotherScaling) {
  const RotarySpec a = stretched(rope(32), 1, 1), b = stretched(rope(32), 8, 1.1386294361119891);
  EXPECT_LE(worst(a, b, kOld, kNew, DType::f64), 3e-15);
  EXPECT_LE(worst(b, a, kOld, kNew, DType::f64), 3e-15);
  EXPECT_LE(worst(b, b, kOld, kOld, DType::f64), 3e-15);
  EXPECT_LE(worst(b, a, kOld, kNew, DType::f32), 1.5e-6);
}

TEST(Rerotate, PartialWindowsDirectionsAndOrders) {
  RotarySpec s = rope(16);
  s.head_dim = 40, s.blocks[0].offset = 24;
  EXPECT_LE(worst(s, s, kOld, kNew, DType::f64), 3e-15);
  RotarySpec t = s;
  t.blocks[0].direction = -1;
  EXPECT_LE(worst(s, t, kOld, kNew, DType::f64), 3e-15);
  EXPECT_LE(worst(t, t, kOld, kNew, DType::f64), 3e-15);
  RotarySpec v = rope(16, Pairing::interleaved);
  v.blocks[0].output_order = OutputOrder::even_then_odd;
  EXPECT_LE(worst(v, v, kOld, kNew, DType::f64), 3e-15);
}

TEST(Rerotate, SeveralAxes) {
  RotarySpec s = rope(12);
  Spectrum& p = s.blocks[0].spectrum;
  p.axes = 2;
  p.frequency.resize(12);
  for (std::size_t i = 0; i < 6; ++i) p.frequency[6 + i] = i % 2 == 0 ? 0.3 : 0;  // mixed
  p.geometric.reset(), p.ggml.reset();
  const std::vector<std::vector<Index>> old_axes{{1, 2, 1000}, {5, 0, -8}};
  const std::vector<std::vector<Index>> new_axes{{9, -2, 70000}, {5, 1, 3}};
  EXPECT_LE(worst(s, s, old_axes, new_axes, DType::f64), 3e-15);
  EXPECT_LE(worst(rope(12), s, {old_axes[0]}, new_axes, DType::f64), 3e-15);
}

TEST(Rerotate, KeysOfXpos) {
  RotarySpec s = rope(8);
  s.blocks[0].log2_decay = {-1.8, -1.1, -0.6, -0.2};
  s.blocks[0].decay_center = 100;
  const std::vector<std::vector<Index>> a{{0, 50, 300}}, b{{10, 51, 20}};
  EXPECT_LE(worst(s, s, a, b, DType::f64), 4e-15);
}

// 32-bit and real positions, alone and mixed, move keys as 64-bit ones do; xPos decays by them too.
TEST(Rerotate, PositionsOfEveryType) {
  RotarySpec s = rope(8);
  s.blocks[0].log2_decay = {-1.8, -1.1, -0.6, -0.2};
  const std::vector<Index> from{0, 50, 300}, to{10, 51, 20};
  const std::vector<std::int32_t> from32(from.begin(), from.end()), to32(to.begin(), to.end());
  const std::vector<double> from_real(from.begin(), from.end()), to_real(to.begin(), to.end());
  const auto moved = [&](const Positions& p, const Positions& q) {
    std::vector<double> keys = test::Random(5).normals(3 * 8);
    rerotate(heads(keys.data(), 3, 1, 8), s, p, s, q);
    return keys;
  };
  const std::vector<double> want = moved(positions(from), positions(to));
  EXPECT_EQ(moved(positions(from32), positions(to32)), want);
  EXPECT_EQ(moved(positions(from32), positions(to)), want);
  for (const Positions& p : {positions(from32), positions(from_real)}) {
    const std::vector<double> got = moved(p, positions(to_real));
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-13) << i;
  }
}

TEST(Rerotate, ManyTokensAndThreads) {
  const RotarySpec a = rope(64), b = stretched(rope(64), 4, 1.2);
  std::vector<Index> p(333), q(333);
  for (std::size_t i = 0; i < p.size(); ++i)
    p[i] = static_cast<Index>(i), q[i] = static_cast<Index>(i / 2);
  EXPECT_LE(worst(a, b, {p}, {q}, DType::f32, 2), 1.5e-6);
}

TEST(Rerotate, KeysOfACompatibilityPrecision) {
  // The same precision at both ends: what the peer would have turned at the new position.
  for (const Precision precision : {Precision::hf_float32, Precision::ggml}) {
    RotarySpec s = rope(16);
    s.precision = precision;
    std::vector<double> base = test::Random(2).normals(16), keys(16), want(16);
    const auto turn = [&](Index position, std::vector<double>& y) {
      std::vector<double> c(8), d(8);
      const std::vector<Index> p{position};
      phase_rows(s.blocks[0].spectrum, positions(p), tensor(c.data(), {1, 8}),
                 tensor(d.data(), {1, 8}), TableLayout::half, precision);
      for (std::size_t k = 0; k < 8; ++k) {
        const auto cf = static_cast<double>(static_cast<float>(c[k])),
                   df = static_cast<double>(static_cast<float>(d[k]));
        y[k] = base[k] * cf - base[8 + k] * df, y[8 + k] = base[k] * df + base[8 + k] * cf;
      }
    };
    turn(1000001, keys);
    turn(131072, want);
    const std::vector<Index> p{1000001}, q{131072};
    rerotate(heads(keys.data(), 1, 1, 16), s, positions(p), s, positions(q));
    for (std::size_t i = 0; i < 16; ++i) EXPECT_NEAR(keys[i], want[i], 3e-7);
  }
}

TEST(CanRerotate, SaysWhy) {
  const RotarySpec s = rope(16);
  const auto verdict = [&](const RotarySpec& to) { return can_rerotate(s, to).verdict; };
  EXPECT_EQ(verdict(s), Verdict::kept);
  EXPECT_EQ(verdict(stretched(s, 4, 1.2)), Verdict::moved);
  EXPECT_EQ(verdict(rope(16, Pairing::interleaved)), Verdict::refused);
  EXPECT_NE(can_rerotate(s, rope(16, Pairing::interleaved)).reason.find("pairing"),
            std::string::npos);
  EXPECT_EQ(verdict(rope(32)), Verdict::refused);
  RotarySpec other = rope(16);
  other.head_dim = 20, other.blocks[0].offset = 4;
  EXPECT_EQ(verdict(other), Verdict::refused);
  RotarySpec none = s;
  none.blocks.clear();
  EXPECT_EQ(verdict(none), Verdict::refused);
  RotarySpec x = s, y = s;
  x.blocks[0].log2_decay.assign(8, -0.5), y.blocks[0].log2_decay.assign(8, -0.5);
  y.blocks[0].decay_center = 7;
  EXPECT_EQ(verdict(x), Verdict::refused);
  EXPECT_EQ(can_rerotate(x, x).verdict, Verdict::kept);
  EXPECT_EQ(can_rerotate(x, y).verdict, Verdict::refused);
  EXPECT_NE(can_rerotate(x, y).reason.find("centre"), std::string::npos);

  // LongRoPE's short factors hold up to a length: all cached keys have them. Long ones do not.
  RotarySpec below = s, above = stretched(s, 4, 1);
  below.blocks[0].spectrum.valid_to = 4096;
  above.blocks[0].spectrum.valid_from = 4097;
  EXPECT_EQ(can_rerotate(below, above).verdict, Verdict::moved);
  EXPECT_EQ(can_rerotate(above, below).verdict, Verdict::refused);
  EXPECT_NE(can_rerotate(above, below).reason.find("4097"), std::string::npos);
}

TEST(Rerotate, RefusesWithTheReason) {
  const RotarySpec s = rope(16);
  std::vector<float> k(2 * 16, 1.0f);
  const std::vector<Index> p{1, 2}, one{1};
  const auto says = [&](const RotarySpec& from, const Positions& a, const RotarySpec& to,
                        const Positions& b) -> std::string {
    try {
      rerotate(heads(k.data(), 2, 1, 16), from, a, to, b);
      return "";
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
  };
  EXPECT_EQ(says(s, positions(p), s, positions(p)), "");
  EXPECT_EQ(says(s, positions(p), rope(16, Pairing::interleaved), positions(p)).substr(0, 10),
            "[rerotate]");
  EXPECT_EQ(says(s, positions(one), s, positions(p)), "[rerotate] old positions must be 2, got 1");
  RotarySpec limited = s;
  limited.blocks[0].spectrum.valid_to = 2;
  EXPECT_EQ(says(limited, positions(p), s, positions(p)).substr(0, 45),
            "[rerotate] old positions must be below 2, the");
  const std::vector<double> bad{0, static_cast<double>(NAN)};
  EXPECT_EQ(says(s, positions(bad), s, positions(p)).substr(0, 10), "[rerotate]");
}

// llama.cpp's K-shift: `direct` is what a correct shift gives.
TEST(RerotateConformance, KShiftGivesDirect) {
  const support::Suite suite("rotary_engines");
  const Json cases =
      read_json(std::string(POSENC_SOURCE_DIR) + "/conformance/rotary_engines/cases.json")
          .at("cases");
  int count = 0;
  for (const Json& c : cases.as_array()) {
    const std::string name = c.at("name").as_string();
    if (name.rfind("ggml_kshift_", 0) != 0) continue;
    ++count;
    const Json& p = c.at("params");
    const Index n = p.at("n_dims").as_integer();
    const double base = p.at("freq_base").as_number(), scale = p.at("freq_scale").as_number();
    const double ext = p.at("ext_factor").as_number();
    RotarySpec s;
    s.head_dim = p.at("head_dim").as_integer();
    RotaryBlock b;
    b.pairing = p.at("mode").as_string() == "NORMAL" ? Pairing::interleaved : Pairing::half_split;
    b.spectrum = geometric_spectrum(base, n);
    Spectrum& f = b.spectrum;
    if (c.at("inputs").find("freq_factors")) {
      const auto factors = suite(name, "freq_factors").value;
      for (std::size_t i = 0; i < factors.size(); ++i) f.frequency[i] /= factors[i];
    }
    f.gain = p.at("attn_factor").as_number();
    if (ext != 0) {  // YaRN, ramp between floor and ceil of ggml's correction pairs
      f.gain *= 1 + 0.1 * std::log(1 / scale);
      const auto pair = [&](double beta) {
        return static_cast<double>(n) *
               std::log(p.at("n_ctx_orig").as_number() / (beta * 2 * M_PI)) / (2 * std::log(base));
      };
      const double low = std::max(0.0, std::floor(pair(p.at("beta_fast").as_number())));
      const double high =
          std::min(static_cast<double>(n - 1), std::ceil(pair(p.at("beta_slow").as_number())));
      for (std::size_t i = 0; i < f.frequency.size(); ++i) {
        const double y = (static_cast<double>(i) - low) / std::max(0.001, high - low);
        const double mix = (1 - std::clamp(y, 0.0, 1.0)) * ext;
        f.frequency[i] *= scale * (1 - mix) + mix;
      }
    }
    s.blocks.push_back(b);
    const auto cached = suite(name, "cached"), direct = suite(name, "direct");
    const auto at = suite(name, "positions").integers();
    auto to = suite(name, "delta").integers();
    for (std::size_t i = 0; i < at.size(); ++i)
      to[i < to.size() ? i : 0] = at[i] + to[i < to.size() ? i : 0];
    ASSERT_EQ(to.size(), at.size()) << name;
    std::vector<float> k(cached.value.begin(), cached.value.end());
    rerotate(heads(k.data(), cached.dim(0), cached.dim(1), cached.dim(2)), s, positions(at), s,
             positions(to));
    double e = 0;
    for (std::size_t i = 0; i < k.size(); ++i) e = std::max(e, std::fabs(k[i] - direct.value[i]));
    EXPECT_LE(e, c.at("tolerance").at("abs").as_number()) << name;
  }
  EXPECT_EQ(count, 4);
}

}  // namespace
}  // namespace posenc
