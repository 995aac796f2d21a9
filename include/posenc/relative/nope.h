// SPDX-License-Identifier: Apache-2.0
// No position encoding. Haviv et al., arXiv:2203.16634; Kazemnejad et al., arXiv:2305.19466:
//   S_ij = s q_i.k_j
// A causal mask lets a model distinguish positions; without one the output permutes with the input.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct Nope {
  static constexpr Card card{"nope", "no position encoding", "arXiv:2305.19466", ""};

  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Nope&) const = default;
  template <class S, class V>
  static constexpr void describe(S&, V&&) {}
};

}  // namespace posenc::v0
