// SPDX-License-Identifier: Apache-2.0
// Continuous axial positions: a small network of each coordinate, summed over the axes
// (lucidrains/axial-positional-embedding, ContinuousAxialPositionalEmbedding; the same idea for one
// axis is the continuous position bias of Swin V2, arXiv:2111.09883, at the input):
//   y = input_gain x + gain sum over axes a of MLP_a(c_a),  MLP: `depth` layers of `hidden` units
//   with silu, then one to `width`
// Implementation: src/absolute/continuous_axial.cpp.
#pragma once

#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

struct ContinuousAxial {
  static constexpr Card card{"continuous_axial", "continuous axial positions",
                             "lucidrains/axial-positional-embedding", ""};
  Index width = 0, axes = 2, hidden = 0, depth = 2;
  Activation activation = Activation::silu;
  double gain = 1, input_gain = 1;
  Compose compose = Compose::add;
  Index first = 0;

  // weight_A_L and bias_A_L of axis A and layer L, in this order.
  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                            std::span<const TensorView> dp) const;

  bool operator==(const ContinuousAxial&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 1, .max = 1e6, .required = true});
    v("axes", s.axes, Field{.doc = "axes of the positions", .min = 1, .max = 8});
    v("hidden", s.hidden, Field{.doc = "hidden units", .min = 1, .max = 1e6, .required = true});
    v("depth", s.depth, Field{.doc = "hidden layers", .min = 1, .max = 64});
    v("activation", s.activation, Field{.doc = "of the hidden layers"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("compose", s.compose, Field{.doc = "how the encoding is combined with the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  void check_fields() const;
};

}  // namespace posenc::v0
