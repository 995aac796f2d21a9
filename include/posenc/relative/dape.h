// SPDX-License-Identifier: Apache-2.0
// DAPE: a small network over the heads adapts scores and biases to the data. Zheng et al.,
// arXiv:2405.14722, section 3; version 2 with kernels over the keys, arXiv:2410.04798, section 3:
//   S_ij += W_2 act(W_1 [s_ij; b_ij] + b_1) + b_2,   act a leaky ReLU of slope 0.01
// s_ij are the scaled scores of all heads, b_ij what other schemes of the call add (ALiBi, KERPLE,
// FIRE). Without such a scheme: bias = false, only the scores are read. Version 2: kernel 3, both
// layers run over the keys in order, and hidden keys are read as 0. It is the last term of a call.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct Dape {
  static constexpr Card card{"dape", "data-adaptive positions (DAPE)", "arXiv:2405.14722",
                             "sec. 3"};
  Index width = 32;
  bool bias = true;
  Index kernel = 1;
  double slope = 0.01;

  Index channels(const ScoreShape& s) const noexcept { return bias ? 2 * s.heads : s.heads; }

  // mlp2_0_weight [width, channels, kernel], mlp2_0_bias [width], mlp2_2_weight [heads, width,
  // kernel], mlp2_2_bias [heads]: as a linear layer of PyTorch starts.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Dape&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width, Field{.doc = "hidden units", .min = 1, .max = 65536});
    v("bias", s.bias, Field{.doc = "the network also reads the bias of other schemes"});
    v("kernel", s.kernel,
      Field{.doc = "keys that a layer reads, odd; version 2: 3", .min = 1, .max = 255});
    v("slope", s.slope, Field{.doc = "of the activation below 0"});
  }
};

}  // namespace posenc::v0
