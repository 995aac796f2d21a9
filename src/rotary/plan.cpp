// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/plan.h"

#include <algorithm>
#include <cmath>

#include "core/known_enum.h"
#include "core/parallel.h"
#include "kernels/token.h"
#include "posenc/core/error.h"
#include "rotary/compat.h"
#include "rotary/plan_state.h"

namespace posenc::inline v0 {
namespace {

using detail::Gap;
using State = detail::RotaryPlanState;

std::vector<Gap> gaps_between(const RotarySpec& spec) {
  std::vector<Gap> turned;
  for (const RotaryBlock& b : spec.blocks) turned.push_back({b.offset, b.offset + b.width()});
  std::sort(turned.begin(), turned.end(),
            [](const Gap& a, const Gap& b) { return a.begin < b.begin; });
  std::vector<Gap> gaps;
  Index at = 0;
  for (const Gap& t : turned) {
    if (t.begin > at) gaps.push_back({at, t.begin});
    at = t.end;
  }
  if (at < spec.head_dim) gaps.push_back({at, spec.head_dim});
  return gaps;
}

RotaryTables table_of(const RotaryBlock& b, Index head_dim) {
  RotaryTables t;
  t.log2_decay = b.log2_decay.empty() ? nullptr : b.log2_decay.data();
  t.gain = b.spectrum.gain;
  t.decay_center = b.decay_center;
  t.decay_scale = b.decay_scale;
  t.head_dim = head_dim;
  t.offset = b.offset;
  t.pairs = b.pairs();
  t.heads = static_cast<std::int32_t>(b.spectrum.heads);
  t.axes = static_cast<std::int32_t>(b.spectrum.axes);
  t.direction = b.direction;
  t.pairing = b.pairing;
  t.output_order = b.output_order;
  return t;
}

void fill_turns(State& s) {
  std::size_t count = 0;
  for (const RotaryBlock& b : s.spec.blocks) count += b.spectrum.frequency.size();
  // Kernels read whole vectors behind the last pair.
  const std::size_t half = count + std::size_t{detail::kPadding};
  s.turns.assign(2 * half, 0);
  s.wide.assign(2 * half, 0);
  s.per_unit.assign(half, 0);
  std::size_t at = 0;
  for (std::size_t n = 0; n < s.spec.blocks.size(); ++n) {
    RotaryTables& t = s.tables[n];
    t.turns_hi = s.turns.data() + at, t.turns_lo = t.turns_hi + half;
    t.wide_hi = s.wide.data() + at, t.wide_lo = t.wide_hi + half;
    t.per_unit = s.per_unit.data() + at;
    for (const Turns& turn : exact_turns(s.spec.blocks[n].spectrum)) {
      // 64 bits, rounded, for float work.
      const std::uint64_t narrow = turn.hi + (turn.lo >> 63);
      s.turns[at] = static_cast<std::uint32_t>(narrow >> 32);
      s.turns[half + at] = static_cast<std::uint32_t>(narrow);
      s.wide[at] = turn.hi, s.wide[half + at] = turn.lo;
      s.per_unit[at] = turn.per_unit;
      ++at;
    }
  }
}

void check_precision(const State& s) {
  const Precision p = s.spec.precision;
  if (p == Precision::exact || s.spec.blocks.empty()) return;
  if (p == Precision::ggml && s.dtype == DType::f64)
    refuse("rotary", "precision ggml computes in float32, dtype must not be", dtype_name(s.dtype));
  if (p == Precision::hf_bfloat16_table && s.dtype != DType::bf16)
    refuse("rotary", "precision hf_bfloat16_table is that of bf16 tensors", dtype_name(s.dtype));
}

}  // namespace

RotaryPlan::RotaryPlan(const RotarySpec& spec, DType dtype, PlanOptions options) {
  if (!is_float(dtype))
    refuse_field("rotary", "dtype", "must be f64, f32, f16 or bf16", dtype_name(dtype));
  check_rotary(spec);
  auto s = std::make_shared<State>();
  s->spec = spec;
  detail::check_known("rotary", "outside", options.outside);
  s->refuses_lengths = options.outside == OutsideRange::refuse;
  if (s->refuses_lengths) s->lengths = {spec.valid_from(), spec.valid_to()};
  s->dtype = dtype;
  s->element_size = size_of(dtype);
  check_precision(*s);
  s->isa = active_isa();
  s->kernels = detail::rotate_kernels(dtype, s->isa);
  s->access = detail::access_pattern();
  s->axes = spec.axes();
  for (const RotaryBlock& b : s->spec.blocks) {
    if (s->heads > 1 && b.spectrum.heads > 1 && b.spectrum.heads != s->heads)
      refuse_field("rotary", "blocks", "must agree on the heads of their spectra",
                   b.spectrum.heads);
    s->heads = std::max(s->heads, b.spectrum.heads);
    s->decays = s->decays || !b.log2_decay.empty();
    s->tables.push_back(table_of(b, spec.head_dim));
    s->block_column.push_back(s->row_columns);
    s->row_columns += b.spectrum.heads * 2 * b.pairs();
  }
  s->gaps = gaps_between(spec);
  s->head_bytes = spec.head_dim * s->element_size;
  s->block_count = static_cast<std::int32_t>(s->tables.size());
  s->gap_count = static_cast<std::int32_t>(s->gaps.size());
  fill_turns(*s);
  state_ = std::move(s);
}

const RotarySpec& RotaryPlan::spec() const noexcept {
  return state_->spec;
}
std::span<const RotaryTables> RotaryPlan::tables() const noexcept {
  return state_->tables;
}
DType RotaryPlan::dtype() const noexcept {
  return state_->dtype;
}
Index RotaryPlan::row_columns() const noexcept {
  return state_->row_columns;
}

namespace detail {
namespace {

const Spectrum& spectrum_of(const void* spec, Index block) noexcept {
  return static_cast<const RotarySpec*>(spec)->blocks[static_cast<std::size_t>(block)].spectrum;
}
CompatPhase compat_of(const RotarySpec& spec) noexcept {
  CompatPhase phase;
  phase.context = &spec;
  phase.f32 = [](const void* context, Index block, Index head, const double* position, Index first,
                 Index last, float* cos, float* sin) noexcept {
    compat_phase(spectrum_of(context, block), static_cast<const RotarySpec*>(context)->precision,
                 head, position, first, last, cos, sin);
  };
  phase.f64 = [](const void* context, Index block, Index head, const double* position, Index first,
                 Index last, double* cos, double* sin) noexcept {
    hf_phase(spectrum_of(context, block), head, position, first, last, cos, sin);
  };
  phase.round_each = spec.precision == Precision::hf_bfloat16_table && !spec.bfloat16_rounds_once;
  return phase;
}

}  // namespace

void run_rotation(const State& s, RotateCall& call, Index tokens, const Executor& executor) {
  call.blocks = s.tables.data();
  call.block_count = s.block_count;
  call.gaps = s.gaps.data();
  call.gap_count = s.gap_count;
  const Index heads = (call.in->q.data != nullptr ? call.in->q.heads : 0) +
                      (call.in->k.data != nullptr ? call.in->k.heads : 0);
  // The tensors lie in memory, so the product fits.
  const Index bytes = tokens * heads * s.head_bytes;
  call.access = s.access;
  call.large = bytes > kLargeBytes;
  call.stream = bytes > kStreamBytes &&
                (call.in->q.data != call.out->q.data || call.in->k.data != call.out->k.data);
  parallel_for(executor, tokens, bytes / kBytesPerTask, [&](Index begin, Index end) noexcept {
    if (s.spec.precision == Precision::exact)
      s.kernels.rotate(call, begin, end);
    else
      rotate_compat(call, compat_of(s.spec), begin, end);
  });
}

void apply_lookup(const State& s, const QK& in, const QK& out, RowSource& rows, RotateMode mode,
                  const Executor& executor) {
  const Index tokens = check_tensors(s, in, out);
  if (tokens == 0) return;
  rows.kind = RowSource::Kind::plan;
  rows.block_column = s.block_column.data();
  RotateCall call;
  call.in = &in, call.out = &out, call.mode = mode, call.rows = &rows;
  run_rotation(s, call, tokens, executor);
}

void rotate(const State& s, const QK& in, const QK& out, const Positions& positions, Index tokens,
            RotateMode mode, const Executor& executor) {
  RotateCall call;
  call.in = &in, call.out = &out, call.mode = mode;
  call.positions = &positions;
  run_rotation(s, call, tokens, executor);
}

}  // namespace detail

namespace {

void apply_positions(const State& s, const QK& in, const QK& out, const Positions& positions,
                     RotateMode mode, const Executor& executor) {
  detail::check_known("rotary", "mode", mode);
  const Index tokens = detail::check_tensors(s, in, out);
  std::optional<Positions> one_row;
  const Positions& read = detail::check_positions(s, in, positions, one_row);
  if (tokens == 0) return;
  detail::check_positions_apart(out, read, tokens);
  detail::check_lengths(s, read, mode);
  detail::rotate(s, in, out, read, tokens, mode, executor);
}

}  // namespace

void RotaryPlan::apply(const QK& x, const Positions& p, RotateMode mode,
                       const Executor& executor) const {
  apply_positions(*state_, x, x, p, mode, executor);
}
void RotaryPlan::apply(const ConstQK& in, const QK& out, const Positions& p, RotateMode mode,
                       const Executor& executor) const {
  apply_positions(*state_, detail::kernel_view(in), out, p, mode, executor);
}

}  // namespace posenc::v0
