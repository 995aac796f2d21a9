// SPDX-License-Identifier: Apache-2.0
// Another base ("theta") for the same law: theta'_i = base'^(-2i/d). CodeLlama (arXiv:2308.12950,
// section 2.4) and every model that was trained on with a larger base.
// Implementation: src/scaling/raised_base.cpp.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc::inline v0 {

struct RaisedBase {
  static constexpr Card card{"raised_base", "adjusted base frequency", "arXiv:2308.12950",
                             "section 2.4"};
  double base = 0;

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  bool operator==(const RaisedBase&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("base", s.base, Field{.doc = "the new base", .min = 1e-300, .required = true});
  }
};

}  // namespace posenc::v0
