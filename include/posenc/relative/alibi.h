// SPDX-License-Identifier: Apache-2.0
// ALiBi: a bias linear in distance. Press et al., arXiv:2108.12409, section 3:
//   S_ij += -m_h (i - j)   for keys in the past; not multiplied by 1 / sqrt(head_dim)
// Slopes (the authors' code, BLOOM, MPT, ggml): with n the largest power of two <= heads,
//   m_h = 2^(-max_bias (h + 1) / n)                  h < n
//   m_h = 2^(-max_bias / 2 (2 (h - n) + 1) / n)      the others, last
// `literal` is the paper's sentence read for any head count, 2^(-max_bias (h + 1) / heads): another
// function unless heads is a power of two. The distance form is the definition: forms that differ
// by a number a row (BLOOM's m j) have the same output and another log-sum-exp.
#pragma once
#include <bit>
#include <cmath>

#include "posenc/core/error.h"
#include "posenc/relative/term.h"

namespace posenc {

enum class AlibiSlopes : std::uint8_t { published, literal };
template <>
struct EnumNames<AlibiSlopes> {
  static constexpr std::array<std::string_view, 2> value{"published", "literal"};
};
// What a key in the future gets, without a causal mask: -m |d| (FlashAttention, x-transformers,
// data2vec) or +m |d|, the signed distance (attention-gym).
enum class AlibiFuture : std::uint8_t { symmetric, signed_distance };
template <>
struct EnumNames<AlibiFuture> {
  static constexpr std::array<std::string_view, 2> value{"symmetric", "signed_distance"};
};
// fixed; or a parameter of one number a head: the slope, or its logarithm.
enum class AlibiLearned : std::uint8_t { fixed, slopes, log_slopes };
template <>
struct EnumNames<AlibiLearned> {
  static constexpr std::array<std::string_view, 3> value{"fixed", "slopes", "log_slopes"};
};

struct Alibi {
  static constexpr Card card{"alibi", "attention with linear biases", "arXiv:2108.12409", "sec. 3"};
  AlibiSlopes slopes = AlibiSlopes::published;
  double max_bias = 8;  // MPT's alibi_bias_max
  AlibiFuture future = AlibiFuture::symmetric;
  AlibiLearned learned = AlibiLearned::fixed;
  Index alibi_heads =
      0;  // only the first so many heads get a slope, as if there were no others; 0: all
  double past_offset =
      0;  // times m, on keys strictly in the past (DeepMind's bidirectional form: 1/2)
  double bias_scale = 1;  // Falcon: 1 / sqrt(head_dim)
  Index axis = 0;         // of the positions; manhattan distance is one ALiBi an axis

  // m of every head.
  std::vector<double> slope(Index heads) const {
    const Index n = alibi_heads > 0 ? alibi_heads : heads;
    const Index whole = static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(n)));
    std::vector<double> m(static_cast<std::size_t>(heads), 0.0);
    for (Index h = 0; h < n; ++h) {
      double exponent = max_bias * static_cast<double>(h + 1) / static_cast<double>(whole);
      if (slopes == AlibiSlopes::literal)
        exponent = max_bias * static_cast<double>(h + 1) / static_cast<double>(n);
      else if (h >= whole)
        exponent =
            max_bias * static_cast<double>(2 * (h - whole) + 1) / static_cast<double>(2 * whole);
      m[static_cast<std::size_t>(h)] = std::exp2(-exponent);
    }
    return m;
  }

  std::vector<Parameter> parameters(const ScoreShape& s) const {
    check_fields(s);
    if (learned == AlibiLearned::fixed) return {};
    Parameter p{
        learned == AlibiLearned::slopes ? "slopes" : "log_slopes", {s.heads}, {}, slope(s.heads)};
    if (learned == AlibiLearned::log_slopes)
      for (double& x : p.initial_values) x = std::log(x);
    return {p};
  }

  void lower(const ScoreShape& s, std::span<const TensorView> p, LoweredTerms& out) const {
    const std::vector<double> m = slope_of(s, p);
    std::vector<double> sides, offset;
    for (const double x : m) {
      sides.push_back(-x);
      sides.push_back(future == AlibiFuture::symmetric ? -x : x);
      offset.push_back(0);
      offset.push_back(past_offset * x);
    }
    Term t;
    t.kind = TermKind::linear;
    t.axis = static_cast<std::int32_t>(axis);
    t.scale = bias_scale;
    t.table = out.table(std::move(sides), {s.heads, 2});
    out.terms.push_back(t);
    if (past_offset == 0) return;
    Term past;
    past.kind = TermKind::line;
    past.scale = bias_scale;
    past.lines[0] = out.line({0, 1}, 0, t.axis);
    past.table = out.table(std::move(offset), {s.heads, 2});
    out.terms.push_back(past);
  }

  void pull_back(const ScoreShape& s, std::span<const TensorView> p,
                 std::span<const TermGradient> g, std::span<const TensorView> dp) const {
    const std::vector<double> m = slope_of(s, p);
    check_parameter_count("alibi", p.size(), dp.size());
    if (dp.empty()) return;
    const std::vector<double> d =
        gradient_values("alibi", gradient_of("alibi", g, 0).table, {s.heads, 2});
    const std::vector<double> past = gradient_values(
        "alibi", past_offset == 0 ? TensorView{} : gradient_of("alibi", g, 1).table, {s.heads, 2});
    std::vector<double> dm(m.size());
    for (std::size_t h = 0; h < m.size(); ++h) {
      dm[h] = -d[2 * h] + (future == AlibiFuture::symmetric ? -1 : 1) * d[2 * h + 1] +
              past_offset * past[2 * h + 1];
      if (learned == AlibiLearned::log_slopes) dm[h] *= m[h];
    }
    accumulate("alibi", parameters(s)[0], dp[0], dm);
  }

  bool operator==(const Alibi&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("slopes", s.slopes, Field{.doc = "rule for head counts that are no power of two"});
    v("max_bias", s.max_bias, Field{.doc = "exponent of the last slope", .min = 0, .max = 1000});
    v("future", s.future, Field{.doc = "bias of keys in the future"});
    v("learned", s.learned, Field{.doc = "one learned number a head"});
    v("alibi_heads", s.alibi_heads,
      Field{.doc = "heads that get a slope, 0 = all", .min = 0, .max = 65536});
    v("past_offset", s.past_offset, Field{.doc = "times the slope, on the strict past"});
    v("bias_scale", s.bias_scale, Field{.doc = "multiplies the bias"});
    v("axis", s.axis, Field{.doc = "axis of the positions", .min = 0, .max = 7});
  }

 private:
  void check_fields(const ScoreShape& s) const {
    check_score_shape(s, "alibi");
    if (alibi_heads < 0 || alibi_heads > s.heads)
      refuse("alibi", "alibi_heads must lie between 0 and heads", alibi_heads);
    if (!std::isfinite(max_bias) || max_bias < 0)
      refuse("alibi", "max_bias must be finite and not negative", max_bias);
    if (!std::isfinite(past_offset)) refuse("alibi", "past_offset must be finite", past_offset);
    if (!std::isfinite(bias_scale)) refuse("alibi", "bias_scale must be finite", bias_scale);
    if (axis < 0 || axis > 7) refuse("alibi", "axis must lie between 0 and 7", axis);
    if (learned == AlibiLearned::log_slopes && alibi_heads != 0)
      refuse("alibi", "log_slopes cannot be of heads without slope, alibi_heads", alibi_heads);
  }
  std::vector<double> slope_of(const ScoreShape& s, std::span<const TensorView> p) const {
    const std::vector<Parameter> needed = parameters(s);
    check_parameter_count("alibi", needed.size(), p.size());
    if (needed.empty()) return slope(s.heads);
    std::vector<double> m = parameter_values("alibi", needed[0], p[0]);
    if (learned == AlibiLearned::log_slopes)
      for (double& x : m) x = std::exp(x);
    return m;
  }
};
static_assert(RelativeScheme<Alibi>);

}  // namespace posenc
