// SPDX-License-Identifier: Apache-2.0
// Sinusoidal positions. Vaswani et al., arXiv:1706.03762, section 3.5:
//   PE(p) of pair m = (sin(p w_m), cos(p w_m)),  y = input_gain x + gain PE(p)
//   paper    w_m = scale min_timescale base^(-2m / exponent_width), exponent_width = width unless
//            given
//   t2t      w_m = scale min_timescale (base / min_timescale)^(-m / max(n - 1, 1)), n pairs:
//            tensor2tensor, fairseq, Marian, CTranslate2. min_timescale MULTIPLIES, as in
//            tensor2tensor
//   shifted  w_m = scale min_timescale (base / min_timescale)^(-m / (n - shift)): diffusers'
//            timesteps; shift 0 is paper spacing, 1 is t2t without its guard
#pragma once
#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

enum class SineSpacing : std::uint8_t { paper, t2t, shifted };
template <>
struct EnumNames<SineSpacing> {
  static constexpr std::array<std::string_view, 3> value{"paper", "t2t", "shifted"};
};
// What an odd width does: refuse; floor(width / 2) pairs and a zero at the end (tensor2tensor,
// fairseq); ceil(width / 2) pairs without the last cosine (tatp22, transformers' Marian); or as the
// Marian program, n = floor(width / 2) sines, n cosines and the first cosine again, with the
// exponents of t2t over width / 2 - 1, a fraction.
enum class OddWidth : std::uint8_t { refuse, zero_pad, truncate, marian };
template <>
struct EnumNames<OddWidth> {
  static constexpr std::array<std::string_view, 4> value{"refuse", "zero_pad", "truncate",
                                                         "marian"};
};

struct Sinusoidal {
  static constexpr Card card{"sinusoidal", "sinusoidal positions", "arXiv:1706.03762", "sec. 3.5"};
  Index width = 0;
  SineLayout layout = SineLayout::interleaved;
  SineSpacing spacing = SineSpacing::paper;
  double base = 10000, min_timescale = 1;
  double scale = 1;          // multiplies the position: 1000 for timesteps in [0, 1]
  double shift = 0;          // of spacing shifted
  Index exponent_width = 0;  // 0: width; tatp22 rounds an odd width up
  OddWidth odd = OddWidth::refuse;
  Index offset = 0;                      // added to the position: 1 in CTranslate2, OpenNMT-tf
  std::optional<Index> zero_position{};  // this position's row is zero (padding)
  double gain = 1, input_gain = 1;       // input_gain sqrt(width) in the paper's section 3.4
  bool learned_gain = false;             // the gain is a parameter, first width^-1/2
  Compose compose = Compose::add;
  Index axis = 0, first = 0;

  Index pairs() const noexcept { return odd == OddWidth::truncate ? (width + 1) / 2 : width / 2; }
  Spectrum spectrum() const {
    const Index n = pairs();
    Spectrum s;
    for (Index m = 0; m < n; ++m)
      s.frequency.push_back(scale * min_timescale * power_of(static_cast<double>(m)));
    return s;
  }

  std::vector<Parameter> parameters() const {
    check_fields();
    if (!learned_gain) return {};
    const double start = 1 / std::sqrt(static_cast<double>(width));
    return {{"gain", {1}, {InitialKind::constant, start, 0}, {}}};
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("sinusoidal", needed.size(), p.size());
    InputTerm t;
    t.layout = layout;
    t.axis = static_cast<std::int32_t>(axis);
    t.offset = offset;
    t.zero_position = zero_position;
    t.compose = compose;
    t.gain = learned_gain ? gain * parameter_values("sinusoidal", needed[0], p[0])[0] : gain;
    const auto add = [&](Spectrum s, Index from, Index count) {
      t.phase = out.spectrum(std::move(s));
      t.first = from;
      t.width = count;
      out.terms.push_back(t);
    };
    Spectrum s = spectrum();
    if (wraps()) {
      t.layout = SineLayout::sines;
      add(s, first, pairs());
      s.frequency.push_back(s.frequency[0]);
      t.layout = SineLayout::cosines;
      add(std::move(s), first + pairs(), pairs() + 1);
    } else {
      add(std::move(s), first, width);
    }
    out.input_gain *= input_gain;
  }

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient> g,
                 std::span<const TensorView> dp) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("sinusoidal", needed.size(), p.size());
    check_gradients("sinusoidal", needed, dp);
    if (!learned_gain) return;
    double d = 0;
    for (std::size_t n = 0; n < (wraps() ? 2u : 1u); ++n)
      d += gain * gradient_values("sinusoidal", gradient_of("sinusoidal", g, n).gain, {1})[0];
    accumulate("sinusoidal", needed[0], dp[0], std::span(&d, 1));
  }

  bool operator==(const Sinusoidal&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 1, .max = 1e6, .required = true});
    v("layout", s.layout, Field{.doc = "where sines and cosines stand"});
    v("spacing", s.spacing, Field{.doc = "law of the frequencies"});
    v("base", s.base, Field{.doc = "longest timescale", .min = 1e-300});
    v("min_timescale", s.min_timescale, Field{.doc = "multiplies the frequencies", .min = 1e-300});
    v("scale", s.scale, Field{.doc = "multiplies the position"});
    v("shift", s.shift, Field{.doc = "taken from the pairs in the exponents of shifted spacing"});
    v("exponent_width", s.exponent_width,
      Field{.doc = "divides the exponents of paper spacing, 0 = width", .min = 0, .max = 1e6});
    v("odd", s.odd, Field{.doc = "what an odd width does"});
    v("offset", s.offset, Field{.doc = "added to the position", .unit = "tokens"});
    v("zero_position", s.zero_position, Field{.doc = "position whose row is zero"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("learned_gain", s.learned_gain, Field{.doc = "one learned number multiplies the encoding"});
    v("compose", s.compose, Field{.doc = "how the encoding meets the embedding"});
    v("axis", s.axis, Field{.doc = "axis of the positions", .min = 0, .max = 7});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

  // Named settings of programs, at width 512 (sinusoidal_presets.h).
  POSENC_API static std::vector<Preset<Sinusoidal>> presets();

 private:
  bool wraps() const noexcept { return odd == OddWidth::marian && width % 2 != 0; }
  // The power of the base, exponent -2m/width and its kin.
  double power_of(double m) const {
    const auto n = static_cast<double>(pairs());
    if (spacing == SineSpacing::paper)
      return std::pow(base,
                      -2 * m / static_cast<double>(exponent_width > 0 ? exponent_width : width));
    const double steps = wraps()                           ? static_cast<double>(width) / 2 - 1
                         : spacing == SineSpacing::shifted ? n - shift
                                                           : std::max(n - 1, 1.0);
    return std::pow(base / min_timescale, -m / steps);
  }
  void check_fields() const {
    if (width < 1 || width > 1000000)
      refuse("sinusoidal", "width must lie between 1 and 1000000", width);
    if (width % 2 != 0 && odd == OddWidth::refuse)
      refuse("sinusoidal", "width must be even unless odd says what to do", width);
    if (!std::isfinite(base) || base <= 0)
      refuse("sinusoidal", "base must be finite and positive", base);
    if (!std::isfinite(min_timescale) || min_timescale <= 0)
      refuse("sinusoidal", "min_timescale must be finite and positive", min_timescale);
    if (exponent_width < 0)
      refuse("sinusoidal", "exponent_width must not be negative", exponent_width);
    if (!std::isfinite(scale)) refuse("sinusoidal", "scale must be finite", scale);
    if (spacing == SineSpacing::shifted && !(static_cast<double>(pairs()) - shift > 0))
      refuse("sinusoidal", "there must be more pairs than shift takes away, pairs", pairs());
    if (wraps() && (spacing != SineSpacing::t2t || layout != SineLayout::halves || width < 3))
      refuse("sinusoidal", "odd=marian needs spacing=t2t, layout=halves and at least 3 channels",
             width);
    if (layout == SineLayout::sines || layout == SineLayout::cosines)
      refuse("sinusoidal", "layout must hold sines and cosines", enum_text(layout));
    if (!std::isfinite(gain)) refuse("sinusoidal", "gain must be finite", gain);
    if (!std::isfinite(input_gain)) refuse("sinusoidal", "input_gain must be finite", input_gain);
    if (axis < 0 || axis > 7) refuse("sinusoidal", "axis must lie between 0 and 7", axis);
  }
};
static_assert(AbsoluteScheme<Sinusoidal>);

}  // namespace posenc
