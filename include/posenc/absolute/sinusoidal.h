// SPDX-License-Identifier: Apache-2.0
// Sinusoidal positions. Vaswani et al., arXiv:1706.03762, section 3.5:
//   PE(p) of pair m = (sin(p w_m), cos(p w_m)),  y = input_gain x + gain PE(p)
//   paper    w_m = scale min_timescale base^(-2m / exponent_width), exponent_width = width by
//            default
//   t2t      w_m = scale min_timescale (base / min_timescale)^(-m / max(n - 1, 1)), n pairs:
//            tensor2tensor, fairseq, Marian, CTranslate2. min_timescale MULTIPLIES, as in
//            tensor2tensor
//   shifted  w_m = scale min_timescale (base / min_timescale)^(-m / (n - shift)): diffusers'
//            timesteps; shift 0 is paper spacing, 1 is t2t without its guard
// Implementation: src/absolute/sinusoidal.cpp.
#pragma once
#include <string_view>
#include <vector>

#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

enum class SineSpacing : std::uint8_t { paper, t2t, shifted };
template <>
struct EnumNames<SineSpacing> {
  static constexpr std::array<std::string_view, 3> value{"paper", "t2t", "shifted"};
};
// What an odd width does: it is rejected; floor(width / 2) pairs and a zero at the end (tensor2tensor,
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
  POSENC_API Spectrum spectrum() const;

  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                            std::span<const TensorView> dp) const;

  bool operator==(const Sinusoidal&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 1, .max = 1e6, .required = true});
    v("layout", s.layout, Field{.doc = "order of sines and cosines"});
    v("spacing", s.spacing, Field{.doc = "law of the frequencies"});
    v("base", s.base, Field{.doc = "longest timescale", .min = 1e-300});
    v("min_timescale", s.min_timescale, Field{.doc = "multiplies the frequencies", .min = 1e-300});
    v("scale", s.scale, Field{.doc = "multiplies the position"});
    v("shift", s.shift, Field{.doc = "subtracted from the number of pairs in shifted spacing"});
    v("exponent_width", s.exponent_width,
      Field{.doc = "divides the exponents of paper spacing, 0 = width",
            .min = 0,
            .max = 1e6,
            .from = "width"});
    v("odd", s.odd, Field{.doc = "what an odd width does"});
    v("offset", s.offset, Field{.doc = "added to the position", .unit = "tokens"});
    v("zero_position", s.zero_position, Field{.doc = "position whose row is zero"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("learned_gain", s.learned_gain, Field{.doc = "one learned number multiplies the encoding"});
    v("compose", s.compose, Field{.doc = "how the encoding is combined with the embedding"});
    v("axis", s.axis, Field{.doc = "axis of the positions", .min = 0, .max = 7});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

  // Named settings of programs, at width 512 (sinusoidal_presets.h).
  POSENC_API static std::vector<Preset<Sinusoidal>> presets();

 private:
  bool wraps() const noexcept { return odd == OddWidth::marian && width % 2 != 0; }
  double power_of(double m) const;
  void check_fields() const;
};

}  // namespace posenc::v0
