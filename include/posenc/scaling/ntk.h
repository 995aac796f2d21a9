// SPDX-License-Identifier: Apache-2.0
// NTK-aware scaling without a length rule, in the formulas of this name (d: width):
//   alpha        base' = base * s^(d/(d-2)); pair 0 stays, the last is divided by exactly s.
//                bloc97; theta_rescale_factor of rotary-embedding-torch; HunYuan's `alpha` (also
//                under the name "dynamic", in transformers, vLLM and TensorRT-LLM: it is static)
//   fixed        base' = base * s, then every frequency / s^(2/d): pair i is divided by
//                s^((2i+2)/d), the last by exactly s. kexue.fm/archives/9706; vLLM's "ntk"
//   mixed        pair i is divided by exp(a (i+1)^b), a = ln s / (d/2)^b. kexue.fm/archives/9706
//   theta_scale  base' = base^(ln(L s / 2 pi) / ln(L / 2 pi)). Grok-1's extra_method of that name
// Implementation: src/scaling/ntk.cpp.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc::inline v0 {

enum class NtkFormula : std::uint8_t { unset, alpha, fixed, mixed, theta_scale };
template <>
struct EnumNames<NtkFormula> {
  static constexpr std::array<std::string_view, 5> value{"unset", "alpha", "fixed", "mixed",
                                                         "theta_scale"};
};

struct Ntk {
  static constexpr Card card{"ntk", "NTK-aware scaling", "bloc97 2023; kexue.fm/archives/9706", ""};
  double factor = 0;
  NtkFormula formula = NtkFormula::unset;
  double mixed_b = 0;
  Index original_context = 0;

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  bool operator==(const Ntk&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("factor", s.factor, Field{.doc = "s, also called alpha", .min = 1e-300, .required = true});
    v("formula", s.formula, Field{.doc = "formula", .required = true});
    v("mixed_b", s.mixed_b,
      Field{.doc = "exponent b of formula=mixed, 0.625 as published", .min = 0});
    v("original_context", s.original_context,
      Field{.doc = "trained length L of formula=theta_scale", .unit = "tokens", .min = 0});
  }

 private:
  Spectrum fixed(Spectrum s) const;
  Spectrum mixed(Spectrum s) const;
  Spectrum theta_scale(Spectrum s) const;
};

}  // namespace posenc::v0
