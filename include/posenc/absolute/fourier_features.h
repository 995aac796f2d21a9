// SPDX-License-Identifier: Apache-2.0
// Fourier features of coordinates. Tancik et al., arXiv:2006.10739; NeRF, arXiv:2003.08934, eq. 4;
// Perceiver, arXiv:2103.03206, section 3.2:
//   row = [c] | sin, cos of factor f_k c_a        for every axis a and band k
//   linear  f_k evenly from first to last           log    evenly in the logarithm
//   powers  f_k = base^(-k / bands) (timm)          random factor sum over a of W[a, k] c_a, W
//   learned
//           or fixed (SAM: [sin | cos] of 2 pi c W)
// Implementation: src/absolute/fourier_features.cpp.
#pragma once

#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

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

  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                            std::span<const TensorView> dp) const;

  // Named settings of programs (in this header's namespace fourier_presets).
  POSENC_API static std::vector<Preset<FourierFeatures>> presets();

  bool operator==(const FourierFeatures&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("axes", s.axes, Field{.doc = "axes of the positions", .min = 1, .max = 8});
    v("bands", s.bands,
      Field{.doc = "bands of each axis; random: pairs", .min = 1, .max = 1e6, .required = true});
    v("law", s.law, Field{.doc = "law of the bands"});
    v("first", s.first, Field{.doc = "lowest frequency, of all axes or of each, empty = 1"});
    v("last", s.last, Field{.doc = "highest frequency of linear and log"});
    v("base", s.base, Field{.doc = "base of powers", .min = 1e-300});
    v("factor", s.factor, Field{.doc = "multiplies every frequency"});
    v("layout", s.layout, Field{.doc = "order of sines and cosines"});
    v("order", s.order, Field{.doc = "order of the pairs"});
    v("coordinates", s.coordinates, Field{.doc = "the coordinates themselves come first"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("init", s.init, Field{.doc = "initial deviation of random weights", .min = 0});
    v("compose", s.compose, Field{.doc = "how the encoding is combined with the embedding"});
    v("first_channel", s.first_channel, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  double frequency(Index a, Index k) const;
  Spectrum spectrum(const std::vector<double>& weight, Index block) const;
  void check_list(const char* name, const std::vector<double>& v, const char* rule) const;
  void check_fields() const;
};

namespace fourier_presets {

// Perceiver: coordinates in [-1, 1] (linspace_grid), bands evenly from 1 to half the resolution.
POSENC_API FourierFeatures perceiver(Index num_bands, std::vector<double> max_resolution,
                                     bool concat_pos = true, bool sine_only = false);
// NeRF as in its paper (eq. 4): each coordinate on its own, sin and cos of 2^k pi c.
POSENC_API FourierFeatures nerf(Index axes, Index bands);
// NeRF as in its code: the coordinates, then band by band, without pi.
POSENC_API FourierFeatures nerf_code(Index axes, Index bands);
// SAM: coordinates in [-1, 1] (normalised); 2 pi c W.
POSENC_API FourierFeatures sam(Index num_pos_feats, double scale = 1);
// timm's build_fourier_pos_embed of pixels: linspace_grid; bands up to half of max_res.
POSENC_API FourierFeatures timm_pixels(Index num_bands, double max_res, bool linear_bands = false);
// The same of integer coordinates: temperature^(-k / num_bands).
POSENC_API FourierFeatures timm_index(Index num_bands, double temperature = 10000);

}  // namespace fourier_presets

}  // namespace posenc::v0
