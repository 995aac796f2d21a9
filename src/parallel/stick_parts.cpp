// SPDX-License-Identifier: Apache-2.0
#include "parallel/stick_parts.h"

#include <cmath>
#include <cstring>

#include "core/element.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

double* sum_at(const TensorView& v, Index b, Index h, Index t) noexcept {
  return static_cast<double*>(v.data) + b * v.stride[0] + h * v.stride[1] + t * v.stride[2];
}
double sum_at(const ConstTensorView& v, Index b, Index h, Index t) noexcept {
  if (v.empty()) return 0;
  return float_element(v.data, v.dtype, b * v.stride[0] + h * v.stride[1] + t * v.stride[2]);
}
Index row_at(const ConstHeads& o, Index b, Index h, Index t) noexcept {
  return b * o.batch_stride + h * o.head_stride + t * o.token_stride;
}

}  // namespace

void check_sticks(const AttentionArgs& a) {
  if (a.normalisation == Normalisation::stick_breaking_own)
    refuse(kRing, "results over parts of the keys do not merge in calls with stick_breaking_own");
  if (!a.mask.causal) refuse_field(kRing, "mask.causal", "must be set with stick-breaking");
  for (const ConstTensorView* v : {&a.mask.query_order, &a.mask.key_order})
    if (runs_of(*v, 1).empty())
      refuse(kRing,
             "stick-breaking merges from the last keys: the tokens of a rank must be neighbours "
             "(contiguous)");
}

void check_stick_order(const Group& group, const AttentionArgs& a) {
  const TokenRun q = runs_of(a.mask.query_order, 1).front(),
                 k = runs_of(a.mask.key_order, 1).front();
  const Index own[] = {k.order, k.order + k.count - 1, q.order + q.count - 1};
  const std::vector<std::byte> bytes = gather(group, std::as_bytes(std::span(own)));
  std::vector<Index> all(bytes.size() / sizeof(Index));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  for (std::size_t r = 0; r * 3 < all.size(); ++r) {
    const bool follows = r == 0 || all[3 * r] > all[3 * r - 2];
    if (!follows || all[3 * r + 2] > all[3 * r + 1])
      refuse(kRing,
             "stick-breaking merges from the last keys: the tokens of a rank must follow those of "
             "the rank before");
  }
}

StickParts::StickParts(const RingCall& call, const ConstAttentionResult& whole,
                       const ConstAttentionResult& d_whole)
    : whole_(whole), d_whole_(d_whole) {
  part_ = {new_heads(whole.out, call.type, part_out_), new_sums(whole.out, part_sums_)};
  d_part_ = {new_heads(whole.out, call.type, d_out_), new_sums(whole.out, d_sums_)};
  sum_so_far_ = new_heads(whole.out, DType::f64, sum_);
  left_so_far_ = new_sums(whole.out, left_);
  std::fill(sum_.begin(), sum_.end(), std::byte{0});
  std::fill(left_.begin(), left_.end(), std::byte{0});
}

ConstAttentionResult StickParts::advance() {
  const ConstHeads &o = whole_.out, &d = d_whole_.out, part = part_.out;
  double* const so_far = static_cast<double*>(sum_so_far_.data);
  for (Index b = 0; b < o.batch; ++b)
    for (Index h = 0; h < o.heads; ++h)
      for (Index t = 0; t < o.tokens; ++t) {
        double& left = *sum_at(left_so_far_, b, h, t);
        const double share = std::exp(left);
        double after = 0;
        for (Index c = 0; c < o.dim; ++c) {
          const double upstream =
              float_element(d.data, d.dtype, row_at(d, b, h, t) + c * d.dim_stride);
          double& sum = so_far[row_at(sum_so_far_, b, h, t) + c];
          if (share != 0)
            sum += share * float_element(part.data, part.dtype, row_at(part, b, h, t) + c);
          after += upstream *
                   (float_element(o.data, o.dtype, row_at(o, b, h, t) + c * o.dim_stride) - sum);
          put_element(d_part_.out.data, d_part_.out.dtype, row_at(d_part_.out, b, h, t) + c,
                      share * upstream);
        }
        *sum_at(d_part_.log_sum_exp, b, h, t) = after + sum_at(d_whole_.log_sum_exp, b, h, t);
        left += *sum_at(part_.log_sum_exp, b, h, t);
      }
  return d_part_;
}

}  // namespace posenc::v0::detail
