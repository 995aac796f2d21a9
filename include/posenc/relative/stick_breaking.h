// SPDX-License-Identifier: Apache-2.0
// Stick-breaking attention. Tan et al., arXiv:2410.17980, equation (2):
//   P_ij = sigma(S_ij) prod over visible t after j of (1 - sigma(S_it)),  S_ij = s q_i.k_j
// The weights of a query sum to at most 1. The scheme adds no term: it sets another normalisation. The mask is the call's: causal, and as published the query's own key is hidden
// (window_right -1); attend_current shows it.
// Implementations disagree on what is left: the authors' model gives it to the value of the token
// itself (`own`), flash-linear-attention and the authors' reference return it.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct StickBreaking {
  static constexpr Card card{"stick_breaking", "stick-breaking attention", "arXiv:2410.17980",
                             "eq. (2)"};
  bool own = false;

  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const StickBreaking&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("own", s.own, Field{.doc = "the remaining probability goes to the token's own value"});
  }
};

}  // namespace posenc::v0
