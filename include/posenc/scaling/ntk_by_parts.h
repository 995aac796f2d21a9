// SPDX-License-Identifier: Apache-2.0
// NTK-by-parts: YaRN's frequencies without its gain, and the two-ramp code that came before.
//   one_ramp   as yarn.h (ramp index: the codes; ramp rotations: arXiv:2309.00071, section 3.2)
//   two_ramps  bloc97's "NTKv2" (jquesnelle/yarn, PartNTK), with m = 1 - ramp:
//                f = (theta/s)(1 - m1 n) + theta_ntk m1 n,   theta_ntk of base s^(d/(d-2)) base
//                theta' = f (1 - m2 x) + theta m2 x
//              m1 over the correction range of (1.25, 0.75) turns, m2 over that of (16, 2)
// Implementation: src/scaling/ntk_by_parts.cpp.
#pragma once
#include "posenc/scaling/yarn.h"

namespace posenc::inline v0 {

enum class PartsForm : std::uint8_t { one_ramp, two_ramps };
template <>
struct EnumNames<PartsForm> {
  static constexpr std::array<std::string_view, 2> value{"one_ramp", "two_ramps"};
};

struct NtkByParts {
  static constexpr Card card{"ntk_by_parts", "NTK-by-parts", "arXiv:2309.00071", "section 3.2"};
  double factor = 0;
  Index original_context = 0;
  PartsForm form = PartsForm::one_ramp;
  Ramp ramp = Ramp::index;
  double beta_fast = 32, beta_slow = 1;
  double ntk_factor = 1, extrapolation = 1;

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  // The same for another scaling, with errors in its name.
  POSENC_API Spectrum rescale_as(std::string_view who, Spectrum s) const;
  bool operator==(const NtkByParts&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("factor", s.factor,
      Field{.doc = "s, new length over trained length", .min = 1e-300, .required = true});
    v("original_context", s.original_context,
      Field{.doc = "L, trained length", .unit = "tokens", .min = 1, .required = true});
    v("form", s.form, Field{.doc = "one ramp (YaRN's) or bloc97's two"});
    v("ramp", s.ramp, Field{.doc = "one_ramp: linear in the pair index or in turns"});
    v("beta_fast", s.beta_fast,
      Field{.doc = "one_ramp: upper end", .unit = "turns", .min = 1e-300});
    v("beta_slow", s.beta_slow,
      Field{.doc = "one_ramp: lower end", .unit = "turns", .min = 1e-300});
    v("ntk_factor", s.ntk_factor, Field{.doc = "two_ramps: weight of the NTK part", .min = 0});
    v("extrapolation", s.extrapolation, Field{.doc = "weight of the unscaled frequency", .min = 0});
  }

 private:
  Spectrum two_ramps(std::string_view who, Spectrum s) const;
};

}  // namespace posenc::v0
