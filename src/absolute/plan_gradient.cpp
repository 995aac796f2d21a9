// SPDX-License-Identifier: Apache-2.0
// Gradients of a composition. Of y = a x + gain P[p]:  d x = a d y,  d P[r] = gain sum over the
// tokens that read row r of d y, in their order and in double: tokens are sorted by row, a row
// belongs to one task, so that the sum does not depend on the number of threads. A row that very
// many tokens read is split by channels, not by tokens.
#include <algorithm>
#include <vector>

#include "absolute/names.h"
#include "absolute/plan_state.h"
#include "absolute/rows.h"
#include "core/parallel.h"
#include "core/shape.h"
#include "core/workspace.h"
#include "posenc/core/error.h"
#include "positions/memory.h"

namespace posenc::inline v0 {
namespace {

using State = detail::InputPlanState;
constexpr Index kChannelsPerTask = 256;

bool fast_table(const InputTerm& t, const InputGradient& g) {
  return !t.table.empty() && !g.table.empty() && t.layers.empty() && t.beyond != Beyond::extend &&
         (t.compose == Compose::add || t.compose == Compose::concat);
}

void check_table_gradient(const InputTerm& t, const ConstTensorView& g) {
  if (g.dtype != DType::f64)
    refuse(kInputPlan, "gradients of terms must be f64", dtype_name(g.dtype));
  if (g.rank != 2 || g.shape[0] != t.table.shape[0] || g.shape[1] != t.table.shape[1])
    detail::refuse_shape(kInputPlan, "gradient of a table must have its shape", g);
}

// Offsets of tokens sorted by the row that they read: those of row r stand in [start[r], start[r +
// 1]).
struct Sorted {
  Index* start;   // rows + 1
  Index* offset;  // batch * tokens, elements

  Sorted(detail::Arena& arena, Index rows, Index items) noexcept
      : start(arena.take<Index>(rows + 1)), offset(arena.take<Index>(items)) {}
};

void sort_tokens(const detail::ComposeSource& s, const Positions& p,
                 const detail::ConstComposeView& y, Sorted& out) {
  const Index rows = s.table_rows;
  std::fill_n(out.start, rows + 1, Index{0});
  const auto each = [&](auto&& use) {
    for (Index b = 0; b < y.batch; ++b)
      for (Index t = 0; t < y.tokens; ++t) {
        const Index row = detail::table_row(s, p, p.batch == 1 ? 0 : b, t);
        if (row >= 0 && row != s.frozen_row)
          use(row, b * y.tensor.batch_stride + t * y.tensor.token_stride);
      }
  };
  each([&](Index row, Index) { ++out.start[row + 1]; });
  for (Index r = 0; r < rows; ++r) out.start[r + 1] += out.start[r];
  // start[r] moves to the end of row r while it fills, and is moved back.
  each([&](Index row, Index offset) { out.offset[out.start[row]++] = offset; });
  for (Index r = rows; r > 0; --r) out.start[r] = out.start[r - 1];
  out.start[0] = 0;
}

struct Work {
  const State* state;
  const detail::ComposeSource* source;
  const detail::ConstComposeView* y;
  const TensorView* table;  // its gradient
  Sorted sorted;
  Index first;  // channel of y where the row stands
  Index row_tasks, channel_tasks;
};

// Rows are dealt by the tokens that read them, so that tasks have equal work.
Index row_at(const Work& w, Index shard) noexcept {
  const Index rows = w.source->table_rows, total = w.sorted.start[rows];
  if (shard >= w.row_tasks) return rows;
  const Index wanted = total / w.row_tasks * shard + total % w.row_tasks * shard / w.row_tasks;
  return std::lower_bound(w.sorted.start, w.sorted.start + rows, wanted) - w.sorted.start;
}

void sum_task(const Work& w, Index i) noexcept {
  const Index shard = i / w.channel_tasks, slice = i % w.channel_tasks;
  const Index begin = w.source->width * slice / w.channel_tasks;
  const Index end = w.source->width * (slice + 1) / w.channel_tasks;
  const auto* at =
      static_cast<const std::byte*>(w.y->tensor.data) + (w.first + begin) * w.state->element_size;
  const TensorView& g = *w.table;
  for (Index r = shard == 0 ? 0 : row_at(w, shard); r < row_at(w, shard + 1); ++r) {
    const Index count = w.sorted.start[r + 1] - w.sorted.start[r];
    if (count == 0) continue;
    w.state->kernels.sum_rows(at, w.sorted.offset + w.sorted.start[r], count, end - begin,
                              w.source->gain,
                              static_cast<double*>(g.data) + r * g.stride[0] + begin);
  }
}

void table_gradient(const State& s, const detail::ComposeSource& source, Index first,
                    const Positions& p, const detail::ConstComposeView& y, const TensorView& g,
                    Workspace workspace, const Executor& executor) {
  detail::Arena arena(workspace);
  Work w{&s, &source, &y, &g, Sorted(arena, source.table_rows, y.batch * y.tokens), first, 1, 1};
  sort_tokens(source, p, y, w.sorted);
  // A task has kValuesPerTask values at least on average: few numbers wake no thread.
  const Index most = y.batch * y.tokens * source.width / detail::kValuesPerTask;
  const Index tasks = detail::task_count(executor, most, most);
  if (tasks > 1) {
    w.channel_tasks = std::clamp<Index>(source.width / kChannelsPerTask, 1, most);
    w.row_tasks =
        std::min({source.table_rows, 4 * tasks, std::max<Index>(1, most / w.channel_tasks)});
  }
  detail::run_tasks(executor, w.row_tasks * w.channel_tasks,
                    [&](Index i) noexcept { sum_task(w, i); });
}

// `width`: of x. Empty where d_x is.
detail::ComposeView check_input_gradient(const State& s, const TensorView& d_x,
                                         const ConstTensorView& d_y,
                                         const detail::ConstComposeView& y, Index width,
                                         const Positions& p) {
  if (d_x.empty()) return {};
  const detail::ComposeView to = detail::compose_view(s, d_x, "d_x");
  if (to.batch != y.batch || to.tokens != y.tokens || to.width != width)
    detail::refuse_shape(
        kInputPlan, "d_x",
        "must have the shape of x, " + detail::sizes_text({y.batch, y.tokens, width}), d_x);
  const detail::Operand out{"d_x", detail::memory_of(d_x)};
  detail::check_composed(kInputPlan, {"d_y", detail::memory_of(d_y)}, out, s.appended);
  if (s.needs_positions) detail::check_positions_apart(kInputPlan, p, {out});
  return to;
}

void check_memory(const ConstTensorView& x, const ConstTensorView& d_y, const TensorView& d_x,
                  std::span<const InputGradient> g, const Positions& p, Workspace workspace) {
  const detail::Operand up{"d_y", detail::memory_of(d_y)}, out{"d_x", detail::memory_of(d_x)};
  const detail::Operand scratch{"the workspace", detail::memory_of(workspace)};
  check_gradient_memory(kInputPlan, g, p, {{"x", detail::memory_of(x)}, up, out, scratch});
  for (const detail::Operand& used : {up, out}) detail::check_separate(kInputPlan, used, scratch);
}

// Takes the tables that table_gradient does out of `rest`; whether something is left to the double
// path.
bool take_tables(const State& s, const detail::ConstComposeView& y,
                 std::vector<InputGradient>& rest) {
  bool left = false;
  for (std::size_t n = 0; n < rest.size(); ++n) {
    InputGradient& r = rest[n];
    if (fast_table(s.lowered.terms[n], r) && r.table.rank == 2 && r.table.stride[1] == 1 &&
        y.tensor.channel_stride == 1 && s.additive) {
      check_table_gradient(s.lowered.terms[n], r.table);
      r.table = {};
    }
    left = left || !r.table.empty() || !r.affine.empty() || !r.rows.empty() || !r.gain.empty() ||
           !r.position.empty() || !r.frequency.empty() || !r.layers.empty();
  }
  return left;
}

}  // namespace

std::size_t InputPlan::gradient_workspace(Index batch, Index tokens) const {
  std::size_t most = 0;
  for (const detail::ComposeSource& t : state_->sources) {
    if (t.kind != detail::ComposeSource::Kind::table) continue;
    detail::Arena count;
    Sorted(count, t.table_rows, batch * tokens);
    most = std::max(most, count.bytes());
  }
  return most;
}

void InputPlan::gradient(const ConstTensorView& x, const Positions& p, const ConstTensorView& d_y,
                         const TensorView& d_x, std::span<const InputGradient> g,
                         Workspace workspace, const Executor& executor) const {
  const State& s = *state_;
  const detail::ConstComposeView y = detail::compose_view(s, d_y, "d_y");
  if (!g.empty() && g.size() != s.sources.size())
    refuse(kInputPlan, "there must be a gradient for each term, or none",
           static_cast<Index>(g.size()));
  const Index width = y.width - s.appended;
  if (width < 0)
    refuse_field(kInputPlan, "d_y",
                 "must have the " + std::to_string(s.appended) + " channels that are appended",
                 y.width);
  detail::check_windows(s, width);
  detail::check_positions(s, p, y.batch, y.tokens);
  const detail::ComposeView to = check_input_gradient(s, d_x, d_y, y, width, p);
  if (workspace.size() < gradient_workspace(y.batch, y.tokens))
    refuse_field(kInputPlan, "workspace",
                 "must have " + std::to_string(gradient_workspace(y.batch, y.tokens)) + " bytes",
                 static_cast<Index>(workspace.size()));
  check_memory(x, d_y, d_x, g, p, workspace);
  // What the double path is left to do.
  std::vector<InputGradient> rest(g.begin(), g.end());
  const bool left = take_tables(s, y, rest);
  const bool slow = left || (!s.additive && (!d_x.empty() || !g.empty()));
  // The double path reads d_y; it goes first, because d_x may be written over it.
  if (s.additive) {
    if (slow) input_gradient(x, p, s.lowered, d_y, {}, rest);
  } else if (slow) {
    return input_gradient(x, p, s.lowered, d_y, d_x, rest);
  }
  Index next = width;
  for (std::size_t n = 0; n < g.size(); ++n) {
    const detail::ComposeSource& source = s.sources[n];
    const bool appended = source.compose == Compose::concat;
    if (!g[n].table.empty() && rest[n].table.empty() && y.batch * y.tokens > 0)
      table_gradient(s, source, appended ? next : source.first, p, y, g[n].table, workspace,
                     executor);
    next += appended ? source.width : 0;
  }
  if (d_x.empty()) return;
  detail::ComposeCall call;
  call.x = y.tensor, call.y = to.tensor;
  call.batch = y.batch, call.tokens = y.tokens;
  call.x_width = call.y_width = width;
  call.positions = &p;
  call.input_gain = s.lowered.input_gain;
  call.shared = true;
  detail::run_compose(s, call, executor);
}

}  // namespace posenc::v0
