// SPDX-License-Identifier: Apache-2.0
// Sinusoids of several axes: images, videos, volumes. Every axis has a block of channels,
//   y[block i] = x + gain PE_i(scale[i] p[stream[i]])      PE_i as sinusoidal.h, widths[i] channels
// Parmar et al., arXiv:1802.05751, section 5.1 (tensor2tensor); DETR, arXiv:2005.12872, appendix
// A.4; MAE, arXiv:2111.06377. Coordinates are normalised by whoever makes the positions
// (positions/grid.h). What holds for all blocks is one field, which a list with an entry a block
// replaces where the blocks differ.
#pragma once
#include <cmath>
#include <utility>
#include <vector>

#include "posenc/absolute/sinusoidal.h"

namespace posenc {

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
  std::vector<Index> starts{};  // first channel of each block; empty: behind the block before it
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
  Sinusoidal block(std::size_t i) const {
    Sinusoidal s;
    s.width = widths[i];
    s.layout = layouts.empty() ? layout : layouts[i];
    s.spacing = spacings.empty() ? spacing : spacings[i];
    s.base = bases.empty() ? base : bases[i];
    s.min_timescale = min_timescale;
    s.scale = scale.empty() ? 1 : scale[i];
    s.exponent_width = exponent_width;
    s.odd = odd;
    s.offset = offset;
    s.zero_position = zero_position;
    s.gain = gain;
    s.compose = compose;
    s.axis = axis_of(i);
    s.first = first + (starts.empty() ? 0 : starts[i]);
    for (std::size_t k = 0; starts.empty() && k < i; ++k) s.first += widths[k];
    return s;
  }

  std::vector<Parameter> parameters() const {
    check_fields();
    return {};
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
    check_fields();
    check_parameter_count("sinusoidal_nd", 0, p.size());
    if (arrangement == AxisArrangement::joint)
      lower_joint(out);
    else
      for (std::size_t i = 0; i < widths.size(); ++i)
        if (widths[i] > 0) block(i).lower({}, out);
    out.input_gain *= input_gain;
  }

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient>,
                 std::span<const TensorView> dp) const {
    check_parameter_count("sinusoidal_nd", 0, p.size());
    check_parameter_count("sinusoidal_nd", 0, dp.size());
  }

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
      Field{.doc = "first channel of every block, empty = one behind the other",
            .min = 0,
            .max = 1e6});
    v("layouts", s.layouts, Field{.doc = "layout of every block, empty = layout"});
    v("spacings", s.spacings, Field{.doc = "spacing of every block, empty = spacing"});
    v("bases", s.bases, Field{.doc = "base of every block, empty = base", .min = 1e-300});
    v("layout", s.layout, Field{.doc = "where sines and cosines stand"});
    v("spacing", s.spacing, Field{.doc = "law of the frequencies"});
    v("arrangement", s.arrangement, Field{.doc = "a block an axis, or one layout over all"});
    v("base", s.base, Field{.doc = "longest timescale", .min = 1e-300});
    v("min_timescale", s.min_timescale, Field{.doc = "multiplies the frequencies", .min = 1e-300});
    v("exponent_width", s.exponent_width,
      Field{.doc = "divides the exponents of paper spacing, 0 = the block's width",
            .min = 0,
            .max = 1e6});
    v("odd", s.odd, Field{.doc = "what an odd block does"});
    v("offset", s.offset, Field{.doc = "added to the positions", .unit = "tokens"});
    v("zero_position", s.zero_position, Field{.doc = "position whose row is zero"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("compose", s.compose, Field{.doc = "how the encoding meets the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  Index axis_of(std::size_t i) const { return stream.empty() ? static_cast<Index>(i) : stream[i]; }
  // One phase over all axes: each pair is turned by its own.
  void lower_joint(LoweredInput& out) const {
    InputTerm t;
    Spectrum all;
    all.axes = static_cast<Index>(widths.size());
    Index pairs = 0, before = 0;
    for (const Index w : widths) pairs += w / 2;
    all.frequency.assign(static_cast<std::size_t>(all.axes * pairs), 0.0);
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (widths[i] == 0) continue;
      const Spectrum s = block(i).spectrum();
      for (Index m = 0; m < s.pairs(); ++m)
        all.frequency[static_cast<std::size_t>(axis_of(i) * pairs + before + m)] =
            s.frequency[static_cast<std::size_t>(m)];
      before += s.pairs();
    }
    t.phase = out.spectrum(std::move(all));
    t.layout = layout;
    t.offset = offset;
    t.zero_position = zero_position;
    t.first = first;
    t.width = 2 * pairs;
    t.compose = compose;
    t.gain = gain;
    out.terms.push_back(t);
  }
  template <class T>
  void check_list(std::string_view name, const std::vector<T>& list) const {
    if (!list.empty() && list.size() != widths.size())
      refuse("sinusoidal_nd", std::string(name) + " must have an entry for every width",
             static_cast<Index>(list.size()));
  }
  void check_fields() const {
    constexpr const char* who = "sinusoidal_nd";
    if (widths.empty() || widths.size() > 8)
      refuse(who, "there must be 1 to 8 widths", static_cast<Index>(widths.size()));
    check_list("stream", stream);
    check_list("scale", scale);
    check_list("starts", starts);
    check_list("layouts", layouts);
    check_list("spacings", spacings);
    check_list("bases", bases);
    if (!std::isfinite(input_gain)) refuse(who, "input_gain must be finite", input_gain);
    if (arrangement == AxisArrangement::joint && !(layouts.empty() && starts.empty()))
      refuse(who, "a joint arrangement has one layout and no starts");
    Index total = 0;
    unsigned seen = 0;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (widths[i] < 0 || widths[i] > 1000000)
        refuse(who, "widths must lie between 0 and 1000000", widths[i]);
      if (axis_of(i) < 0 || axis_of(i) > 7)
        refuse(who, "stream must lie between 0 and 7", axis_of(i));
      total += widths[i];
      seen |= 1U << axis_of(i);
      if (arrangement == AxisArrangement::joint && widths[i] % 2 != 0)
        refuse(who, "a joint arrangement needs even widths", widths[i]);
      if (!starts.empty() && (starts[i] < 0 || starts[i] > 1000000))
        refuse(who, "starts must lie between 0 and 1000000", starts[i]);
      if (widths[i] > 0) block(i).parameters();  // refuses the rest
    }
    if (total == 0) refuse(who, "widths must not all be 0");
    if (arrangement == AxisArrangement::joint && seen != (1U << widths.size()) - 1)
      refuse(who, "a joint arrangement needs every axis once in stream");
  }
};
static_assert(AbsoluteScheme<SinusoidalNd>);

}  // namespace posenc
