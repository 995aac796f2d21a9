// SPDX-License-Identifier: Apache-2.0
// FoPE's rule for frequencies. Hua et al., arXiv:2412.17739, section 4: a pair that makes less than
// one turn within the trained length N does not rotate:
//   theta'_i = theta_i if theta_i > 2 pi / N (or i < keep), else 0
// Its Fourier coefficients are the caller's own cos and sin per head (CallerRows).
// Implementation: src/scaling/fope.cpp.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc::inline v0 {

struct Fope {
  static constexpr Card card{"fope", "FoPE's frequencies", "arXiv:2412.17739", "section 4"};
  Index trained_length = 0;
  std::optional<Index> keep;

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  bool operator==(const Fope&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("trained_length", s.trained_length,
      Field{.doc = "N: pairs slower than one rotation in N do not rotate",
            .unit = "tokens",
            .min = 0});
    v("keep", s.keep, Field{.doc = "number of pairs that rotate, instead of N", .min = 0});
  }
};

}  // namespace posenc::v0
