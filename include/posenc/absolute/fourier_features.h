// SPDX-License-Identifier: Apache-2.0
// Fourier features of coordinates. Tancik et al., arXiv:2006.10739; NeRF, arXiv:2003.08934, eq. 4;
// Perceiver, arXiv:2103.03206, section 3.2:
//   row = [c] | sin, cos of factor f_k c_a        for every axis a and band k
//   linear  f_k evenly from first to last           log    evenly in the logarithm
//   powers  f_k = base^(-k / bands) (timm)          random factor sum over a of W[a, k] c_a, W
//   learned
//           or fixed (SAM: [sin | cos] of 2 pi c W)
#pragma once
#include <cmath>
#include <numbers>

#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

enum class FourierBands : std::uint8_t { linear, log, powers, random };
template <>
struct EnumNames<FourierBands> {
  static constexpr std::array<std::string_view, 4> value{"linear", "log", "powers", "random"};
};
// Order of the pairs: by_axis all bands of an axis, then the next; by_band all axes of a band;
// band_blocks a block in `layout` a band (NeRF's code: sin x y z, cos x y z, the next band).
enum class FourierOrder : std::uint8_t { by_axis, by_band, band_blocks };
template <>
struct EnumNames<FourierOrder> {
  static constexpr std::array<std::string_view, 3> value{"by_axis", "by_band", "band_blocks"};
};

struct FourierFeatures {
  static constexpr Card card{"fourier_features", "Fourier features", "arXiv:2006.10739", "eq. 6"};
  Index axes = 1, bands = 0;
  FourierBands law = FourierBands::linear;
  std::vector<double> first{}, last{};  // one an axis, or one for all
  double base = 10000;                  // of powers
  double factor = 1;                    // multiplies every frequency: pi, 2 pi
  SineLayout layout = SineLayout::halves;
  FourierOrder order = FourierOrder::by_axis;
  bool coordinates = false;  // the coordinates themselves come first
  double gain = 1, input_gain = 1;
  double init = 1;  // deviation of random weights at the start
  Compose compose = Compose::add;
  Index first_channel = 0;

  bool is_random() const noexcept { return law == FourierBands::random; }
  Index pairs() const noexcept { return is_random() ? bands : axes * bands; }
  Index width() const noexcept { return sine_channels(layout, pairs()) + (coordinates ? axes : 0); }

  std::vector<Parameter> parameters() const {
    check_fields();
    if (!is_random()) return {};
    return {{"weight", {axes, bands}, {InitialKind::normal, 0, init}, {}}};
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("fourier_features", needed.size(), p.size());
    InputTerm t;
    t.compose = compose;
    t.gain = gain;
    t.first = first_channel;
    if (coordinates) {
      std::vector<double> map(static_cast<std::size_t>((axes + 1) * axes), 0.0);
      for (Index a = 0; a < axes; ++a) map[static_cast<std::size_t>(a * axes + a)] = 1;
      t.affine = out.table(std::move(map), axes + 1, axes);
      t.width = axes;
      out.terms.push_back(t);
      t.affine = {};
      t.first += axes;
    }
    t.layout = layout;
    std::vector<double> weight;
    if (is_random()) weight = parameter_values("fourier_features", needed[0], p[0]);
    const Index blocks = order == FourierOrder::band_blocks ? bands : 1;
    for (Index i = 0; i < blocks; ++i) {
      Spectrum s = spectrum(weight, i);
      t.width = sine_channels(layout, s.pairs());
      t.phase = out.spectrum(std::move(s));
      out.terms.push_back(t);
      t.first += t.width;
    }
    out.input_gain *= input_gain;
  }

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient> g,
                 std::span<const TensorView> dp) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("fourier_features", needed.size(), p.size());
    check_gradients("fourier_features", needed, dp);
    if (!is_random()) return;
    std::vector<double> d = gradient_values(
        "fourier_features", gradient_of("fourier_features", g, coordinates ? 1 : 0).frequency,
        {axes, bands});
    for (double& x : d) x *= factor;
    accumulate("fourier_features", needed[0], dp[0], d);
  }

  // Named settings of programs (in this header's namespace fourier_presets).
  POSENC_API static std::vector<Preset<FourierFeatures>> presets();

  bool operator==(const FourierFeatures&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("axes", s.axes, Field{.doc = "axes of the positions", .min = 1, .max = 8});
    v("bands", s.bands,
      Field{.doc = "bands an axis; random: pairs", .min = 1, .max = 1e6, .required = true});
    v("law", s.law, Field{.doc = "law of the bands"});
    v("first", s.first, Field{.doc = "lowest frequency, of all axes or of each, empty = 1"});
    v("last", s.last, Field{.doc = "highest frequency of linear and log"});
    v("base", s.base, Field{.doc = "base of powers", .min = 1e-300});
    v("factor", s.factor, Field{.doc = "multiplies every frequency"});
    v("layout", s.layout, Field{.doc = "where sines and cosines stand"});
    v("order", s.order, Field{.doc = "order of the pairs"});
    v("coordinates", s.coordinates, Field{.doc = "the coordinates themselves come first"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("init", s.init, Field{.doc = "deviation of random weights at the start", .min = 0});
    v("compose", s.compose, Field{.doc = "how the encoding meets the embedding"});
    v("first_channel", s.first_channel, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  double frequency(Index a, Index k) const {
    const auto of = [a](const std::vector<double>& v) {
      return v.empty() ? 1.0 : v[v.size() == 1 ? 0 : static_cast<std::size_t>(a)];
    };
    const auto n = static_cast<double>(bands), i = static_cast<double>(k);
    const double part = bands > 1 ? i / (n - 1) : 0;
    if (law == FourierBands::linear) return of(first) + part * (of(last) - of(first));
    if (law == FourierBands::log) return of(first) * std::pow(of(last) / of(first), part);
    return std::pow(base, -i / n);
  }
  // Of all pairs, or of the pairs of band `block`.
  Spectrum spectrum(const std::vector<double>& weight, Index block) const {
    const bool one_band = order == FourierOrder::band_blocks;
    const Index n = is_random() ? bands : one_band ? axes : axes * bands;
    Spectrum s;
    s.axes = axes;
    s.frequency.assign(static_cast<std::size_t>(axes * n), 0.0);
    for (Index a = 0; a < axes; ++a)
      for (Index k = 0; k < bands; ++k) {
        if (is_random()) {
          s.frequency[static_cast<std::size_t>(a * n + k)] =
              factor * weight[static_cast<std::size_t>(a * bands + k)];
          continue;
        }
        if (one_band && k != block) continue;
        const Index pair = one_band                         ? a
                           : order == FourierOrder::by_axis ? a * bands + k
                                                            : k * axes + a;
        s.frequency[static_cast<std::size_t>(a * n + pair)] = factor * frequency(a, k);
      }
    return s;
  }
  void check_list(const std::vector<double>& v, const char* rule) const {
    if (v.size() > 1 && static_cast<Index>(v.size()) != axes)
      refuse("fourier_features", rule, static_cast<Index>(v.size()));
    for (const double x : v)
      if (!std::isfinite(x) || (law == FourierBands::log && x <= 0))
        refuse("fourier_features", "frequencies must be finite, and positive with law=log", x);
  }
  void check_fields() const {
    constexpr const char* who = "fourier_features";
    if (axes < 1 || axes > 8) refuse(who, "axes must lie between 1 and 8", axes);
    if (bands < 1 || bands > 1000000) refuse(who, "bands must lie between 1 and 1000000", bands);
    check_list(first, "first must have one number, or one an axis, count");
    check_list(last, "last must have one number, or one an axis, count");
    const bool ranged = law == FourierBands::linear || law == FourierBands::log;
    if (ranged && last.empty()) refuse(who, "last must be given with law=linear and law=log");
    if (!ranged && (!first.empty() || !last.empty()))
      refuse(who, "first and last are of law=linear and law=log");
    if (is_random() && order != FourierOrder::by_axis)
      refuse(who, "random bands mix the axes: order must be by_axis", enum_text(order));
    for (const double x : {base, factor, gain, input_gain})
      if (!std::isfinite(x)) refuse(who, "base, factor and gains must be finite", x);
    if (base <= 0) refuse(who, "base must be positive", base);
  }
};
static_assert(AbsoluteScheme<FourierFeatures>);

namespace fourier_presets {

// Perceiver: coordinates in [-1, 1] (linspace_grid), bands evenly from 1 to half the resolution.
inline FourierFeatures perceiver(Index num_bands, std::vector<double> max_resolution,
                                 bool concat_pos = true, bool sine_only = false) {
  FourierFeatures f;
  f.axes = static_cast<Index>(max_resolution.size());
  f.bands = num_bands;
  f.first = {1};
  f.last = std::move(max_resolution);
  for (double& x : f.last) x /= 2;
  f.factor = std::numbers::pi;
  f.layout = sine_only ? SineLayout::sines : SineLayout::halves;
  f.coordinates = concat_pos;
  return f;
}
// NeRF as its paper has it (eq. 4): each coordinate on its own, sin and cos of 2^k pi c.
inline FourierFeatures nerf(Index axes, Index bands) {
  FourierFeatures f;
  f.axes = axes;
  f.bands = bands;
  f.law = FourierBands::log;
  f.last = {std::exp2(static_cast<double>(bands - 1))};
  f.factor = std::numbers::pi;
  f.layout = SineLayout::interleaved;
  return f;
}
// NeRF as its code has it: the coordinates, then band by band, without pi.
inline FourierFeatures nerf_code(Index axes, Index bands) {
  FourierFeatures f = nerf(axes, bands);
  f.factor = 1;
  f.layout = SineLayout::halves;
  f.order = FourierOrder::band_blocks;
  f.coordinates = true;
  return f;
}
// SAM: coordinates in [-1, 1] (normalised); 2 pi c W.
inline FourierFeatures sam(Index num_pos_feats, double scale = 1) {
  FourierFeatures f;
  f.axes = 2;
  f.bands = num_pos_feats;
  f.law = FourierBands::random;
  f.factor = 2 * std::numbers::pi;
  f.init = scale;
  return f;
}
// timm's build_fourier_pos_embed of pixels: linspace_grid; bands up to half of max_res.
inline FourierFeatures timm_pixels(Index num_bands, double max_res, bool linear_bands = false) {
  FourierFeatures f;
  f.axes = 2;
  f.bands = num_bands;
  f.law = linear_bands ? FourierBands::linear : FourierBands::log;
  f.last = {max_res / 2};
  f.factor = std::numbers::pi;
  return f;
}
// The same of integer coordinates: temperature^(-k / num_bands).
inline FourierFeatures timm_index(Index num_bands, double temperature = 10000) {
  FourierFeatures f;
  f.axes = 2;
  f.bands = num_bands;
  f.law = FourierBands::powers;
  f.base = temperature;
  return f;
}

}  // namespace fourier_presets

}  // namespace posenc
