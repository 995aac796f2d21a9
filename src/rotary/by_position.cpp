// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/by_position.h"

#include "core/head_views.h"
#include "core/known_enum.h"
#include "rotary/plan_state.h"

namespace posenc::inline v0 {
namespace {

const void* at(const Positions& p, Index row, Index token) {
  const Index element = row * p.batch_stride + token * p.token_stride;
  return static_cast<const char*>(p.data) + element * size_of(p.type);
}

bool is_below(const Positions& p, Index row, Index token, Index bound) {
  const void* x = at(p, row, token);
  if (p.type == DType::i32) return *static_cast<const std::int32_t*>(x) < bound;
  if (p.type == DType::i64) return *static_cast<const std::int64_t*>(x) < bound;
  return *static_cast<const double*>(x) < static_cast<double>(bound);
}

QK token_range(const QK& x, Index row, Index first, Index count) {
  return {detail::token_range(x.q, row, first, count), detail::token_range(x.k, row, first, count)};
}

void check_call(const RotaryPlan& below, const RotaryPlan& from, const Heads& x,
                const Positions& p) {
  if (p.axes != 1) refuse_field("by position", "positions", "must have one axis", Index{p.axes});
  if (p.type != DType::i32 && p.type != DType::i64 && p.type != DType::f64)
    refuse_field("by position", "positions", "must be i32, i64 or f64", dtype_name(p.type));
  if (p.count != x.tokens)
    refuse_field("by position", "positions", "must be one a token: " + std::to_string(x.tokens),
                 p.count);
  if (p.batch != 1 && p.batch != x.batch)
    refuse_field("by position", "positions",
                 "must have one row, or one for each of the batch of " + std::to_string(x.batch),
                 p.batch);
  if (below.spec().head_dim != from.spec().head_dim)
    refuse("by position", "the two plans must have one head_dim", from.spec().head_dim);
  if (below.dtype() != from.dtype())
    refuse("by position", "the two plans must have one dtype", dtype_name(from.dtype()));
}

}  // namespace

void apply(const RotaryPlan& below, const RotaryPlan& from, Index bound, const ConstQK& read,
           const QK& out, const Positions& p, RotateMode mode, const Executor& executor) {
  const QK in = detail::kernel_view(read);
  const Heads& x = in.q.data != nullptr ? in.q : in.k;
  check_call(below, from, x, p);
  Index all = 0;
  for (const RotaryPlan* plan : {&below, &from}) {  // whole, before the first run is written
    std::optional<Positions> one_row;
    const detail::RotaryPlanState& s = detail::StateAccess::of(*plan);
    detail::check_known("by position", "mode", mode);
    all = detail::check_tensors(s, in, out);
    const Positions& at_tokens = detail::check_positions(s, in, p, one_row);
    detail::check_positions_apart(out, at_tokens, all);
    detail::check_lengths(s, at_tokens, mode);
  }
  if (all == 0) return;
  const Index rows = x.batch, tokens = x.tokens;
  for (Index row = 0; row < rows; ++row) {
    const Index position_row = p.batch == 1 ? 0 : row;
    for (Index first = 0, end; first < tokens; first = end) {
      const bool side = is_below(p, position_row, first, bound);
      for (end = first + 1; end < tokens && is_below(p, position_row, end, bound) == side;) ++end;
      Positions run = p;
      run.data = at(p, position_row, first);
      run.count = end - first;
      run.batch = 1;
      run.batch_stride = 0;
      const QK run_in = token_range(in, row, first, end - first);
      const QK run_out = token_range(out, row, first, end - first);
      detail::rotate(detail::StateAccess::of(side ? below : from), run_in, run_out, run,
                     end - first, mode, executor);
    }
  }
}

}  // namespace posenc::v0
