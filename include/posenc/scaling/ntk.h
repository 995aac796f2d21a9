// SPDX-License-Identifier: Apache-2.0
// NTK-aware scaling without a rule of length, in the formulas that go by this name (d: width):
//   alpha        base' = base * s^(d/(d-2)); pair 0 stays, the last is divided by exactly s.
//                bloc97; theta_rescale_factor of rotary-embedding-torch; HunYuan's `alpha` (also
//                under the name "dynamic", in transformers, vLLM and TensorRT-LLM: it is static)
//   fixed        base' = base * s, then every frequency / s^(2/d): pair i is divided by
//                s^((2i+2)/d), the last by exactly s. kexue.fm/archives/9706; vLLM's "ntk"
//   mixed        pair i is divided by exp(a (i+1)^b), a = ln s / (d/2)^b. kexue.fm/archives/9706
//   theta_scale  base' = base^(ln(L s / 2 pi) / ln(L / 2 pi)). Grok-1's extra_method of that name
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc {

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

  Spectrum rescale(Spectrum s, Context) const {
    detail::need_positive("ntk", "factor", factor);
    if (mixed_b != 0 && formula != NtkFormula::mixed)
      refuse("ntk", "mixed_b belongs to formula=mixed", mixed_b);
    if (original_context != 0 && formula != NtkFormula::theta_scale)
      refuse("ntk", "original_context belongs to formula=theta_scale", original_context);
    switch (formula) {
      case NtkFormula::alpha:
        return detail::with_alpha(std::move(s), factor, "ntk");
      case NtkFormula::fixed:
        return fixed(std::move(s));
      case NtkFormula::mixed:
        return mixed(std::move(s));
      case NtkFormula::theta_scale:
        return theta_scale(std::move(s));
      case NtkFormula::unset:
        break;
    }
    refuse("ntk", "formula must be alpha, fixed, mixed or theta_scale", "unset");
  }
  bool operator==(const Ntk&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("factor", s.factor, Field{.doc = "s, also called alpha", .min = 1e-300, .required = true});
    v("formula", s.formula, Field{.doc = "which of the formulas", .required = true});
    v("mixed_b", s.mixed_b,
      Field{.doc = "exponent b of formula=mixed, 0.625 as published", .min = 0});
    v("original_context", s.original_context,
      Field{.doc = "trained length L of formula=theta_scale", .unit = "tokens", .min = 0});
  }

 private:
  Spectrum fixed(Spectrum s) const {
    const Geometric law = needs_geometric(s, "ntk");
    s = detail::with_base(std::move(s), law.base * factor, "ntk");
    const double divisor = std::pow(factor, 2.0 / static_cast<double>(law.width));
    for (double& f : s.frequency) f /= divisor;
    if (factor != 1) s.geometric.reset();
    if (s.ggml && s.ggml->ext_factor != 0) s.drop_ggml("ntk behind YaRN");
    if (s.ggml) s.ggml->freq_scale /= divisor;
    return s;
  }
  Spectrum mixed(Spectrum s) const {
    detail::need_positive("ntk", "mixed_b", mixed_b);
    const Geometric law = needs_geometric(s, "ntk");
    const double a = std::log(factor) / std::pow(static_cast<double>(law.width) / 2, mixed_b);
    std::vector<double> divisors(static_cast<std::size_t>(s.pairs()));
    for (std::size_t i = 0; i < divisors.size(); ++i)
      divisors[i] = std::exp(a * std::pow(static_cast<double>(i) + 1, mixed_b));
    detail::change_frequencies(
        s, [&](Index i, double f) { return f / divisors[static_cast<std::size_t>(i)]; });
    detail::divide_ggml(s, divisors);
    if (factor != 1) s.geometric.reset();
    return s;
  }
  Spectrum theta_scale(Spectrum s) const {
    detail::need_positive("ntk", "original_context", original_context);
    const Geometric law = needs_geometric(s, "ntk");
    const double turns = static_cast<double>(original_context) / (2 * std::numbers::pi);
    if (!(turns > 1) || !(turns * factor > 1))
      refuse("ntk", "original_context and its multiple must be above 2 pi", original_context);
    const double power = std::log(turns * factor) / std::log(turns);
    return detail::with_base(std::move(s), std::pow(law.base, power), "ntk");
  }
};
static_assert(ScalingPolicy<Ntk>);

}  // namespace posenc
