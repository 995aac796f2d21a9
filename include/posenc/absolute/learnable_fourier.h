// SPDX-License-Identifier: Apache-2.0
// Learnable Fourier features. Li et al., NeurIPS 2021, arXiv:2106.02795, eq. 2 and 4, algorithm 1:
//   r = [cos(W c) | sin(W c)] / sqrt(features),   row = W2 gelu(W1 r + b1) + b2
// c are the coordinates of one group of axes; groups share all parameters and are concatenated in
// the row, width / groups channels each.
// Implementation: src/absolute/learnable_fourier.cpp.
#pragma once

#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

struct LearnableFourier {
  static constexpr Card card{"learnable_fourier", "learnable Fourier features", "arXiv:2106.02795",
                             "eq. 2, 4"};
  Index width = 0, axes = 2, groups = 1;  // positions have axes * groups axes, group by group
  Index features = 0, hidden = 0;
  double gamma = 1;  // W starts normal with deviation 1 / gamma
  double gain = 1, input_gain = 1;
  Compose compose = Compose::add;
  Index first = 0;

  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                            std::span<const TensorView> dp) const;

  bool operator==(const LearnableFourier&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 1, .max = 1e6, .required = true});
    v("axes", s.axes, Field{.doc = "coordinates of a group", .min = 1, .max = 8});
    v("groups", s.groups, Field{.doc = "groups of coordinates", .min = 1, .max = 8});
    v("features", s.features,
      Field{.doc = "Fourier features", .min = 2, .max = 1e6, .required = true});
    v("hidden", s.hidden, Field{.doc = "hidden units", .min = 1, .max = 1e6, .required = true});
    v("gamma", s.gamma, Field{.doc = "1 / initial deviation of the frequencies", .min = 1e-300});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("compose", s.compose, Field{.doc = "how the encoding is combined with the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  double root() const;
  Spectrum spectrum(const std::vector<double>& w, Index g) const;
  void check_fields() const;
};

}  // namespace posenc::v0
