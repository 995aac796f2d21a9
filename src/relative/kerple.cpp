// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/kerple.h"

#include <cmath>

#include "posenc/core/error.h"
#include "posenc/relative/alibi.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/term_names.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kKerple = Kerple::card.name;
// The terms, in the order of lower.

detail::TermNames kerple_terms(const Kerple& k) {
  return {kKerple, {{"kernel"}, {"weight", k.weighted}}};
}

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

struct KerpleNames {
  const char *p, *a, *b;
};
KerpleNames kerple_names(const Kerple& scheme, bool weight) {
  if (scheme.kernel == KerpleKernel::nemo) return {"kerple_p", "kerple_a", "kerple_b"};
  return weight ? KerpleNames{"wei_p", "wei_a", ""} : KerpleNames{"bias_p", "bias_a", ""};
}

// One kernel of all heads. Numbers that are not learned are those of ALiBi.
class KerpleKernels {
 public:
  KerpleKernels(const Kerple& scheme, const ScoreShape& s, bool weight,
                const detail::LearnedValues& value)
      : scheme_(scheme) {
    const KerpleNames names = kerple_names(scheme, weight);
    const std::vector<double> slopes = Alibi{}.slope(s.heads), p = value.if_any(names.p),
                              a = value.if_any(names.a), b = value.if_any(names.b);
    for (std::size_t h = 0; h < slopes.size(); ++h) {
      KerpleNumbers v;
      if (!b.empty())
        v = {p[h], a[h], b[h]};
      else
        v = {p.empty() ? 1 : clamp(p[h], true), clamp(a.empty() ? slopes[h] : a[h], false), 0};
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
  const detail::LearnedValues value(*this, s, p);
  const detail::Distances sizes(kKerple, detail::magnitudes(s.range()), s.heads);
  const IndexLine line =
      detail::line_over(kKerple, out, s.range(), [&](Index d) { return sizes.row(std::abs(d)); });
  const auto table = [&](bool weight) {
    const KerpleKernels kernels(*this, s, weight, value);
    std::vector<double> v;
    for (Index h = 0; h < s.heads; ++h)
      sizes.each([&](Index d) {
        const double f = kernels.at(h, d).f;
        v.push_back(weight ? std::expm1(f) : f);
      });
    return out.table(std::move(v), s.heads, sizes.count(), 1);
  };
  const detail::TermNames names = kerple_terms(*this);
  detail::NamedTerms terms(names, out);
  terms.add("kernel", detail::number_term(table(false), line, 1));
  if (!weighted) return;
  // q.k (w - 1) besides q.k.
  ProductTerm t = detail::number_term(table(true), line, s.content_scale());
  t.query = t.key = kContent;
  terms.add("weight", t);
}

void Kerple::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                       const LoweredGradient& g, std::span<const TensorView> dp,
                       std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  detail::LearnedGradients to(value);
  const detail::Distances sizes(kKerple, detail::magnitudes(s.range()), s.heads);
  const detail::TermNames names = kerple_terms(*this);
  const detail::TermGradients of(names, g);
  for (const bool weight : {false, true}) {
    if (weight && !weighted) continue;
    const KerpleKernels kernels(*this, s, weight, value);
    const std::vector<double> up =
        of.table(weight ? "weight" : "kernel", {1, s.heads, sizes.count(), 1});
    std::vector<double> d_p(static_cast<std::size_t>(s.heads)), d_a = d_p, d_b = d_p;
    std::size_t row = 0;
    for (Index h = 0; h < s.heads; ++h)
      sizes.each([&](Index x) {
        const KerpleValue v = kernels.at(h, x);
        const auto at = static_cast<std::size_t>(h);
        const double k = up[row++] * (weight ? std::exp(v.f) : 1);
        d_p[at] += k * v.p, d_a[at] += k * v.a, d_b[at] += k * v.b;
      });
    const KerpleNames learns = kerple_names(*this, weight);
    for (const auto& [name, d] : {std::pair{learns.p, &d_p}, {learns.a, &d_a}, {learns.b, &d_b}})
      if (value.has(name)) to[name] = std::move(*d);
  }
  to.accumulate(dp);
}

}  // namespace posenc::v0
