// SPDX-License-Identifier: Apache-2.0
// The call forward: rows are independent of each other.
#include "attention/call/check_parts.h"
#include "attention/exact/engine.h"
#include "attention/exact/forward_rows.h"
#include "attention/exact/row_blocks.h"
#include "core/element.h"
#include "core/extent.h"
#include "core/parallel.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0 {
namespace detail {

void fill_rows(const CallView& c, Index first, Index count, RowWork& w) noexcept {
  fill_scores(c, first, count, w);
  each_head(w, [&](HeadRow& r) { fill_weights(c, r); });
  if (c.mix_after.empty()) return;
  each_head(w, [&](HeadRow& r) {  // P'_h = sum_g mix[h, g] P_g
    each_key(w.read_runs, [&](Index j) { r.mixed[j] = 0; });
    for (const HeadRow& g : w.heads) {
      const double m = c.mix_after[static_cast<std::size_t>(r.h * c.H + g.h)];
      each_key(w.read_runs, [&](Index j) { r.mixed[j] += m * g.p[j]; });
    }
  });
}

std::span<RowWork> row_works(const CallView& c, RowsFor what, Index count, CallArena& arena) {
  return arena.made<RowWork>(count, [&](Index) { return RowWork(c, what, arena); });
}

namespace {

void fill_outputs(const CallView& c, RowWork& w) noexcept {
  each_block(c, w, [&](RowBlock rows, Index slab) {
    for (HeadRow& r : rows) std::fill(r.out, r.out + c.V, 0.0);
    const auto runs_of = [&](const HeadRow& r) { return value_runs(c, w, r); };
    if (c.streams)
      block_add_weighted(rows, &HeadRow::out, &HeadRow::mixed,
                         StreamedValues{c, slab, w.streamed.data()}, runs_of);
    else
      block_add_weighted(rows, &HeadRow::out, &HeadRow::mixed,
                         WeightedRows{c.lanes, c.v.data() + slab * c.Tk * c.V, c.V}, runs_of);
  });
}

// What comes to the output beside the values.
void add_to_output(const CallView& c, const HeadRow& r, RowWork& w) noexcept {
  for (const TermView& t : c.terms)
    if (std::holds_alternative<ValueRowsTerm>(*t.term)) add_value_rows(c, t, r, w, r.out);
  if (c.args.normalisation != Normalisation::stick_breaking_own) return;
  const double* v = c.v.data() + c.key_slab(r.place.row, r.h) * c.Tk * c.V;
  if (const Index own = c.own_key(r.place); own >= 0)
    add_scaled(r.out, r.remainder, v + own * c.V, c.V);
}

}  // namespace

void write_rows(const CallView& c, RowWork& w, const AttentionResult& result) noexcept {
  fill_outputs(c, w);
  each_head(w, [&](HeadRow& r) {
    add_to_output(c, r, w);
    put_result_row(result, r.b, r.h, r.i, r.out, r.log_sum_exp);
  });
}

void exact_forward(const ReadyCall& call, const LoweredCall& lowered, const AttentionResult& result,
                   CallArena& arena, const Executor& executor) {
  const CallView c(call, lowered, false, arena, executor);
  const RowTasks tasks = row_tasks(c, RowsFor::output, arena, executor);
  if (arena.counts()) return;
  each_row_of(c, tasks, executor, [&](RowWork& w) noexcept { write_rows(c, w, result); });
}

void exact_forward_rows(const ReadyCall& call, const LoweredCall& lowered,
                        const AttentionResult& result, std::span<const Index> rows,
                        CallArena& arena, const Executor& executor) {
  const CallView c(call, lowered, false, arena, executor);
  const auto count = static_cast<Index>(rows.size());
  const Index most = most_tasks(c);
  const std::span<RowWork> works =
      row_works(c, RowsFor::output, task_count(executor, count, most), arena);
  each_piece(executor, count, most, [&](Index n, Index task) noexcept {
    RowWork& w = works[static_cast<std::size_t>(task)];
    fill_rows(c, rows[static_cast<std::size_t>(n)], 1, w);
    write_rows(c, w, result);
  });
}

}  // namespace detail
}  // namespace posenc::v0
