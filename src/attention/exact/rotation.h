// SPDX-License-Identifier: Apache-2.0
// q, k and v of a call in double, rotated.
#pragma once
#include "attention/call/rotation_positions.h"
#include "attention/exact/call_view.h"
#include "posenc/rotary/plan.h"

namespace posenc::inline v0::detail {

// Where vectors [batch, heads, tokens, dim] of a stage lie.
struct StageShape {
  Index batch, heads, tokens, dim;
  Index vectors() const noexcept { return batch * heads * tokens; }
  Index head(Index vector) const noexcept { return vector / tokens % heads; }
};

struct Rotation {
  const CallView& c;
  const RotaryPlan& plan;
  const Positions &of_queries, &of_keys;
  RotateMode mode;
  const Executor& executor;

  // Tokens of all heads of one batch entry.
  void apply(double* x, const StageShape& s, Index row, Run tokens, const Positions& p,
             bool as_key) const {
    const Heads h{x + (row * s.heads * s.tokens + tokens.begin) * s.dim,
                  1,
                  tokens.end - tokens.begin,
                  s.heads,
                  s.dim,
                  s.heads * s.tokens * s.dim,
                  s.dim,
                  s.tokens * s.dim,
                  1,
                  DType::f64};
    plan.apply(as_key ? QK{{}, h} : QK{h, {}}, slice_positions(p, row, tokens), mode, executor);
  }
  void queries(double* x, const StageShape& s) const {
    if (s.vectors() == 0) return;
    const Positions p = rotation_positions(plan.spec(), of_queries);
    for (Index b = 0; b < s.batch; ++b) apply(x, s, b, {0, s.tokens}, p, false);
  }
  void check_keys(const StageShape& s) const {
    if (s.vectors() > 0) rotation_positions(plan.spec(), of_keys);
  }
  // Those that some query may see.
  void keys(double* x, const StageShape& s, bool as_key) const {
    if (s.vectors() == 0) return;
    const Positions p = rotation_positions(plan.spec(), of_keys);
    for (Index r = 0; r < s.batch; ++r)
      c.each_seen_run(r, [&](Run run) { apply(x, s, r, run, p, as_key); });
  }
};

struct Shapes {
  explicit Shapes(const CallView& c)
      : q{c.B, c.H, c.Tq, c.D}, k{c.R, c.G, c.Tk, c.D}, v{c.R, c.G, c.Tk, c.V} {}
  StageShape q, k, v;
};

}  // namespace posenc::v0::detail
