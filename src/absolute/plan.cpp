// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "absolute/names.h"
#include "absolute/plan_state.h"
#include "absolute/rows.h"
#include "core/convert.h"
#include "core/shape.h"
#include "kernels/token.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

using detail::ComposeSource;
using State = detail::InputPlanState;
// Vectors are read whole: room behind the last pair.
constexpr std::size_t kTurnPadding = 64;

void check_term(const InputTerm& t) {
  check_one_source(kInputPlan, t);
  if (t.width < 1) refuse(kInputPlan, "width of a term must be positive", t.width);
  if (!std::isfinite(t.gain)) refuse_field(kInputPlan, "gain", "must be finite", t.gain);
  if (t.axis < 0 || t.axis >= detail::kMaxAxes)
    refuse_field(kInputPlan, "axis", "must lie between 0 and 15", Index{t.axis});
  if (t.minus >= detail::kMaxAxes)
    refuse_field(kInputPlan, "minus", "must be below 16", Index{t.minus});
  if (t.divide < 1) refuse_field(kInputPlan, "divide", "must be positive", t.divide);
  if (t.wrap < 0) refuse_field(kInputPlan, "wrap", "must not be negative", t.wrap);
  if (!std::isfinite(t.extension))
    refuse_field(kInputPlan, "extension", "must be finite", t.extension);
  const Index width = source_width(t);
  if (t.phase != nullptr) {
    if (t.phase->heads != 1) refuse(kInputPlan, "a phase must be of one head", t.phase->heads);
    if (t.phase->axes > detail::kMaxAxes)
      refuse(kInputPlan, "a phase must have 16 axes at most", t.phase->axes);
    if (width < sine_channels(t.layout, t.phase->pairs()) - 1)
      refuse_field(kInputPlan, "width", "must hold the channels of the phase but for one", width);
  }
  for (const ConstTensorView* v : {&t.table, &t.affine})
    if (!v->empty() && (v->rank != 2 || v->shape[1] != width || v->dtype != DType::f64))
      detail::refuse_shape(kInputPlan, "tables", "must be [rows, width] of f64", *v);
  if (!t.affine.empty() && (t.affine.shape[0] < 1 || t.affine.shape[0] > detail::kMaxAxes + 1))
    refuse(kInputPlan, "affine rows must be those of 0 to 16 axes and a last one",
           t.affine.shape[0]);
  check_layers(t.layers, width, t.width);
}

ConstTensorView copy_table(const ConstTensorView& v, LoweredInput& to) {
  const Index rows = v.shape[0], width = v.shape[1];
  std::vector<double> dense(static_cast<std::size_t>(rows * width));
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < width; ++c)
      dense[static_cast<std::size_t>(r * width + c)] =
          static_cast<const double*>(v.data)[r * v.stride[0] + c * v.stride[1]];
  return to.table(std::move(dense), rows, width);
}

// A copy with what its terms point to, but for the caller's rows.
void copy_lowered(const LoweredInput& from, LoweredInput& to) {
  to.input_gain = from.input_gain;
  for (InputTerm t : from.terms) {
    check_term(t);
    if (t.phase != nullptr) t.phase = to.spectrum(*t.phase);
    if (!t.table.empty()) t.table = copy_table(t.table, to);
    if (!t.affine.empty()) t.affine = copy_table(t.affine, to);
    for (DenseLayer& layer : t.layers) {
      layer.weight = copy_table(layer.weight, to);
      if (!layer.bias.empty()) layer.bias = copy_table(layer.bias, to);
    }
    to.terms.push_back(t);
  }
}

void narrow(double x, DType type, std::byte* to) {
  if (type == DType::f64) {
    std::memcpy(to, &x, sizeof x);
  } else if (type == DType::f32) {
    const auto f = static_cast<float>(x);
    std::memcpy(to, &f, sizeof f);
  } else {
    const std::uint16_t h = type == DType::f16 ? f16_from(x) : bf16_from(x);
    std::memcpy(to, &h, sizeof h);
  }
}

// Cosines and sines of what 1 and, for 16 bits, phase_run positions turn a channel by.
template <class S>
detail::PhaseRotation<S> phase_rotation(DType dtype, const InputTerm& t, std::vector<S>& steps) {
  const std::vector<double>& frequency = t.phase->frequency;
  const auto [sines, cosines] = detail::sine_counts(t.layout, t.phase->pairs(), t.width);
  const Index first = detail::cosine_first(t.layout) ? cosines : sines;
  const auto used = static_cast<std::size_t>(sines + cosines), size = used + kTurnPadding;
  const auto run = static_cast<double>(detail::phase_run(dtype));
  constexpr bool kWide = sizeof(S) == 8;
  steps.resize((kWide ? 2 : 4) * size);
  for (std::size_t c = 0; c < used; ++c) {
    const auto channel = static_cast<Index>(c);
    const Index pair = t.layout == SineLayout::interleaved ? channel / 2
                       : channel < first                   ? channel
                                                           : channel - first;
    const double f = frequency[static_cast<std::size_t>(pair)], half = std::sin(f / 2);
    steps[c] = static_cast<S>(kWide ? std::cos(f) : -2 * half * half);
    steps[size + c] = static_cast<S>(std::sin(f));
    if (kWide) continue;
    steps[2 * size + c] = static_cast<S>(std::cos(run * f));
    steps[3 * size + c] = static_cast<S>(std::sin(run * f));
  }
  const S* at = steps.data();
  if (kWide) return {{at, at + size}, {}};
  return {{at, at + size}, {at + 2 * size, at + 3 * size}};
}

void prepare_phase(State& s, const InputTerm& t, ComposeSource& source) {
  const std::vector<Turns> turns = exact_turns(*t.phase);
  const std::size_t half = turns.size() + kTurnPadding;
  auto& narrow = s.turns.emplace_back(2 * half);
  auto& wide = s.wide.emplace_back(2 * half);
  auto& per_unit = s.per_unit.emplace_back(half);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const std::uint64_t rounded = turns[i].hi + (turns[i].lo >> 63);
    narrow[i] = static_cast<std::uint32_t>(rounded >> 32);
    narrow[half + i] = static_cast<std::uint32_t>(rounded);
    wide[i] = turns[i].hi, wide[half + i] = turns[i].lo;
    per_unit[i] = turns[i].per_unit;
  }
  RotaryTables& p = source.phase;
  p.turns_hi = narrow.data(), p.turns_lo = narrow.data() + half;
  p.wide_hi = wide.data(), p.wide_lo = wide.data() + half;
  p.per_unit = per_unit.data();
  p.pairs = t.phase->pairs();
  p.axes = static_cast<std::int32_t>(t.phase->axes);
  source.kind = ComposeSource::Kind::phase;
  source.layout = t.layout;
  if (p.axes != 1) return;
  if (s.element_size != 2)
    source.wide = phase_rotation(s.dtype, t, s.wide_steps.emplace_back());
  else if (std::ranges::all_of(t.phase->frequency, [](double f) { return std::cos(f) >= 0; }))
    source.narrow = phase_rotation(s.dtype, t, s.narrow_steps.emplace_back());
}

void prepare_table(State& s, const InputTerm& t, ComposeSource& source) {
  const auto size = static_cast<std::size_t>(s.element_size);
  const auto* from = static_cast<const double*>(t.table.data);
  auto& table = s.tables.emplace_back(static_cast<std::size_t>(t.table.count()) * size);
  for (std::size_t i = 0; i * size < table.size(); ++i)
    narrow(from[i], s.dtype, table.data() + i * size);
  source.kind = ComposeSource::Kind::table;
  source.table = table.data();
  source.table_rows = t.table.shape[0];
  source.wide_table = from;
  source.extension = t.extension;
  source.minus = t.minus, source.divide = t.divide, source.wrap = t.wrap;
  source.picks = t.minus >= 0 || t.divide != 1 || t.wrap != 0;
}

void prepare_affine(const InputTerm& t, ComposeSource& source) {
  source.kind = ComposeSource::Kind::affine;
  source.affine = static_cast<const double*>(t.affine.data);
  source.phase.axes = static_cast<std::int32_t>(t.affine.shape[0] - 1);
}

void prepare_rows(const InputTerm& t, ComposeSource& source) {
  const ConstTensorView& v = t.rows;
  if ((v.rank != 2 && v.rank != 3) || !is_float(v.dtype) ||
      v.shape[static_cast<std::size_t>(v.rank - 1)] != source_width(t))
    detail::refuse_shape(kInputPlan,
                         "the caller's rows must be [t, width] or [b, t, width] of floats", v);
  const auto last = static_cast<std::size_t>(v.rank - 1);
  source.kind = ComposeSource::Kind::rows;
  source.rows = {
      v.data, v.dtype,       v.rank == 3 && v.shape[0] > 1 ? v.stride[0] : 0, v.stride[last - 1],
      0,      v.stride[last]};
}

}  // namespace

InputPlan::InputPlan(const LoweredInput& lowered, DType dtype) {
  if (!is_float(dtype))
    refuse_field(kInputPlan, "dtype", "must be f64, f32, f16 or bf16", dtype_name(dtype));
  if (!std::isfinite(lowered.input_gain))
    refuse_field(kInputPlan, "input_gain", "must be finite", lowered.input_gain);
  auto s = std::make_shared<State>();
  s->dtype = dtype;
  s->element_size = size_of(dtype);
  s->kernels = detail::compose_kernels(dtype, active_isa());
  s->access = detail::access_pattern();
  copy_lowered(lowered, s->lowered);
  for (const InputTerm& t : s->lowered.terms) {
    ComposeSource source;
    source.compose = t.compose;
    source.beyond = t.beyond;
    source.has_zero = t.zero_position.has_value();
    source.zero_position = t.zero_position.value_or(0);
    source.frozen_row = t.frozen_row.value_or(-1);
    source.axis = t.axis;
    source.offset = t.offset;
    source.first = t.first;
    source.width = t.width;
    source.gain = t.gain;
    if (t.phase != nullptr)
      prepare_phase(*s, t, source);
    else if (!t.table.empty())
      prepare_table(*s, t, source);
    else if (!t.affine.empty())
      prepare_affine(t, source);
    else
      prepare_rows(t, source);
    s->needs_positions = s->needs_positions || t.rows.empty();
    s->has_rows = s->has_rows || !t.rows.empty();
    s->layered = s->layered || !t.layers.empty();
    s->additive = s->additive && (t.compose == Compose::add || t.compose == Compose::concat);
    s->appended += t.compose == Compose::concat ? t.width : 0;
    s->sources.push_back(source);
  }
  state_ = std::move(s);
}

DType InputPlan::dtype() const noexcept {
  return state_->dtype;
}
Index InputPlan::appended() const noexcept {
  return state_->appended;
}

}  // namespace posenc::v0
