// SPDX-License-Identifier: Apache-2.0
// YaRN. Peng et al., arXiv:2309.00071, sections 3.2 to 3.4, as the code of its authors computes it:
//   ramp_i   = clamp((i - low) / (high - low), 0, 1)             i: pair index, see correction.h
//   e_i      = (1 - ramp_i) * extrapolation
//   theta'_i = theta_i e_i + (theta_i / s)(1 - e_i)
//   gain     = g(s, 1),  g(s, m) = 1 for s <= 1, else 0.1 m ln s + 1      on cos and sin of q and k
// gain, exactly: attention_factor if given; else g(s, mscale) / g(s, mscale_all_dim) if both are
// given; else g(s, 1); all three times attn_factor. (attention_factor REPLACES g, transformers'
// key; attn_factor MULTIPLIES it, the authors' and ggml's key.) apply_scale=false: attn_factor
// alone. transformers takes an mscale of 0 as not given; here it is a number: g(s, 0) = 1.
#pragma once
#include "posenc/scaling/correction.h"

namespace posenc {

// How the two frequencies are mixed: their weighted mean, or the mean of their logarithms (Grok-1's
// "yarn_log").
enum class YarnBlend : std::uint8_t { arithmetic, geometric };
template <>
struct EnumNames<YarnBlend> {
  static constexpr std::array<std::string_view, 2> value{"arithmetic", "geometric"};
};

struct Yarn {
  static constexpr Card card{"yarn", "YaRN", "arXiv:2309.00071", "section 3.2, eq. 21 to 23"};
  double factor = 0;
  Index original_context = 0;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  double extrapolation = 1;
  std::optional<double> attention_factor;
  double attn_factor = 1;
  std::optional<double> mscale, mscale_all_dim;
  double mscale_slope = 0.1;       // TeleChat-3: 0.07
  bool apply_scale = true;         // Mistral's params.json
  bool logit_from_mscale = false;  // DeepSeek: softmax scale times g(s, mscale_all_dim)^2
  Ramp ramp = Ramp::index;
  YarnBlend blend = YarnBlend::arithmetic;
  ReversedRange reversed_range = ReversedRange::formula;
  Index range_context = 0;  // vLLM's M-RoPE takes the range from 4 L

  Spectrum rescale(Spectrum s, Context) const { return rescale_as("yarn", std::move(s)); }
  // The same on behalf of another scaling, which refuses in its own name.
  Spectrum rescale_as(std::string_view who, Spectrum s) const {
    check(who);
    const double length =
        static_cast<double>(range_context == 0 ? original_context : range_context);
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

  // What cos and sin are multiplied by.
  double gain() const {
    if (!apply_scale) return attn_factor;
    if (attention_factor) return *attention_factor * attn_factor;
    if (mscale && mscale_all_dim) return g(*mscale) / g(*mscale_all_dim) * attn_factor;
    return g(1) * attn_factor;
  }
  // What the softmax scale is multiplied by where logit_from_mscale is set.
  double logit() const {
    if (!mscale_all_dim) refuse("yarn", "logit_from_mscale needs mscale_all_dim");
    return g(*mscale_all_dim) * g(*mscale_all_dim);
  }
  CorrectionRange range_of(const Geometric& law, double length,
                           std::string_view who = "yarn") const {
    if (law.base == 1) refuse(who, "the base must not be 1", law.base);
    return correction_range(law, length, beta_fast, beta_slow, truncate);
  }

  bool operator==(const Yarn&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("factor", s.factor,
      Field{.doc = "s, new length over trained length", .min = 1e-300, .required = true});
    v("original_context", s.original_context,
      Field{.doc = "L, trained length", .unit = "tokens", .min = 1, .required = true});
    v("beta_fast", s.beta_fast,
      Field{.doc = "pairs of more turns within L are left alone", .unit = "turns", .min = 1e-300});
    v("beta_slow", s.beta_slow,
      Field{.doc = "pairs of fewer turns are divided by s", .unit = "turns", .min = 1e-300});
    v("truncate", s.truncate, Field{.doc = "round the correction range outwards"});
    v("extrapolation", s.extrapolation,
      Field{.doc = "weight of the unscaled frequency; ggml's ext_factor", .min = 0});
    v("attention_factor", s.attention_factor,
      Field{.doc = "the gain, instead of 0.1 ln s + 1", .min = 1e-300});
    v("attn_factor", s.attn_factor, Field{.doc = "multiplies the gain", .min = 1e-300});
    v("mscale", s.mscale, Field{.doc = "DeepSeek: gain g(s, mscale) / ...", .min = 0});
    v("mscale_all_dim", s.mscale_all_dim,
      Field{.doc = "DeepSeek: ... / g(s, mscale_all_dim)", .min = 0});
    v("mscale_slope", s.mscale_slope, Field{.doc = "0.1 of g(s, m)", .min = 0});
    v("apply_scale", s.apply_scale, Field{.doc = "false: the gain is attn_factor alone"});
    v("logit_from_mscale", s.logit_from_mscale,
      Field{.doc = "softmax scale times g(s, mscale_all_dim)^2"});
    v("ramp", s.ramp, Field{.doc = "linear in the pair index (codes) or in turns (paper)"});
    v("blend", s.blend, Field{.doc = "mean of the frequencies or of their logarithms"});
    v("reversed_range", s.reversed_range, Field{.doc = "when the correction range is upside down"});
    v("range_context", s.range_context,
      Field{.doc = "length of the correction range, 0 = L", .unit = "tokens", .min = 0});
  }

 private:
  double g(double m) const { return detail::mscale_amplitude(factor, m, mscale_slope); }

  void check(std::string_view who) const {
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
    if (range_context < 0) refuse(who, "range_context must not be negative", range_context);
    if (!apply_scale && attention_factor)
      refuse(who, "attention_factor contradicts apply_scale=false", *attention_factor);
    if (ramp == Ramp::rotations && range_context != 0)
      refuse(who, "range_context belongs to ramp=index", range_context);
  }

  // What of it ggml cannot be told: it rounds the range always, mixes arithmetically, makes a
  // reversed range a step. "" where nothing.
  std::string_view not_of_ggml(const Spectrum& s, CorrectionRange range) const {
    const bool whole = range.low == std::floor(range.low) && range.high == std::floor(range.high);
    if (ramp != Ramp::index) return "yarn ramp=rotations (ggml's ramp goes by pair)";
    if (range_context != 0) return "yarn range_context (ggml takes original_context)";
    if (!truncate && !whole) return "yarn truncate=false (ggml always rounds the range)";
    if (reversed_range != ReversedRange::step && range.high < range.low)
      return "yarn of a reversed range (ggml makes it a step)";
    if (blend != YarnBlend::arithmetic)
      return "yarn blend=geometric (ggml takes the weighted mean)";
    if (extrapolation == 0) return "yarn extrapolation=0 (no YaRN to ggml)";
    if (!s.geometric || s.ggml->freq_scale != 1 || s.ggml->ext_factor != 0)
      return "yarn behind another scaling";
    return 1 + 0.1 * std::log(factor) > 0 ? ""
                                          : "yarn factor for which 1 + 0.1 ln s is not positive";
  }
  // ggml multiplies attn_factor by 1 + 0.1 ln s itself.
  void tell_ggml(Spectrum& s, CorrectionRange range, double amplitude) const {
    if (!s.ggml || factor == 1) return detail_gain(s, amplitude);
    if (const std::string_view why = not_of_ggml(s, range); !why.empty()) return s.drop_ggml(why);
    s.ggml->freq_scale = 1 / factor;
    s.ggml->ext_factor = extrapolation;
    s.ggml->attn_factor *= amplitude / (1 + 0.1 * std::log(factor));
    s.ggml->beta_fast = beta_fast;
    s.ggml->beta_slow = beta_slow;
    s.ggml->original_context = original_context;
  }
  static void detail_gain(Spectrum& s, double amplitude) {
    if (s.ggml) s.ggml->attn_factor *= amplitude;
  }
};
static_assert(ScalingPolicy<Yarn>);

}  // namespace posenc
