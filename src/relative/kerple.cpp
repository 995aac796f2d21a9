// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/kerple.h"

#include <cmath>

#include "posenc/core/error.h"
#include "posenc/relative/alibi.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kKerple = "kerple";

// The numbers of one head, after clamps. nemo alone has b.
struct KerpleNumbers {
  double p = 1, a = 1, b = 0;
};
// The kernel at a distance and its derivatives.
struct KerpleValue {
  double f = 0, p = 0, a = 0, b = 0;
};

KerpleValue kerple_at(KerpleKernel kernel, const KerpleNumbers& v, double x) {
  if (x == 0) return {};  // every kernel is 0 there, whatever its numbers
  if (kernel == KerpleKernel::log) {
    const double l = std::log1p(v.a * x);
    return {-v.p * l, -l, -v.p * x / (1 + v.a * x), 0};
  }
  const double power = std::pow(x, v.p), log_x = std::log(x);
  if (kernel == KerpleKernel::power) return {-v.a * power, -v.a * power * log_x, -power, 0};
  const double l = std::log1p(v.a * power), slope = -v.b / (1 + v.a * power);
  return {-v.b * l, slope * v.a * power * log_x, slope * power, -l};
}

// One kernel of all heads: its parameters in order (first: the place of its first among all).
class KerpleKernels {
 public:
  KerpleKernels(const Kerple& scheme, const ScoreShape& s, std::size_t first, bool weight,
                const std::vector<std::vector<double>>& values)
      : scheme_(scheme) {
    const std::vector<double> slopes = Alibi{}.slope(s.heads);
    for (Index h = 0; h < s.heads; ++h) {
      const auto at = static_cast<std::size_t>(h);
      KerpleNumbers v;
      if (scheme.kernel == KerpleKernel::nemo) {
        v = {values[2][at], values[0][at], values[1][at]};
      } else if (scheme.kernel == KerpleKernel::log || weight ||
                 scheme.learned == KerpleLearned::both) {
        v = {clamp(values[first][at], true), clamp(values[first + 1][at], false), 0};
      } else {
        const bool fixed = scheme.learned == KerpleLearned::fixed;
        v = {1, clamp(fixed ? slopes[at] : values[first][at], false), 0};
      }
      numbers_.push_back(v);
    }
  }
  KerpleValue at(Index h, Index distance) const {
    return kerple_at(scheme_.kernel, numbers_[static_cast<std::size_t>(h)],
                     static_cast<double>(distance));
  }

 private:
  const Kerple& scheme_;
  std::vector<KerpleNumbers> numbers_;

  double clamp(double x, bool exponent) const {
    x = std::max(x, scheme_.floor);
    return exponent && scheme_.kernel == KerpleKernel::power ? std::min(x, 2.0) : x;
  }
};

std::vector<std::vector<double>> kerple_values(const std::vector<Parameter>& needed,
                                               std::span<const ConstTensorView> p) {
  check_parameter_count(kKerple, needed.size(), p.size());
  std::vector<std::vector<double>> values;
  for (std::size_t n = 0; n < needed.size(); ++n)
    values.push_back(parameter_values(kKerple, needed[n], p[n]));
  return values;
}

// Numbers of the bias kernel, which come before those of the weight.
std::size_t kerple_bias_count(const Kerple& k) {
  if (k.kernel == KerpleKernel::nemo) return 3;
  if (k.kernel == KerpleKernel::log || k.learned == KerpleLearned::both) return 2;
  return k.learned == KerpleLearned::slope ? 1 : 0;
}

}  // namespace

std::vector<Parameter> Kerple::parameters(const ScoreShape& s) const {
  check_score_shape(s, kKerple);
  const ScoreAxes axes(s);
  if (!(floor >= 0)) refuse_field(kKerple, "floor", "must not be negative", floor);
  if (learned != KerpleLearned::both && kernel != KerpleKernel::power)
    refuse_field(kKerple, "learned", "must be both unless kernel is power");
  if (weighted && kernel == KerpleKernel::nemo)
    refuse_field(kKerple, "weighted", "needs the kernel log or power");
  const ArrayShape shape{axes.heads};
  if (kernel == KerpleKernel::nemo) {
    const Initial one{InitialKind::constant, 1, 0};
    return {{"kerple_a", shape, one, {}},
            {"kerple_b", shape, {}, Alibi{}.slope(s.heads)},
            {"kerple_p", shape, one, {}}};
  }
  const Initial two{InitialKind::uniform, 0, 2}, one{InitialKind::uniform, 0, 1};
  std::vector<Parameter> p;
  if (kerple_bias_count(*this) == 2) p.push_back({"bias_p", shape, two, {}});
  if (kerple_bias_count(*this) >= 1) p.push_back({"bias_a", shape, one, {}});
  if (!weighted) return p;
  p.push_back({"wei_p", shape, two, {}});
  p.push_back({"wei_a", shape, one, {}});
  return p;
}

void Kerple::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                   LoweredTerms& out) const {
  const std::vector<std::vector<double>> values = kerple_values(parameters(s), p);
  const detail::Distances sizes(kKerple, detail::magnitudes(s.range()), s.heads);
  const IndexLine line =
      detail::line_over(kKerple, out, s.range(), [&](Index d) { return sizes.row(std::abs(d)); });
  const auto table = [&](bool weight) {
    const KerpleKernels kernels(*this, s, weight ? kerple_bias_count(*this) : 0, weight, values);
    std::vector<double> v;
    for (Index h = 0; h < s.heads; ++h)
      sizes.each([&](Index d) {
        const double f = kernels.at(h, d).f;
        v.push_back(weight ? std::expm1(f) : f);
      });
    return out.table(std::move(v), s.heads, sizes.count(), 1);
  };
  out.add(detail::number_term(table(false), line, 1));
  if (!weighted) return;
  // q.k (w - 1) besides q.k.
  ProductTerm t = detail::number_term(table(true), line, s.content_scale());
  t.query = t.key = kContent;
  out.add(t);
}

void Kerple::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                       const LoweredGradient& g, std::span<const TensorView> dp,
                       std::span<const TensorView>) const {
  const std::vector<Parameter> needed = parameters(s);
  const std::vector<std::vector<double>> values = kerple_values(needed, p);
  const detail::Distances sizes(kKerple, detail::magnitudes(s.range()), s.heads);
  std::vector<std::vector<double>> d(needed.size(),
                                     std::vector<double>(static_cast<std::size_t>(s.heads)));
  for (const bool weight : {false, true}) {
    if (weight && !weighted) continue;
    const std::size_t first = weight ? kerple_bias_count(*this) : 0;
    const KerpleKernels kernels(*this, s, first, weight, values);
    const std::vector<double> up =
        gradient_values(kKerple, gradient_of(kKerple, g.terms, weight ? 1 : 0).table,
                        {1, s.heads, sizes.count(), 1});
    std::size_t row = 0;
    for (Index h = 0; h < s.heads; ++h)
      sizes.each([&](Index x) {
        const KerpleValue v = kernels.at(h, x);
        const auto at = static_cast<std::size_t>(h);
        const double k = up[row++] * (weight ? std::exp(v.f) : 1);
        if (kernel == KerpleKernel::nemo) {
          d[0][at] += k * v.a, d[1][at] += k * v.b, d[2][at] += k * v.p;
        } else if (weight || kerple_bias_count(*this) == 2) {
          d[first][at] += k * v.p, d[first + 1][at] += k * v.a;
        } else if (kerple_bias_count(*this) == 1) {
          d[first][at] += k * v.a;
        }
      });
  }
  accumulate(kKerple, needed, dp, d);
}

}  // namespace posenc::v0
