// SPDX-License-Identifier: Apache-2.0
// Text, image patches, audio frames on common axes:
//   y = input_gain x + M[m] + gain sum over axes a of PE_a(scale[a] c_a)
// m is the modality of a token, c its coordinates in common units (modality_positions: axis 0 is m,
// the others are c). A modality without an axis gets a zero row there. Type embeddings as ViLT
// (arXiv:2102.03334) and BEiT-3 have them, positions in physical units as CAPE's positions in
// seconds; the combination is our own definition.
#pragma once
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/absolute/sinusoidal.h"
#include "posenc/positions/modalities.h"

namespace posenc {

struct CrossModal {
  static constexpr Card card{"crossmodal", "modalities on common axes", "arXiv:2102.03334",
                             "sec. 3"};
  Index width = 0, modalities = 0;
  // Channels of every axis, side by side; 0: an axis over all channels, summed with the others.
  std::vector<Index> widths{};
  std::vector<double> scale{};  // multiplies every axis's coordinate; empty: 1
  SineLayout layout = SineLayout::interleaved;
  SineSpacing spacing = SineSpacing::paper;
  double base = 10000;
  double gain = 1, input_gain = 1;
  double init = 0.02;

  // The sinusoid of axis a; a width of 0 takes all channels.
  Sinusoidal axis(std::size_t a) const {
    Sinusoidal s;
    s.width = widths[a] == 0 ? width : widths[a];
    s.layout = layout;
    s.spacing = spacing;
    s.base = base;
    s.scale = scale.empty() ? 1 : scale[a];
    s.zero_position = kAbsent;
    s.gain = gain;
    s.axis = static_cast<Index>(a) + 1;
    for (std::size_t k = 0; widths[a] > 0 && k < a; ++k) s.first += widths[k];
    return s;
  }

  std::vector<Parameter> parameters() const {
    check_fields();
    return {{"modality", {modalities, width}, {InitialKind::normal, 0, init}, {}}};
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("crossmodal", 1, p.size());
    InputTerm t;
    t.table = out.table(parameter_values("crossmodal", needed[0], p[0]), modalities, width);
    t.width = width;
    out.terms.push_back(t);
    for (std::size_t a = 0; a < widths.size(); ++a) axis(a).lower({}, out);
    out.input_gain *= input_gain;
  }

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient> g,
                 std::span<const TensorView> dp) const {
    check_parameter_count("crossmodal", 1, p.size());
    check_parameter_count("crossmodal", 1, dp.size());
    accumulate(
        "crossmodal", parameters()[0], dp[0],
        gradient_values("crossmodal", gradient_of("crossmodal", g, 0).table, {modalities, width}));
  }

  // Named settings of programs, ours.
  POSENC_API static std::vector<Preset<CrossModal>> presets();

  bool operator==(const CrossModal&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the embedding", .min = 1, .max = 1e6, .required = true});
    v("modalities", s.modalities,
      Field{.doc = "kinds of tokens", .min = 1, .max = 1e6, .required = true});
    v("widths", s.widths,
      Field{.doc = "channels of every axis, 0 = all of them, summed",
            .min = 0,
            .max = 1e6,
            .required = true});
    v("scale", s.scale, Field{.doc = "multiplies every axis's coordinate, empty = 1"});
    v("layout", s.layout, Field{.doc = "where sines and cosines stand"});
    v("spacing", s.spacing, Field{.doc = "law of the frequencies"});
    v("base", s.base, Field{.doc = "longest timescale", .min = 1e-300});
    v("gain", s.gain, Field{.doc = "multiplies the sinusoids"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("init", s.init, Field{.doc = "deviation of the type embedding at the start", .min = 0});
  }

 private:
  void check_fields() const {
    constexpr const char* who = "crossmodal";
    if (width < 1 || width > 1000000) refuse(who, "width must be positive", width);
    if (modalities < 1 || modalities > 1000000)
      refuse(who, "modalities must be positive", modalities);
    if (widths.empty() || widths.size() > 7)
      refuse(who, "there must be 1 to 7 axes", static_cast<Index>(widths.size()));
    if (!scale.empty() && scale.size() != widths.size())
      refuse(who, "scale must have a number for every axis", static_cast<Index>(scale.size()));
    if (!std::isfinite(input_gain)) refuse(who, "input_gain must be finite", input_gain);
    Index side_by_side = 0;
    for (std::size_t a = 0; a < widths.size(); ++a) {
      if (widths[a] < 0 || widths[a] > width)
        refuse(who, "widths must lie between 0 and width", widths[a]);
      side_by_side += widths[a];
      axis(a).parameters();  // refuses the rest
    }
    if (side_by_side > width) refuse(who, "widths must fit into width", side_by_side);
  }
};
static_assert(AbsoluteScheme<CrossModal>);

}  // namespace posenc
