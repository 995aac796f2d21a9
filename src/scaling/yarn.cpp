// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/yarn.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum Yarn::rescale(Spectrum s, Context) const {
  return rescale_as("yarn", std::move(s));
}

Spectrum Yarn::rescale_as(std::string_view who, Spectrum s) const {
  check(who);
  const double length = static_cast<double>(range_context == 0 ? original_context : range_context);
  CorrectionRange range;
  if (ramp == Ramp::index) range = range_of(needs_geometric(s, who), length, who);
  detail::change_frequencies(s, [&](Index i, double theta) {
    const double weight = ramp == Ramp::index
                              ? 1 - correction_ramp(range, static_cast<double>(i), reversed_range)
                              : rotations_weight(theta, length, beta_fast, beta_slow);
    const double e = weight * extrapolation;
    return theta *
           (blend == YarnBlend::arithmetic ? e + (1 - e) / factor : std::pow(factor, e - 1));
  });
  const double amplitude = gain();
  s.gain *= amplitude;
  if (logit_from_mscale) s.logit_factor *= logit();
  tell_ggml(s, range, amplitude);
  if (factor != 1) s.geometric.reset();
  return s;
}

double Yarn::gain() const {
  if (!apply_scale) return attn_factor;
  if (attention_factor) return *attention_factor * attn_factor;
  if (mscale && mscale_all_dim) return g(*mscale) / g(*mscale_all_dim) * attn_factor;
  return g(1) * attn_factor;
}

double Yarn::logit() const {
  if (!mscale_all_dim) refuse_field("yarn", "logit_from_mscale", "needs mscale_all_dim");
  return g(*mscale_all_dim) * g(*mscale_all_dim);
}

CorrectionRange Yarn::range_of(const Geometric& law, double length, std::string_view who) const {
  if (law.base == 1) refuse(who, "the base must not be 1", law.base);
  return correction_range(law, length, beta_fast, beta_slow, truncate);
}

void Yarn::check(std::string_view who) const {
  using namespace detail;
  need_positive(who, "factor", factor);
  need_positive(who, "original_context", original_context);
  need_positive(who, "beta_fast", beta_fast);
  need_positive(who, "beta_slow", beta_slow);
  need_not_negative(who, "extrapolation", extrapolation);
  need_positive(who, "attn_factor", attn_factor);
  need_not_negative(who, "mscale_slope", mscale_slope);
  if (attention_factor) need_positive(who, "attention_factor", *attention_factor);
  if (mscale) need_not_negative(who, "mscale", *mscale);
  if (mscale_all_dim) need_not_negative(who, "mscale_all_dim", *mscale_all_dim);
  if (range_context < 0) refuse_field(who, "range_context", "must not be negative", range_context);
  if (!apply_scale && attention_factor)
    refuse_field(who, "attention_factor", "contradicts apply_scale=false", *attention_factor);
  if (ramp == Ramp::rotations && range_context != 0)
    refuse_field(who, "range_context", "belongs to ramp=index", range_context);
}

// What of it ggml cannot be told: it rounds the range always, mixes arithmetically, makes a
// reversed range a step. "" where nothing.
std::string_view Yarn::not_of_ggml(const Spectrum& s, CorrectionRange range) const {
  const bool whole = range.low == std::floor(range.low) && range.high == std::floor(range.high);
  if (ramp != Ramp::index) return "yarn ramp=rotations (ggml's ramp goes by pair)";
  if (range_context != 0) return "yarn range_context (ggml uses original_context)";
  if (!truncate && !whole) return "yarn truncate=false (ggml always rounds the range)";
  if (reversed_range != ReversedRange::step && range.high < range.low)
    return "yarn of a reversed range (ggml makes it a step)";
  if (blend != YarnBlend::arithmetic) return "yarn blend=geometric (ggml uses the weighted mean)";
  if (extrapolation == 0) return "yarn extrapolation=0 (no YaRN to ggml)";
  if (!s.geometric || s.ggml->freq_scale != 1 || s.ggml->ext_factor != 0)
    return "yarn after another scaling";
  return 1 + 0.1 * std::log(factor) > 0 ? "" : "yarn factor for which 1 + 0.1 ln s is not positive";
}

// ggml multiplies attn_factor by 1 + 0.1 ln s itself.
void Yarn::tell_ggml(Spectrum& s, CorrectionRange range, double amplitude) const {
  if (!s.ggml || factor == 1) return detail_gain(s, amplitude);
  if (const std::string_view why = not_of_ggml(s, range); !why.empty()) return s.drop_ggml(why);
  s.ggml->freq_scale = 1 / factor;
  s.ggml->ext_factor = extrapolation;
  s.ggml->attn_factor *= amplitude / (1 + 0.1 * std::log(factor));
  s.ggml->beta_fast = beta_fast;
  s.ggml->beta_slow = beta_slow;
  s.ggml->original_context = original_context;
}

void Yarn::detail_gain(Spectrum& s, double amplitude) {
  if (s.ggml) s.ggml->attn_factor *= amplitude;
}

}  // namespace posenc::v0
