// SPDX-License-Identifier: Apache-2.0
// KERPLE: kernels of the distance. Chi et al., arXiv:2205.09921, section 4, n = |i - j|:
//   log    S_ij += -p_h ln(1 + a_h n)
//   power  S_ij += -a_h n^p_h,   0 < p_h <= 2
//   nemo   S_ij += -b_h ln(1 + a_h n^p_h)                     NeMo's, without clamps
// `weighted` multiplies q.k by exp of a second kernel of the same kind besides (wei_p, wei_a).
// The authors' program clamps in place before each use: all at least 0.01, exponents of power at
// most 2; the gradient is that at the clamped value and is not cut off. Nothing is scaled with q.k.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

enum class KerpleKernel : std::uint8_t { log, power, nemo };
template <>
struct EnumNames<KerpleKernel> {
  static constexpr std::array<std::string_view, 3> value{"log", "power", "nemo"};
};
// Of the power kernel: both numbers; the slope with exponent 1; none, ALiBi's slopes with exponent 1
// (those below the floor are raised to it).
enum class KerpleLearned : std::uint8_t { both, slope, fixed };
template <>
struct EnumNames<KerpleLearned> {
  static constexpr std::array<std::string_view, 3> value{"both", "slope", "fixed"};
};

struct Kerple {
  static constexpr Card card{"kerple", "kernelized relative positions (KERPLE)", "arXiv:2205.09921",
                             "sec. 4"};
  KerpleKernel kernel = KerpleKernel::log;
  KerpleLearned learned = KerpleLearned::both;
  bool weighted = false;
  double floor = 0.01;

  // bias_p ~ U(0, 2) and bias_a ~ U(0, 1), wei_p and wei_a likewise; nemo: kerple_a = kerple_p = 1,
  // kerple_b ALiBi's slopes. [heads] each.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Kerple&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("kernel", s.kernel, Field{.doc = "function of the distance"});
    v("learned", s.learned, Field{.doc = "learned numbers of power: both, the slope, or none"});
    v("weighted", s.weighted, Field{.doc = "multiplies q.k by exp of a second kernel"});
    v("floor", s.floor,
      Field{.doc = "smallest value of the numbers; nemo: not used", .min = 0, .max = 1});
  }
};

}  // namespace posenc::v0
