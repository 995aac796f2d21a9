// SPDX-License-Identifier: Apache-2.0
// DeepSeek's factor on the softmax scale, g(s, mscale_all_dim)^2 with g of yarn.h, for scalings
// other than YaRN: transformers 5.23 applies it for any rope_type but default. It multiplies the
// whole logit, including channels that do not rotate, so it cannot be folded into cos and sin.
// Implementation: src/scaling/mscale_logit.cpp.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc::inline v0 {

struct MscaleLogit {
  static constexpr Card card{"mscale_logit", "DeepSeek's logit factor", "arXiv:2405.04434", ""};
  double factor = 0, mscale_all_dim = 0;

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  bool operator==(const MscaleLogit&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("factor", s.factor, Field{.doc = "s", .min = 1e-300, .required = true});
    v("mscale_all_dim", s.mscale_all_dim, Field{.doc = "m", .min = 1e-300, .required = true});
  }
};

}  // namespace posenc::v0
