// SPDX-License-Identifier: Apache-2.0
#include "rotary/compat.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

// Streams t, h, w, e.
constexpr Index kGgmlAxes = 4;

const double* frequencies(const Spectrum& s, Index head) noexcept {
  return s.frequency.data() + (s.heads == 1 ? 0 : head * s.axes * s.pairs());
}

float to_bfloat16(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

// transformers, modeling_rope_utils and the models' forward: float32(inverse frequency) times
// float32(position), rounded to float32.
float hf_angle(const double* frequency, Index axes, Index pairs, const double* position) noexcept {
  float angle = 0;
  for (Index a = 0; a < axes; ++a)
    if (const double w = frequency[a * pairs]; w != 0)
      angle += static_cast<float>(w) * static_cast<float>(position[a]);
  return angle;
}

// ... cosine and sine; times the attention factor in float32. The cosine is rounded correctly;
// theirs is within 1 ulp of that.
void hugging_face(const Spectrum& s, bool bfloat16, Index head, const double* position,
                  Index pair_begin, Index pair_end, float* c, float* s_out) noexcept {
  const double* f = frequencies(s, head);
  const auto gain = static_cast<float>(s.gain);
  for (Index i = pair_begin; i < pair_end; ++i) {
    const double x = hf_angle(f + i, s.axes, s.pairs(), position);
    float cosine = static_cast<float>(std::cos(x)) * gain;
    float sine = static_cast<float>(std::sin(x)) * gain;
    if (bfloat16) cosine = to_bfloat16(cosine), sine = to_bfloat16(sine);
    c[i - pair_begin] = cosine, s_out[i - pair_begin] = sine;
  }
}

// The constants of ggml's rotary operator for one call.
struct GgmlCall {
  float theta_scale, freq_scale, ext_factor, magnitude, low, high;
};

// Pair at which `beta` turns fit the original context; ggml's float32.
float correction_pair(const GgmlForm& g, float beta) noexcept {
  const auto n = static_cast<float>(g.n_dims);
  const auto context = static_cast<float>(g.original_context);
  return n * std::log(context / (beta * 2 * 3.14159265358979323846f)) /
         (2 * std::log(static_cast<float>(g.base)));
}

GgmlCall ggml_call(const GgmlForm& g) noexcept {
  GgmlCall r{};
  r.theta_scale = std::pow(static_cast<float>(g.base), -2.0f / static_cast<float>(g.n_dims));
  r.freq_scale = static_cast<float>(g.freq_scale);
  r.ext_factor = static_cast<float>(g.ext_factor);
  r.magnitude = static_cast<float>(g.attn_factor);
  if (r.ext_factor != 0) {
    r.magnitude *= 1.0f + 0.1f * std::log(1.0f / r.freq_scale);
    const float low = std::floor(correction_pair(g, static_cast<float>(g.beta_fast)));
    const float high = std::ceil(correction_pair(g, static_cast<float>(g.beta_slow)));
    r.low = std::max(0.0f, low);
    r.high = std::min(static_cast<float>(g.n_dims - 1), high);
  }
  return r;
}

// The angle of pair i. YaRN (Peng et al., arXiv:2309.00071) with the ramp over the pair's number.
float ggml_angle(const GgmlCall& g, float theta, Index i) noexcept {
  const float interpolated = g.freq_scale * theta;
  if (g.ext_factor == 0) return interpolated;
  const float y = (static_cast<float>(i) - g.low) / std::max(0.001f, g.high - g.low);
  const float mix = (1 - std::min(1.0f, std::max(0.0f, y))) * g.ext_factor;
  return interpolated * (1 - mix) + theta * mix;
}

// ggml-cpu: the angle of pair 0 is the position; from pair to pair it is multiplied by theta_scale.
void ggml(const Spectrum& s, const double* position, Index pair_begin, Index pair_end, float* c,
          float* s_out) noexcept {
  const GgmlForm& form = *s.ggml;
  const GgmlCall g = ggml_call(form);
  const Index pairs = s.pairs();
  float start[kGgmlAxes], theta[kGgmlAxes];
  for (Index a = 0; a < s.axes; ++a) start[a] = theta[a] = static_cast<float>(position[a]);
  std::size_t restarts = 0;
  for (Index i = 0; i < pair_end; ++i) {
    if (restarts < form.restart.size() && form.restart[restarts] == i) {
      ++restarts;
      for (Index a = 0; a < s.axes; ++a) theta[a] = start[a];
    }
    if (i >= pair_begin) {
      Index axis = -1;
      for (Index a = 0; a < s.axes; ++a)
        if (s.frequency[static_cast<std::size_t>(a * pairs + i)] != 0) axis = a;
      const float divisor = form.factors.empty()
                                ? 1.0f
                                : static_cast<float>(form.factors[static_cast<std::size_t>(i)]);
      const float angle = axis < 0 ? 0.0f : ggml_angle(g, theta[axis] / divisor, i);
      c[i - pair_begin] = std::cos(angle) * g.magnitude;
      s_out[i - pair_begin] = std::sin(angle) * g.magnitude;
    }
    for (Index a = 0; a < s.axes; ++a) theta[a] *= g.theta_scale;
  }
}

void check_ggml(const Spectrum& s) {
  if (!s.ggml)
    refuse("ggml",
           "precision ggml needs frequencies that ggml can be told of (one base, divisors, linear, "
           "YaRN with truncate=true)",
           s.ggml_dropped.why.empty() ? "a scheme with others" : s.ggml_dropped.why);
  const GgmlForm& g = *s.ggml;
  const Index pairs = s.pairs();
  if (s.heads != 1) refuse("ggml", "ggml rotates all heads alike, heads with frequencies", s.heads);
  if (s.axes > kGgmlAxes) refuse("ggml", "ggml has four position streams, axes", s.axes);
  for (Index i = 0; i < pairs; ++i) {
    Index used = 0;
    for (Index a = 0; a < s.axes; ++a)
      used += s.frequency[static_cast<std::size_t>(a * pairs + i)] != 0;
    if (used > 1) refuse("ggml", "ggml rotates a pair by one position stream only, pair", i);
  }
  if (g.n_dims < 1) refuse_field("ggml", "n_dims", "must be positive", g.n_dims);
  if (!(g.base > 0) || !std::isfinite(g.base))
    refuse_field("ggml", "base", "must be positive", g.base);
  if (!(g.freq_scale > 0) || !std::isfinite(g.freq_scale))
    refuse_field("ggml", "freq_scale", "must be positive", g.freq_scale);
  if (!g.factors.empty() && static_cast<Index>(g.factors.size()) != pairs)
    refuse_field("ggml", "factors", "must be one a pair", static_cast<Index>(g.factors.size()));
  if (!std::is_sorted(g.restart.begin(), g.restart.end()) ||
      std::adjacent_find(g.restart.begin(), g.restart.end()) != g.restart.end())
    refuse_field("ggml", "restart", "must rise");
  if (g.ext_factor != 0 && g.original_context < 1)
    refuse_field("ggml", "ext_factor", "needs original_context", g.original_context);
}

}  // namespace

void check_compat(const Spectrum& s, Precision p) {
  check_spectrum(s);
  if (p == Precision::ggml) check_ggml(s);
}

void compat_phase(const Spectrum& s, Precision p, Index head, const double* position,
                  Index pair_begin, Index pair_end, float* cos, float* sin) noexcept {
  if (p == Precision::ggml) {
    ggml(s, position, pair_begin, pair_end, cos, sin);
  } else {
    hugging_face(s, p == Precision::hf_bfloat16_table, head, position, pair_begin, pair_end, cos,
                 sin);
  }
}

void hf_phase(const Spectrum& s, Index head, const double* position, Index pair_begin,
              Index pair_end, double* cos, double* sin) noexcept {
  const double* f = frequencies(s, head);
  const double gain = s.gain;
  for (Index i = pair_begin; i < pair_end; ++i) {
    const double x = hf_angle(f + i, s.axes, s.pairs(), position);
    cos[i - pair_begin] = std::cos(x) * gain, sin[i - pair_begin] = std::sin(x) * gain;
  }
}

}  // namespace posenc::v0::detail
