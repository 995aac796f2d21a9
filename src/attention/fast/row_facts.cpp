// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/row_facts.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "attention/call/pieces.h"
#include "core/element.h"
#include "core/q8_0.h"

namespace posenc::inline v0::detail {
namespace {

// A log-sum-exp in float is off by 2^-24 of it, and so are all weights of the row.
constexpr double kLargestFloatSum = 64;

// Rows whose products are in memory at once.
constexpr Index kRowsAtOnce = 64;

}  // namespace

bool RowFacts::are_bounded(const ConstHeads& x, Index b, Run tokens, Run heads, float factor,
                           float* memory) const noexcept {
  const FastKernels& k = call_.kernels;
  const Index count = tokens.end - tokens.begin;
  const auto are = k.are_bounded[fast_type(x.dtype)];
  if (is_readable(x) && x.head_stride == x.dim && !has_blocks(x))
    return are(token_at(x, b, tokens.begin, heads.begin), x.token_stride, count,
               (heads.end - heads.begin) * x.dim, factor);
  bool bounded = true;
  for (Index h = heads.begin; h < heads.end && bounded; ++h) {
    if (is_readable(x))
      bounded = are(token_at(x, b, tokens.begin, h), x.token_stride, count, x.dim, factor);
    for (Index t = tokens.begin; !is_readable(x) && bounded && t < tokens.end; ++t)
      bounded = take_vector(k, x, b, t, h, factor, memory, x.dim);
  }
  return bounded;
}

bool RowFacts::are_queries_bounded(Index b, Index h, Run rows, float* memory) const noexcept {
  const bool same = call_.wide.none() && call_.args.query_factor.empty();  // the factor of all rows
  for (Index i = rows.begin; i < rows.end; i = same ? rows.end : i + 1) {
    const auto factor = static_cast<float>(call_.row_factor(b, h, i) * kLog2E);
    const bool bounded = call_.wide.none()
                             ? std::isfinite(factor) &&
                                   are_bounded(call_.q, b, {i, same ? rows.end : i + 1}, {h, h + 1},
                                               std::max(std::fabs(factor), least_factor_), memory)
                             : call_.take_query(b, h, i, memory, call_.D);
    if (!bounded) return false;
  }
  for (Index i = rows.begin; i < rows.end; ++i) {
    for (std::size_t n = 0; n < call_.regions.size(); ++n)
      if (!take_vector(call_.kernels, call_.regions.qk(static_cast<int>(n)).q, b, i, h,
                       static_cast<float>(call_.row_factor(b, h, i) * kLog2E), memory, call_.D))
        return false;
    for (const RowTerm& t : call_.rows.all())
      if (!t.of_keys && !take_row_vector(call_, t, {b, h, i, {}, {}, 0}, memory)) return false;
    if (!call_.gates.none() && !take_level_query(call_, {b, h, i, {}, {}, 0}, memory)) return false;
    if (!call_.gates.none() && call_.gates.has_products() &&
        !take_gate_query(call_, {b, h, i, {}, {}, 0}, memory))
      return false;
  }
  return true;
}

bool RowFacts::dot(const ConstHeads& out, const ConstHeads& d, Index b, Run rows, Index h,
                   const Scratch& s, float* sums) const noexcept {
  const FastKernels& k = call_.kernels;
  if (out.dtype == d.dtype && is_readable(out) && is_readable(d))
    return k.dot_rows[fast_type(d.dtype)](token_at(out, b, rows.begin, h), out.token_stride,
                                          token_at(d, b, rows.begin, h), d.token_stride,
                                          rows.end - rows.begin, call_.V, sums);
  bool bounded = true;
  for (Index i = rows.begin; i < rows.end && bounded; ++i) {
    bounded =
        take_vector(k, out, b, i, h, 1, s.x, width_) && take_vector(k, d, b, i, h, 1, s.y, width_);
    *sums++ = tiles_.dot(s.x, s.y, width_);
  }
  return bounded;
}

RowFacts::RowFacts(const FastCall& c, bool by_words, CallArena& arena, const Executor& executor)
    : call_(c),
      tiles_(fast_tile_kernels(active_isa())),
      least_factor_(by_words ? 1 : 0),
      tasks_(task_count(executor, c.B * c.H * c.Tq, most_tasks(c))),
      width_(whole_vectors(std::max({c.channels, c.V, c.gates.channels()}), tiles_.lanes)),
      log2_sum_(arena.array<double>(c.B * c.H * c.Tq)),
      less_(arena.array<double>(c.B * c.H * c.Tq)),
      seen_(tiles_seen(c, c.args.normalisation == Normalisation::stick_breaking_own, arena)),
      scratch_(arena.array<float>(tasks_ * 2 * width_)),
      works_(arena.made<FastWork>(tasks_, [&](Index) { return FastWork(c, arena); })) {}

Run RowFacts::seen_run(Index row, Run keys) const noexcept {
  const ConstTensorView& visible = call_.args.mask.key_visible;
  const std::uint8_t* tiles = seen_.data() + row * (whole_tiles(call_.Tk) / kTile);
  const auto is_seen = [&](Index key) {
    return tiles[key / kTile] != 0 && (visible.empty() || read_index(visible, row, key) != 0);
  };
  const auto next = [&](Index key) {
    return visible.empty() ? std::min(keys.end, (key / kTile + 1) * kTile) : key + 1;
  };
  Run run{keys.begin, keys.begin};
  while (run.begin < keys.end && !is_seen(run.begin)) run.begin = next(run.begin);
  run.end = run.begin;
  while (run.end < keys.end && is_seen(run.end)) run.end = next(run.end);
  return run;
}

bool RowFacts::take_sums(const ConstTensorView& sums, Index b, Index h, Run rows,
                         bool& again) noexcept {
  const bool sticks = breaks_sticks(call_.args);
  const std::size_t first = at(b, h, 0);
  const double* doubles =
      sums.empty() || sums.dtype != DType::f64
          ? nullptr
          : static_cast<const double*>(sums.data) + b * sums.stride[0] + h * sums.stride[1];
  for (Index i = rows.begin; i < rows.end; ++i) {
    double sum = 0;
    if (doubles != nullptr)
      sum = doubles[i * sums.stride[2]];
    else if (!sums.empty())
      sum = read_number(sums, b, h, i);
    double& to = log2_sum_[first + static_cast<std::size_t>(i)];
    to = HUGE_VAL, less_[first + static_cast<std::size_t>(i)] = 0;
    if (!sticks && sum == -HUGE_VAL) continue;
    // A score beyond kLargestScore has no digits behind the point.
    if (!(std::fabs(sum) <= static_cast<double>(kLargestScore))) return false;
    // What a stick leaves is found again from its scores.
    if (sticks) sum = 0;
    again =  // never of the result over more keys, whose sums are doubles
        again || sums.empty() || (sums.dtype != DType::f64 && std::fabs(sum) > kLargestFloatSum);
    to = sum * kLog2E;
  }
  return true;
}

// Of rows that see some key.
bool RowFacts::find_seeing(const ConstAttentionResult& result, const ConstAttentionResult& d,
                           Index b, Index h, Run rows, const Scratch& s) noexcept {
  std::array<float, kRowsAtOnce> along;
  if (!are_queries_bounded(b, h, rows, s.x) || !dot(result.out, d.out, b, rows, h, s, along.data()))
    return false;
  const bool sticks = breaks_sticks(call_.args);
  bool bounded = true;
  for (Index i = rows.begin; i < rows.end; ++i) {
    const double d_sum = d.log_sum_exp.empty() ? 0 : read_number(d.log_sum_exp, b, h, i);
    const auto along_row = static_cast<double>(along[static_cast<std::size_t>(i - rows.begin)]);
    double& less = less_[at(b, h, i)];
    less = sticks ? d_sum : along_row - d_sum;
    bounded = bounded && std::fabs(less) <= static_cast<double>(kLargestValue);
  }
  return bounded;
}

bool RowFacts::find_rows(const ConstAttentionResult& result, const ConstAttentionResult& d, Index b,
                         Index h, Run rows, const Scratch& s, bool& again) noexcept {
  if (!take_sums(result.log_sum_exp, b, h, rows, again)) return false;
  const double* sums = log2_sum_.data() + at(b, h, 0);
  for (Index i = rows.begin; i < rows.end; ++i) {
    if (sums[i] == HUGE_VAL) continue;
    const Index first = i;
    while (i + 1 < rows.end && sums[i + 1] != HUGE_VAL) ++i;
    if (!find_seeing(result, d, b, h, {first, i + 1}, s)) return false;
  }
  return true;
}

bool RowFacts::are_keys_bounded(Index row, Run keys, float* memory) const noexcept {
  const FastCall& c = call_;
  if (!are_bounded(c.k, row, keys, {0, c.G}, 1, memory) ||
      !are_bounded(c.given_v, row, keys, {0, c.G}, 1, memory))
    return false;
  for (std::size_t n = 0; n < c.regions.size(); ++n) {
    const ConstHeads& k = c.regions.qk(static_cast<int>(n)).k;
    if (!are_bounded(k, row, keys, {0, k.heads}, 1, memory)) return false;
  }
  const bool none = c.wide.none() && c.rows.none() && c.gates.none();
  for (Index key = keys.begin; !none && key < keys.end; ++key)
    if (!c.wide.is_bounded(c.kernels, row, key, memory) || !c.rows.is_key_bounded(row, key) ||
        (!c.gates.none() && !c.gates.is_key_bounded(c.kernels, row, key, memory)))
      return false;
  return true;
}

// Log-sum-exps that are missing, or too coarse in float, from the scores.
bool RowFacts::sum_again(const Executor& executor) noexcept {
  std::atomic<bool> bounded{true};
  parallel_for(executor, static_cast<Index>(call_.blocks.size()), tasks_,
               [&](Index begin, Index end, Index task) noexcept {
                 FastWork& w = works_[static_cast<std::size_t>(task)];
                 for (Index n = begin; n < end && !is_cancelled(executor); ++n) {
                   run_rows(call_, call_.blocks[static_cast<std::size_t>(n)], nullptr, w, nullptr);
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
  if (!call_.rows.are_bounded() || !call_.value_rows.are_bounded() || !call_.gates.are_bounded() ||
      !call_.weights.are_bounded())
    return false;
  std::atomic<bool> bounded{true}, again{false};
  const auto scratch = [&](Index task) {
    float* x = scratch_.data() + task * 2 * width_;
    return Scratch{x, x + width_};
  };
  // fn(slab, run of its `size` entries): all of a part, `most` at once.
  const auto each_run = [&](Index begin, Index end, Index size, Index most, const auto& fn) {
    for (Index n = begin; n < end && bounded;) {
      const Index first = n % size, count = std::min({most, size - first, end - n});
      if (!fn(n / size, Run{first, first + count})) bounded = false;
      n += count;
    }
  };
  parallel_for(executor, call_.B * call_.H * call_.Tq, tasks_,
               [&](Index begin, Index end, Index task) noexcept {
                 bool some = false;
                 each_run(begin, end, call_.Tq, kRowsAtOnce, [&](Index head, Run rows) {
                   return find_rows(result, d, head / call_.H, head % call_.H, rows, scratch(task),
                                    some);
                 });
                 if (some) again = true;
               });
  parallel_for(executor, call_.R * call_.Tk, tasks_,
               [&](Index begin, Index end, Index task) noexcept {
                 each_run(begin, end, call_.Tk, call_.Tk, [&](Index row, Run keys) {
                   for (Run seen = seen_run(row, keys); seen.begin < seen.end;
                        seen = seen_run(row, {seen.end, keys.end}))
                     if (!are_keys_bounded(row, seen, scratch(task).x)) return false;
                   return true;
                 });
               });
  return bounded && (!again || sum_again(executor));
}

}  // namespace posenc::v0::detail
