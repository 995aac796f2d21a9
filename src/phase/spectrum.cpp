// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "posenc/core/error.h"
#include "posenc/phase.h"
#include "posenc/scaling/policy.h"

namespace posenc::inline v0 {
namespace {

// More pairs than any head or embedding has; keeps a wrong number from asking for all memory.
constexpr Index kMaxPairs = Index{1} << 28;

}  // namespace

void Spectrum::drop_ggml(std::string_view why) {
  if (ggml) ggml_dropped.why = why;
  ggml.reset();
}

// Su et al., arXiv:2104.09864v5, eq. 15:   theta_i = base^(-2i/width)
Spectrum geometric_spectrum(double base, Index width, Index pairs) {
  if (!(base > 0) || !std::isfinite(base))
    refuse_field("phase", "base", "must be finite and positive", base);
  if (width <= 0 || width % 2 != 0)
    refuse_field("phase", "width", "must be positive and even", width);
  if (pairs < -1) refuse_field("phase", "pairs", "must not be negative", pairs);
  if (pairs == -1) pairs = width / 2;
  if (pairs > kMaxPairs) refuse_field("phase", "pairs", "must be at most 2^28", pairs);
  Spectrum s;
  s.frequency.resize(static_cast<std::size_t>(pairs));
  for (Index i = 0; i < pairs; ++i)
    s.frequency[static_cast<std::size_t>(i)] =
        std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
  s.geometric = Geometric{base, width};
  GgmlForm form;
  form.base = base;
  form.n_dims = width;
  s.ggml = form;
  check_spectrum(s);
  return s;
}

void check_spectrum(const Spectrum& s) {
  if (s.heads < 1) refuse_field("phase", "heads", "must be positive", s.heads);
  if (s.axes < 1) refuse_field("phase", "axes", "must be positive", s.axes);
  const auto n = static_cast<Index>(s.frequency.size());
  if (n > 0 && (s.heads > n || s.axes > n / s.heads || n % (s.heads * s.axes) != 0))
    refuse_field("phase", "frequency", "must hold heads x axes x pairs values", n);
  for (const double f : s.frequency)
    if (!std::isfinite(f)) refuse_field("phase", "frequency", "must be finite", f);
  if (!std::isfinite(s.gain)) refuse_field("phase", "gain", "must be finite", s.gain);
  if (!std::isfinite(s.logit_factor))
    refuse_field("phase", "logit_factor", "must be finite", s.logit_factor);
  if (s.valid_from > s.valid_to)
    refuse_field("phase", "valid_from", "must not lie beyond valid_to", s.valid_from);
}

const Geometric& needs_geometric(const Spectrum& s, std::string_view who) {
  if (!s.geometric)
    refuse(who,
           "needs frequencies base^(-2i/width), which a scaling before it or the scheme itself has "
           "changed");
  return *s.geometric;
}

}  // namespace posenc::v0
