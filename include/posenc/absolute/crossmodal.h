// SPDX-License-Identifier: Apache-2.0
// Text, image patches, audio frames on common axes:
//   y = input_gain x + M[m] + gain sum over axes a of PE_a(scale[a] c_a)
// m is the modality of a token, c its coordinates in common units (modality_positions: axis 0 is m,
// the others are c). A modality without an axis has a zero row there. Type embeddings as in ViLT
// (arXiv:2102.03334) and BEiT-3, positions in physical units as CAPE's in seconds; the combination is
// posenc's own definition.
// Implementation: src/absolute/crossmodal.cpp.
#pragma once
#include <vector>

#include "posenc/absolute/sinusoidal.h"
#include "posenc/positions/modalities.h"

namespace posenc::inline v0 {

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

  // The sinusoid of axis a; a width of 0 means all channels.
  POSENC_API Sinusoidal axis(std::size_t a) const;

  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                            std::span<const TensorView> dp) const;

  // Named settings of programs, ours.
  POSENC_API static std::vector<Preset<CrossModal>> presets();

  bool operator==(const CrossModal&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the embedding", .min = 1, .max = 1e6, .required = true});
    v("modalities", s.modalities,
      Field{.doc = "number of modalities", .min = 1, .max = 1e6, .required = true});
    v("widths", s.widths,
      Field{.doc = "channels of every axis, 0 = all of them, summed",
            .min = 0,
            .max = 1e6,
            .required = true});
    v("scale", s.scale, Field{.doc = "multiplies every axis's coordinate, empty = 1"});
    v("layout", s.layout, Field{.doc = "order of sines and cosines"});
    v("spacing", s.spacing, Field{.doc = "law of the frequencies"});
    v("base", s.base, Field{.doc = "longest timescale", .min = 1e-300});
    v("gain", s.gain, Field{.doc = "multiplies the sinusoids"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("init", s.init, Field{.doc = "initial deviation of the type embedding", .min = 0});
  }

 private:
  void check_fields() const;
};

}  // namespace posenc::v0
