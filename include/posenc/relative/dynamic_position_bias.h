// SPDX-License-Identifier: Apache-2.0
// A multilayer perceptron of the distance (x-transformers):
//   S_ij += mlp(f(i - j))_h,  f(y) = y or sign(y) ln(|y| + 1)
//   layer: Linear, LayerNorm where `norm`, x sigmoid(x); at the end Linear to the heads
// The first LayerNorm of x-transformers has only a weight (gamma), the others weight and bias.
// What computes it is in src/relative/dynamic_position_bias.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct DynamicPositionBias {
  static constexpr Card card{"dynamic_position_bias", "multilayer perceptron of the distance",
                             "x-transformers", ""};
  Index width = 0, depth = 2;
  bool log_distance = false, norm = false;
  Index axis = 0;

  // mlp_0_0_weight [width, 1], mlp_N_0_weight [width, width], mlp_N_0_bias [width]; with norm
  // mlp_0_1_gamma, then mlp_N_1_weight and mlp_N_1_bias [width]; mlp_DEPTH_weight [heads, width],
  // mlp_DEPTH_bias [heads]. As PyTorch starts linear layers and norms.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData& call, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const DynamicPositionBias&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width, Field{.doc = "units of a layer", .min = 1, .max = 65536, .required = true});
    v("depth", s.depth, Field{.doc = "hidden layers", .min = 1, .max = 64});
    v("log_distance", s.log_distance,
      Field{.doc = "the input is sign(y) ln(|y| + 1) of the distance"});
    v("norm", s.norm, Field{.doc = "a LayerNorm after each hidden linear layer"});
    v("axis", s.axis, Field{.doc = "of the positions", .min = 0, .max = 7});
  }
};

}  // namespace posenc::v0
