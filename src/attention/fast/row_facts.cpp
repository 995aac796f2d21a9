// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/row_facts.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "attention/call/pieces.h"
#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

// A log-sum-exp in float is off by 2^-24 of it, and so are all weights of the row.
constexpr double kLargestFloatSum = 64;

}  // namespace

namespace {

const std::byte* token_at(const ConstHeads& x, Index b, Index t, Index h) noexcept {
  return static_cast<const std::byte*>(x.data) +
         (b * x.batch_stride + t * x.token_stride + h * x.head_stride) * size_of(x.dtype);
}
bool reads_in_place(const ConstHeads& x) noexcept {
  return x.dim_stride == 1 && x.dtype != DType::f64;
}

}  // namespace

// Whether float can work with a token, and with all heads of one; x: memory.
bool RowFacts::is_bounded(const ConstHeads& x, Index b, Index t, Index h, float factor,
                          float* memory) const noexcept {
  if (!reads_in_place(x)) return take_vector(call_.kernels, x, b, t, h, factor, memory, x.dim);
  return call_.kernels.is_bounded[fast_type(x.dtype)](token_at(x, b, t, h), x.dim, factor);
}
bool RowFacts::are_bounded(const ConstHeads& x, Index b, Index t, float* memory) const noexcept {
  if (reads_in_place(x) && x.head_stride == x.dim)
    return call_.kernels.is_bounded[fast_type(x.dtype)](token_at(x, b, t, 0), x.heads * x.dim, 1);
  for (Index h = 0; h < x.heads; ++h)
    if (!is_bounded(x, b, t, h, 1, memory)) return false;
  return true;
}

bool RowFacts::is_query_bounded(Index b, Index h, Index i, float* memory) const noexcept {
  if (!call_.wide.none()) return call_.take_query(b, h, i, memory, call_.D);
  const auto factor = static_cast<float>(call_.row_factor(b, h, i) * kLog2E);
  return std::isfinite(factor) && is_bounded(call_.q, b, i, h, factor, memory);
}

// out.d_out; false where float cannot work with a number of them.
bool RowFacts::dot(const ConstHeads& out, const ConstHeads& d, Index b, Index t, Index h,
                   const Scratch& s, float& sum) const noexcept {
  if (out.dtype == d.dtype && reads_in_place(out) && reads_in_place(d))
    return call_.kernels.dot[fast_type(d.dtype)](token_at(out, b, t, h), token_at(d, b, t, h),
                                                 call_.V, sum);
  const bool bounded = take_vector(call_.kernels, out, b, t, h, 1, s.x, width_) &&
                       take_vector(call_.kernels, d, b, t, h, 1, s.y, width_);
  sum = tiles_.dot(s.x, s.y, width_);
  return bounded;
}

RowFacts::RowFacts(const FastCall& c, CallArena& arena, const Executor& executor)
    : call_(c),
      tiles_(fast_tile_kernels(active_isa())),
      tasks_(task_count(executor, c.B * c.H * c.Tq, most_tasks(c))),
      width_(whole_vectors(std::max(c.channels, c.V), tiles_.lanes)),
      log2_sum_(arena.array<double>(c.B * c.H * c.Tq)),
      less_(arena.array<double>(c.B * c.H * c.Tq)),
      seen_(tiles_seen(c, c.args.normalisation == Normalisation::stick_breaking_own, arena)),
      scratch_(arena.array<float>(tasks_ * 2 * width_)),
      works_(arena.made<FastWork>(tasks_, [&](Index) { return FastWork(c, arena); })) {}

bool RowFacts::find_row(const ConstAttentionResult& result, const ConstAttentionResult& d,
                        Index row, const Scratch& s, bool& again) noexcept {
  const Index i = row % call_.Tq, h = row / call_.Tq % call_.H, b = row / call_.Tq / call_.H;
  const auto n = static_cast<std::size_t>(row);
  const ConstTensorView& sums = result.log_sum_exp;
  const bool sticks = breaks_sticks(call_.args);
  double sum = sums.empty() ? 0 : read_number(sums, b, h, i);
  log2_sum_[n] = HUGE_VAL, less_[n] = 0;
  if (!sticks && sum == -HUGE_VAL) return true;
  // A score beyond kLargestScore has no digits behind the point.
  if (!(std::fabs(sum) <= static_cast<double>(kLargestScore))) return false;
  // What a stick leaves is found again from its scores.
  if (sticks) sum = 0;
  again = again || sums.empty() || (sums.dtype != DType::f64 && std::fabs(sum) > kLargestFloatSum);
  log2_sum_[n] = sum * kLog2E;
  float along = 0;
  for (const RowTerm& t : call_.rows.all())
    if (!t.of_keys && !take_row_vector(call_, t, {b, h, i, {}, {}, 0}, s.x)) return false;
  if (!call_.gates.none() && !take_level_query(call_, {b, h, i, {}, {}, 0}, s.x)) return false;
  if (!is_query_bounded(b, h, i, s.x) || !dot(result.out, d.out, b, i, h, s, along)) return false;
  const double d_sum = d.log_sum_exp.empty() ? 0 : read_number(d.log_sum_exp, b, h, i);
  less_[n] = sticks ? d_sum : static_cast<double>(along) - d_sum;
  return std::fabs(less_[n]) <= static_cast<double>(kLargestValue);
}

bool RowFacts::is_seen(Index row, Index key) const noexcept {
  const ConstTensorView& visible = call_.args.mask.key_visible;
  const Index tile = row * (whole_tiles(call_.Tk) / kTile) + key / kTile;
  return seen_[static_cast<std::size_t>(tile)] != 0 &&
         (visible.empty() || read_index(visible, row, key) != 0);
}

// Log-sum-exps that are missing, or too coarse in float, from the scores.
bool RowFacts::sum_again(const Executor& executor) noexcept {
  std::atomic<bool> bounded{true};
  parallel_for(executor, static_cast<Index>(call_.blocks.size()), tasks_,
               [&](Index begin, Index end, Index task) noexcept {
                 FastWork& w = works_[static_cast<std::size_t>(task)];
                 for (Index n = begin; n < end && !is_cancelled(executor); ++n) {
                   run_rows(call_, call_.blocks[static_cast<std::size_t>(n)], w);
                   for (const RowGroup& g : w.groups)
                     for (Index m = 0; m < g.count; ++m) {
                       const FastRow& r = g.row[m];
                       const double sum =
                           breaks_sticks(call_.args)
                               ? 0
                               : total_of(call_, w, r.h, g.first + m, true).log_sum_exp * kLog2E;
                       if (w.left[static_cast<std::size_t>(g.first + m)] != 0 || std::isnan(sum) ||
                           sum == HUGE_VAL)
                         bounded = false;
                       log2_sum_[at(r.b, r.h, r.i)] = sum == -HUGE_VAL ? HUGE_VAL : sum;
                     }
                 }
               });
  return bounded;
}

bool RowFacts::find(const ConstAttentionResult& result, const ConstAttentionResult& d,
                    const Executor& executor) noexcept {
  if (!call_.rows.are_bounded() || !call_.value_rows.are_bounded() || !call_.gates.are_bounded())
    return false;
  std::atomic<bool> bounded{true}, again{false};
  const auto scratch = [&](Index task) {
    float* x = scratch_.data() + task * 2 * width_;
    return Scratch{x, x + width_};
  };
  parallel_for(executor, call_.B * call_.H * call_.Tq, tasks_,
               [&](Index begin, Index end, Index task) noexcept {
                 bool some = false;
                 for (Index row = begin; row < end && bounded; ++row)
                   if (!find_row(result, d, row, scratch(task), some)) bounded = false;
                 if (some) again = true;
               });
  parallel_for(executor, call_.R * call_.Tk, tasks_,
               [&](Index begin, Index end, Index task) noexcept {
                 for (Index token = begin; token < end && bounded; ++token) {
                   const Index row = token / call_.Tk, key = token % call_.Tk;
                   if (!is_seen(row, key)) continue;
                   float* memory = scratch(task).x;
                   if (!are_bounded(call_.k, row, key, memory) ||
                       !are_bounded(call_.args.v, row, key, memory) ||
                       !call_.wide.is_bounded(call_.kernels, row, key, memory) ||
                       !call_.rows.is_key_bounded(row, key))
                     bounded = false;
                 }
               });
  return bounded && (!again || sum_again(executor));
}

}  // namespace posenc::v0::detail
