// SPDX-License-Identifier: Apache-2.0
// YaRN. Peng et al., arXiv:2309.00071, sections 3.2 to 3.4, as the code of its authors computes it:
//   ramp_i   = clamp((i - low) / (high - low), 0, 1)             i: pair index, see correction.h
//   e_i      = (1 - ramp_i) * extrapolation
//   theta'_i = theta_i e_i + (theta_i / s)(1 - e_i)
//   gain     = g(s, 1),  g(s, m) = 1 for s <= 1, else 0.1 m ln s + 1      on cos and sin of q and k
// gain, exactly: attention_factor if set; else g(s, mscale) / g(s, mscale_all_dim) if both are set; else
// g(s, 1); all three times attn_factor. (attention_factor REPLACES g, transformers'
// key; attn_factor MULTIPLIES it, the authors' and ggml's key.) apply_scale=false: only
// attn_factor. transformers ignores an mscale of 0; here it is a number: g(s, 0) = 1.
// Implementation: src/scaling/yarn.cpp.
#pragma once
#include "posenc/scaling/correction.h"

namespace posenc::inline v0 {

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

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  // The same for another scaling, with errors in its name.
  POSENC_API Spectrum rescale_as(std::string_view who, Spectrum s) const;

  // The factor of cos and sin.
  POSENC_API double gain() const;
  // The factor of the softmax scale if logit_from_mscale is set.
  POSENC_API double logit() const;
  POSENC_API CorrectionRange range_of(const Geometric& law, double length,
                                      std::string_view who = "yarn") const;

  bool operator==(const Yarn&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("factor", s.factor,
      Field{.doc = "s, new length over trained length", .min = 1e-300, .required = true});
    v("original_context", s.original_context,
      Field{.doc = "L, trained length", .unit = "tokens", .min = 1, .required = true});
    v("beta_fast", s.beta_fast,
      Field{
          .doc = "pairs of more rotations within L are unchanged", .unit = "turns", .min = 1e-300});
    v("beta_slow", s.beta_slow,
      Field{.doc = "pairs of fewer rotations are divided by s", .unit = "turns", .min = 1e-300});
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
    v("apply_scale", s.apply_scale, Field{.doc = "false: the gain is only attn_factor"});
    v("logit_from_mscale", s.logit_from_mscale,
      Field{.doc = "softmax scale times g(s, mscale_all_dim)^2"});
    v("ramp", s.ramp, Field{.doc = "linear in the pair index (codes) or in turns (paper)"});
    v("blend", s.blend, Field{.doc = "mean of the frequencies or of their logarithms"});
    v("reversed_range", s.reversed_range,
      Field{.doc = "what to do with a reversed correction range"});
    v("range_context", s.range_context,
      Field{.doc = "length of the correction range, 0 = L",
            .unit = "tokens",
            .min = 0,
            .from = "original_context"});
  }

 private:
  double g(double m) const { return detail::mscale_amplitude(factor, m, mscale_slope); }

  void check(std::string_view who) const;

  std::string_view not_of_ggml(const Spectrum& s, CorrectionRange range) const;
  void tell_ggml(Spectrum& s, CorrectionRange range, double amplitude) const;
  static void detail_gain(Spectrum& s, double amplitude);
};

}  // namespace posenc::v0
