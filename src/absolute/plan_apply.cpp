// SPDX-License-Identifier: Apache-2.0
// The calls of an input plan: checks, then tokens split over the executor.
#include <algorithm>
#include <cmath>
#include <string>

#include "absolute/names.h"
#include "absolute/plan_state.h"
#include "absolute/rows.h"
#include "absolute/window.h"
#include "core/element.h"
#include "core/parallel.h"
#include "core/shape.h"
#include "posenc/core/error.h"
#include "positions/memory.h"
#include "positions/shared_row.h"

namespace posenc::inline v0 {
namespace {

using State = detail::InputPlanState;
constexpr double kLargestReal = 0x1p62;

void check_real(const Positions& p) {
  for (Index a = 0; a < p.axes; ++a)
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 0; t < p.count; ++t) {
        const double x = detail::real_position(p, a, b, t);
        if (!(std::abs(x) <= kLargestReal))
          refuse_field(kInputPlan, "positions", "must be finite and at most 2^62 in size", x);
      }
}

void check_axes(const detail::ComposeSource& s, const Positions& p) {
  using Kind = detail::ComposeSource::Kind;
  const bool all = s.kind == Kind::affine || (s.kind == Kind::phase && s.phase.axes > 1);
  const std::int32_t reads = std::max(s.axis, s.minus);
  if (all ? s.phase.axes == p.axes : reads < p.axes) return;
  if (all)
    refuse_field(kInputPlan, "positions",
                 "must have the " + std::to_string(s.phase.axes) + " axes of the term",
                 Index{p.axes});
  refuse(kInputPlan,
         "a term reads axis " + std::to_string(reads) + " of the positions: they must have " +
             std::to_string(reads + 1) + " or more axes",
         Index{p.axes});
}

void check_whole(const detail::ComposeSource& s, const Positions& p) {
  for (const std::int32_t axis : {s.axis, s.minus < 0 ? s.axis : s.minus})
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 0; t < p.count; ++t) {
        const double x = detail::real_position(p, axis, b, t);
        if (x != std::floor(x))
          refuse(kInputPlan, "a table needs positions that are whole numbers", x);
      }
}

void check_rows_exist(const detail::ComposeSource& s, const Positions& p) {
  for (Index b = 0; b < p.batch; ++b)
    for (Index t = 0; t < p.count; ++t)
      if (detail::table_row(s, p, b, t) == -2)
        refuse(kInputPlan,
               std::string("position ") +
                   (s.offset == 0 ? "" : "plus the offset of " + std::to_string(s.offset) + " ") +
                   "must have a row in the table of " + std::to_string(s.table_rows),
               detail::integer_position(p, s.axis, b, t));
}

// Of a phase with an offset, which its kernels add without looking: one comparison a token.
void check_sums(const detail::ComposeSource& s, const Positions& p) {
  const std::int32_t begin = s.phase.axes > 1 ? 0 : s.axis;
  const std::int32_t end = s.phase.axes > 1 ? p.axes : s.axis + 1;
  for (std::int32_t a = begin; a < end; ++a)
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 0; t < p.count; ++t) {
        const Index x = detail::integer_position(p, a, b, t);
        if (Index sum = 0; __builtin_add_overflow(x, s.offset, &sum))
          refuse(kInputPlan,
                 "position plus the offset of " + std::to_string(s.offset) +
                     " must stay inside 64 bits",
                 x);
      }
}

void check_caller_rows(const State& s, Index batch, Index tokens) {
  for (std::size_t n = 0; n < s.sources.size(); ++n) {
    const ConstTensorView& v = s.lowered.terms[n].rows;
    if (v.empty()) continue;
    const Index t = v.shape[static_cast<std::size_t>(v.rank - 2)], b = v.rank == 3 ? v.shape[0] : 1;
    if (t != tokens) refuse(kInputPlan, "the caller's rows must have the tokens of x", t);
    if (b != 1 && b != batch)
      refuse(kInputPlan, "the caller's rows must have one batch or those of x", b);
  }
}

}  // namespace

namespace detail {

void check_windows(const State& s, Index width) {
  Index have = width;
  for (const ComposeSource& t : s.sources) {
    if (t.compose == Compose::concat)
      have += t.width;
    else
      check_window(kInputPlan, t.first, t.width, have);
  }
}

namespace {

template <class Data>
BasicComposeView<Data> view_of(const State& s, const BasicTensorView<Data>& v, const char* what) {
  const std::string name_of(what);
  if (v.dtype != s.dtype)
    refuse_field(kInputPlan, name_of,
                 "must be of the plan's dtype " + std::string(dtype_name(s.dtype)),
                 dtype_name(v.dtype));
  if (v.device != Device::cpu) refuse_field(kInputPlan, name_of, "must be in the CPU's memory");
  if (v.rank != 2 && v.rank != 3)
    detail::refuse_shape(kInputPlan, name_of, "must be [t, c] or [b, t, c]", v);
  const auto last = static_cast<std::size_t>(v.rank - 1);
  BasicComposeView<Data> out;
  out.tensor = {v.data, v.rank == 3 ? v.stride[0] : 0, v.stride[last - 1], v.stride[last]};
  out.batch = v.rank == 3 ? v.shape[0] : 1;
  out.tokens = v.shape[last - 1];
  out.width = v.shape[last];
  return out;
}

}  // namespace

ComposeView compose_view(const State& s, const TensorView& v, const char* what) {
  return view_of(s, v, what);
}
ConstComposeView compose_view(const State& s, const ConstTensorView& v, const char* what) {
  return view_of(s, v, what);
}

void check_positions(const State& s, const Positions& p, Index batch, Index tokens) {
  check_caller_rows(s, batch, tokens);
  if (!s.needs_positions) return;
  if (p.count != tokens)
    refuse_field(kInputPlan, "positions",
                 "must be one for each of the " + std::to_string(tokens) + " tokens", p.count);
  if (p.batch != 1 && p.batch != batch)
    refuse_field(kInputPlan, "positions",
                 "must have one row or the batch of x, " + std::to_string(batch), p.batch);
  if (p.type != DType::i64 && p.type != DType::i32 && p.type != DType::f64)
    refuse_field(kInputPlan, "positions", "must be i32, i64 or f64", dtype_name(p.type));
  if (p.type == DType::f64) check_real(p);
  for (const ComposeSource& t : s.sources) {
    if (t.kind == ComposeSource::Kind::rows) continue;
    check_axes(t, p);
    if (t.offset != 0 && t.kind == ComposeSource::Kind::phase && p.type != DType::f64)
      check_sums(t, p);
    const bool table = t.kind == ComposeSource::Kind::table;
    if (table && p.type == DType::f64) check_whole(t, p);
    if (table) check_rows_exist(t, p);
  }
}

void check_composed(std::string_view who, const Operand& x, const Operand& y, Index appended) {
  check_no_self_overlap(who, y);
  if (appended == 0) return check_in_place(who, x, y);
  if (overlaps(x.memory, y.memory))
    refuse_field(who, y.name, "must not be " + std::string(x.name) + " where channels are appended",
                 appended);
}

void run_compose(const State& s, ComposeCall& call, const Executor& executor) {
  const Index items = call.shared ? call.tokens : call.batch * call.tokens;
  if (items == 0 || call.batch == 0 || call.y_width == 0) return;
  // The tensors lie in memory, so the product fits.
  const Index bytes = call.batch * call.tokens * call.y_width * s.element_size;
  call.stream = call.x.data != call.y.data && bytes > kStreamBytes;
  call.access = s.access;
  parallel_for(executor, items, bytes / kBytesPerTask,
               [&](Index begin, Index end) noexcept { s.kernels.compose(call, begin, end); });
}

}  // namespace detail

namespace {

bool differs_by_batch(const State& s, const Positions& p) {
  for (const detail::ComposeSource& t : s.sources)
    if (t.kind == detail::ComposeSource::Kind::rows && t.rows.batch_stride != 0) return true;
  return s.needs_positions && p.batch != 1;
}

// `width`: of x by y. Empty where x is.
detail::ConstComposeView check_input(const State& s, const ConstTensorView& x,
                                     const detail::ComposeView& y, Index width) {
  if (x.empty()) return {};
  const detail::ConstComposeView from = detail::compose_view(s, x, "x");
  if (from.batch != y.batch || from.tokens != y.tokens)
    detail::refuse_shape(
        kInputPlan, "y",
        "must have the batch and tokens of x, " + detail::sizes_text({from.batch, from.tokens}),
        detail::sizes_text({y.batch, y.tokens}));
  if (from.width != width)
    refuse_field(kInputPlan, "y",
                 "must have the channels of x and of what is appended, " +
                     std::to_string(from.width + s.appended),
                 y.width);
  return from;
}

// Appended terms begin behind the channels of x, `width`, and of those appended before them.
void place_sources(const State& s, Index width, detail::ComposeSource* placed) {
  for (std::size_t n = 0; n < s.sources.size(); ++n) {
    placed[n] = s.sources[n];
    if (placed[n].compose != Compose::concat) continue;
    placed[n].first = width;
    width += placed[n].width;
  }
}

}  // namespace

void InputPlan::apply(const ConstTensorView& x, const Positions& p, const TensorView& y,
                      const Executor& executor) const {
  const State& s = *state_;
  const detail::ComposeView to = detail::compose_view(s, y, "y");
  const Index width = to.width - s.appended;
  if (width < 0)
    refuse_field(kInputPlan, "y",
                 "must have the " + std::to_string(s.appended) + " channels that are appended",
                 to.width);
  const detail::ConstComposeView from = check_input(s, x, to, width);
  detail::check_composed(kInputPlan, {"x", detail::memory_of(x)}, {"y", detail::memory_of(y)},
                         s.appended);
  detail::check_windows(s, width);
  detail::check_positions(s, p, to.batch, to.tokens);
  if (s.needs_positions)
    detail::check_positions_apart(kInputPlan, p, {{"y", detail::memory_of(y)}});
  if (s.has_rows) check_rows_memory(kInputPlan, s.lowered, y, "y", width);
  if (s.layered) return apply_input(x, p, s.lowered, y);
  // A call of few terms keeps them on the stack.
  constexpr std::size_t kFew = 16;
  detail::ComposeSource few[kFew];
  std::vector<detail::ComposeSource> many;
  const detail::ComposeSource* sources = s.sources.data();
  if (s.appended != 0) {
    if (s.sources.size() > kFew) many.resize(s.sources.size());
    detail::ComposeSource* placed = many.empty() ? few : many.data();
    place_sources(s, width, placed);
    sources = placed;
  }
  detail::ComposeCall call;
  call.x = from.tensor;
  call.y = to.tensor;
  call.batch = to.batch, call.tokens = to.tokens;
  call.x_width = x.empty() ? 0 : width, call.y_width = to.width;
  call.sources = sources, call.count = static_cast<Index>(s.sources.size());
  const Positions list = detail::shared_row(p);
  call.positions = &list;
  call.input_gain = s.lowered.input_gain;
  call.shared = !differs_by_batch(s, p);
  detail::run_compose(s, call, executor);
}

}  // namespace posenc::v0
