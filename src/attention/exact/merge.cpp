// SPDX-License-Identifier: Apache-2.0
// Partial results over disjoint keys -> the whole.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "attention/exact/gradient_sums.h"
#include "core/element.h"
#include "core/extent.h"
#include "core/known_enum.h"
#include "core/shape.h"
#include "posenc/attention/attend.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

void check_part(const ConstAttentionResult& r, const ResultSizes& s, bool needs_lse,
                const FieldName& what) {
  check_result_view(kAttention, r, s, "must have the shape of the whole", what);
  if (needs_lse && r.log_sum_exp.empty() && saturated_product({s.batch, s.heads, s.queries}) > 0)
    refuse_field(kAttention, what, "must have log_sum_exp");
  check_log_sum_exp(kAttention, r.log_sum_exp, s, {what, " log_sum_exp"});
}

ResultSizes check_merge(std::span<const ConstAttentionResult> parts, const ConstHeads& whole,
                        Normalisation how) {
  check_known(kAttention, "normalisation", how);
  if (how == Normalisation::stick_breaking_own)
    refuse_field(kAttention, "parts", "must be of softmax or stick_breaking", enum_text(how));
  check_extent(kAttention, "the whole", whole);
  const ResultSizes s{whole.batch, whole.tokens, whole.heads, whole.dim};
  for (const ConstAttentionResult& p : parts) check_part(p, s, true, "a part");
  return s;
}

struct RowAt {
  Index b, h, t;
  Index of(const ConstHeads& o) const noexcept {
    return b * o.batch_stride + h * o.head_stride + t * o.token_stride;
  }
  Index of(const ConstTensorView& l) const noexcept {
    return b * l.stride[0] + h * l.stride[1] + t * l.stride[2];
  }
};
template <class F>
void each_result_row(const ResultSizes& s, const F& fn) {
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.heads; ++h)
      for (Index t = 0; t < s.queries; ++t) fn(RowAt{b, h, t});
}

double entry(const ConstHeads& o, const RowAt& row, Index d) noexcept {
  return float_element(o.data, o.dtype, row.of(o) + d * o.dim_stride);
}
double entry(const ConstTensorView& l, const RowAt& row) noexcept {
  return l.empty() ? 0 : float_element(l.data, l.dtype, row.of(l));
}

bool is_float_row(const ConstHeads& o) noexcept {
  return o.dtype == DType::f32 && o.dim_stride == 1;
}
void add_row(const ConstHeads& o, const RowAt& row, double share, std::span<double> sum) noexcept {
  const std::size_t dim = sum.size();
  if (is_float_row(o)) {
    const float* x = static_cast<const float*>(o.data) + row.of(o);
    for (std::size_t d = 0; d < dim; ++d) sum[d] += share * static_cast<double>(x[d]);
    return;
  }
  for (std::size_t d = 0; d < dim; ++d) sum[d] += share * entry(o, row, static_cast<Index>(d));
}
void put_row(const Heads& o, const RowAt& row, std::span<const double> sum) noexcept {
  const std::size_t dim = sum.size();
  if (is_float_row(o)) {
    float* y = static_cast<float*>(o.data) + row.of(o);
    for (std::size_t d = 0; d < dim; ++d) y[d] = static_cast<float>(sum[d]);
    return;
  }
  for (std::size_t d = 0; d < dim; ++d)
    put_element(o.data, o.dtype, row.of(o) + static_cast<Index>(d) * o.dim_stride, sum[d]);
}

// What each part counts, and the log-sum-exp of all. softmax: e^(l_n - L), L = ln sum e^l_n.
// Stick-breaking: e^(sum of l of the parts before), L their sum.
double fill_shares(std::span<const ConstAttentionResult> parts, Normalisation how, const RowAt& row,
                   std::vector<double>& share) {
  share.assign(parts.size(), 0.0);
  if (how == Normalisation::stick_breaking) {
    double left = 0;
    for (std::size_t n = 0; n < parts.size(); ++n) {
      share[n] = std::exp(left);
      left += entry(parts[n].log_sum_exp, row);
    }
    return left;
  }
  double top = -HUGE_VAL, total = 0;
  for (const ConstAttentionResult& p : parts) {
    const double l = entry(p.log_sum_exp, row);
    if (std::isnan(l) || l > top) top = l;
    if (std::isnan(l)) break;
  }
  if (top == -HUGE_VAL) return top;
  for (const ConstAttentionResult& p : parts) total += std::exp(entry(p.log_sum_exp, row) - top);
  const double whole = top + std::log(total);
  for (std::size_t n = 0; n < parts.size(); ++n)
    share[n] = std::exp(entry(parts[n].log_sum_exp, row) - whole);
  return whole;
}

}  // namespace
}  // namespace detail

void merge(std::span<const ConstAttentionResult> parts, const AttentionResult& whole,
           Normalisation how) {
  using namespace detail;
  const ResultSizes s = check_merge(parts, whole.out, how);
  check_part(whole, s, false, "the whole");
  check_overlap(parts, whole);
  std::vector<double> share, sum(static_cast<std::size_t>(s.dim));
  each_result_row(s, [&](const RowAt& row) {
    const double l = fill_shares(parts, how, row, share);
    std::fill(sum.begin(), sum.end(), 0.0);
    for (std::size_t n = 0; n < parts.size(); ++n)
      if (share[n] != 0) add_row(parts[n].out, row, share[n], sum);
    put_row(whole.out, row, sum);
    if (!whole.log_sum_exp.empty())
      put_element(whole.log_sum_exp.data, whole.log_sum_exp.dtype, row.of(whole.log_sum_exp), l);
  });
}

// softmax: d out_n = share_n D, d l_n = share_n (D.(out_n - out) + d L). Stick-breaking: d l_n = d L
// + sum over the parts m after n of share_m D.out_m.
void merge_backward(std::span<const ConstAttentionResult> parts, const ConstAttentionResult& whole,
                    const ConstAttentionResult& d_whole, std::span<const AttentionResult> d_parts,
                    Normalisation how) {
  using namespace detail;
  const ResultSizes s = check_merge(parts, whole.out, how);
  check_part(whole, s, false, "the whole");
  check_part(d_whole, s, false, "the gradient of the whole");
  if (d_parts.size() != parts.size())
    refuse_number(kAttention, "d_parts", "there must be a gradient for each part",
                  static_cast<Index>(d_parts.size()));
  for (const AttentionResult& d : d_parts) {
    if (d.out.data != nullptr) check_part({d.out, {}}, s, false, "the gradient of a part");
    if (d.out.data != nullptr && d.out.dtype != DType::f64 && d.out.dtype != DType::f32)
      refuse_field(kAttention, "the gradient of a part", "must be f64 or f32",
                   dtype_name(d.out.dtype));
    if (!d.log_sum_exp.empty())
      check_part({whole.out, d.log_sum_exp}, s, true, "the gradient of a part");
  }
  check_overlap(parts, whole, d_whole, d_parts);
  const bool softmax = how == Normalisation::softmax;
  std::vector<double> share;
  each_result_row(s, [&](const RowAt& row) {
    fill_shares(parts, how, row, share);
    const double d_l = entry(d_whole.log_sum_exp, row);
    double after = 0;
    for (std::size_t n = parts.size(); n-- > 0;) {
      const TensorView& l = d_parts[n].log_sum_exp;
      if (share[n] == 0) {  // an empty part may hold anything, but its remainder is a factor of all
        if (!softmax && !l.empty() && entry(whole.log_sum_exp, row) != -HUGE_VAL)
          add_element(l.data, l.dtype, row.of(l), d_l + after);
        continue;
      }
      double along = 0;
      const Heads& to = d_parts[n].out;
      for (Index x = 0; x < s.dim; ++x) {
        const double d = entry(d_whole.out, row, x);
        along += d * (entry(parts[n].out, row, x) - (softmax ? entry(whole.out, row, x) : 0));
        if (to.data != nullptr)
          add_element(to.data, to.dtype, row.of(to) + x * to.dim_stride, share[n] * d);
      }
      if (!l.empty())
        add_element(l.data, l.dtype, row.of(l), softmax ? share[n] * (along + d_l) : d_l + after);
      after += share[n] * along;
    }
  });
}

}  // namespace posenc::v0
