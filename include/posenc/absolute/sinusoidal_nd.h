// SPDX-License-Identifier: Apache-2.0
// Sinusoids of several axes: images, videos, volumes. Every axis has a block of channels,
//   y[block i] = x + gain PE_i(scale[i] p[stream[i]])      PE_i as sinusoidal.h, widths[i] channels
// Parmar et al., arXiv:1802.05751, section 5.1 (tensor2tensor); DETR, arXiv:2005.12872, appendix
// A.4; MAE, arXiv:2111.06377. The functions that make positions normalise the coordinates
// (positions/grid.h). A field that is equal for all blocks is one value; if blocks differ, a list with
// an entry for each block replaces it.
// Implementation: src/absolute/sinusoidal_nd.cpp.
#pragma once
#include <vector>

#include "posenc/absolute/sinusoidal.h"

namespace posenc::inline v0 {

// blocks: [s_a c_a | s_b c_b], each in `layout`; joint: `layout` runs over all pairs of all axes,
// so that halves is [s_a | s_b | c_a | c_b] (timm).
enum class AxisArrangement : std::uint8_t { blocks, joint };
template <>
struct EnumNames<AxisArrangement> {
  static constexpr std::array<std::string_view, 2> value{"blocks", "joint"};
};

struct SinusoidalNd {
  static constexpr Card card{"sinusoidal_nd", "sinusoids of several axes", "arXiv:1802.05751",
                             "sec. 5.1"};
  std::vector<Index> widths{};  // channels of every block, in the order of the channels; 0: none
  std::vector<Index> stream{};  // axis of the positions that feeds each block; empty: 0, 1, ...
  std::vector<double> scale{};  // multiplies each block's coordinate; empty: 1
  std::vector<Index> starts{};  // first channel of each block; empty: after the block before it
  std::vector<SineLayout> layouts{};    // empty: `layout`
  std::vector<SineSpacing> spacings{};  // empty: `spacing`
  std::vector<double> bases{};          // empty: `base`
  SineLayout layout = SineLayout::interleaved;
  SineSpacing spacing = SineSpacing::paper;
  AxisArrangement arrangement = AxisArrangement::blocks;
  double base = 10000, min_timescale = 1;
  Index exponent_width = 0;  // of every block; 0: its own width
  OddWidth odd = OddWidth::refuse;
  Index offset = 0;
  std::optional<Index> zero_position{};
  double gain = 1, input_gain = 1;
  Compose compose = Compose::add;
  Index first = 0;

  // The sinusoid of block i. Blocks that share channels are summed.
  POSENC_API Sinusoidal block(std::size_t i) const;

  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient>,
                            std::span<const TensorView> dp) const;

  // Named settings of programs (sinusoidal_nd_presets.h).
  POSENC_API static std::vector<Preset<SinusoidalNd>> presets();

  bool operator==(const SinusoidalNd&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("widths", s.widths,
      Field{.doc = "channels of every block", .min = 0, .max = 1e6, .required = true});
    v("stream", s.stream,
      Field{.doc = "position axis of every block, empty = in order", .min = 0, .max = 7});
    v("scale", s.scale, Field{.doc = "multiplies every block's coordinate, empty = 1"});
    v("starts", s.starts,
      Field{.doc = "first channel of every block, empty = contiguous", .min = 0, .max = 1e6});
    v("layouts", s.layouts,
      Field{.doc = "layout of every block, empty = layout", .from = "layout"});
    v("spacings", s.spacings,
      Field{.doc = "spacing of every block, empty = spacing", .from = "spacing"});
    v("bases", s.bases,
      Field{.doc = "base of every block, empty = base", .min = 1e-300, .from = "base"});
    v("layout", s.layout, Field{.doc = "order of sines and cosines"});
    v("spacing", s.spacing, Field{.doc = "law of the frequencies"});
    v("arrangement", s.arrangement, Field{.doc = "one block for each axis, or one layout for all"});
    v("base", s.base, Field{.doc = "longest timescale", .min = 1e-300});
    v("min_timescale", s.min_timescale, Field{.doc = "multiplies the frequencies", .min = 1e-300});
    v("exponent_width", s.exponent_width,
      Field{.doc = "divides the exponents of paper spacing, 0 = the block's width",
            .min = 0,
            .max = 1e6,
            .from = "widths"});
    v("odd", s.odd, Field{.doc = "what an odd block does"});
    v("offset", s.offset, Field{.doc = "added to the positions", .unit = "tokens"});
    v("zero_position", s.zero_position, Field{.doc = "position whose row is zero"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("compose", s.compose, Field{.doc = "how the encoding is combined with the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  Index axis_of(std::size_t i) const { return stream.empty() ? static_cast<Index>(i) : stream[i]; }
  void lower_joint(LoweredInput& out) const;
  template <class T>
  void check_list(std::string_view name, const std::vector<T>& list) const;
  void check_fields() const;
};

}  // namespace posenc::v0
