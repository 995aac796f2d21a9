// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/pope.h"

#include <cmath>
#include <string>
#include <vector>

#include "core/known_enum.h"
#include "core/overlap.h"
#include "core/shape.h"
#include "posenc/core/error.h"
#include "positions/length.h"
#include "positions/memory.h"
#include "positions/shared_row.h"
#include "rotary/pope_rows.h"

namespace posenc::inline v0 {

struct detail::PopePlanState {
  DType dtype = DType::f32;
  Index channels = 0;
  LengthRange lengths;
  std::vector<std::uint64_t> hi, lo;
  std::vector<double> per_unit;
  PhaseTurns turns;
};

namespace {

void check_tensor(DType type, const ConstHeads& h, const ConstHeads& shape, Index dim,
                  std::string_view what) {
  const std::string who(what);
  if (h.dtype != type)
    refuse_field("pope", who, "must be of the plan's dtype " + std::string(dtype_name(type)),
                 dtype_name(h.dtype));
  if (h.dim != dim) refuse_field("pope", who, "must have heads of " + std::to_string(dim), h.dim);
  if (h.batch < 0 || h.tokens < 0 || h.heads < 0)
    detail::refuse_shape("pope", who, "must not have negative sizes", detail::shape_text(h));
  if (h.batch != shape.batch || h.tokens != shape.tokens || h.heads != shape.heads)
    detail::refuse_shape(
        "pope", who, "must have the batch, tokens and heads of in, " + detail::shape_text(shape),
        detail::shape_text(h));
  if (h.data == nullptr && h.batch * h.tokens * h.heads > 0)
    refuse_field("pope", who, "must have memory");
}

// Returns the positions to read.
Positions check_positions(const detail::PopePlanState& s, const ConstHeads& h, const Positions& p) {
  if (p.type != DType::i64 && p.type != DType::i32 && p.type != DType::f64)
    refuse_field("pope", "positions", "must be i64, i32 or f64", dtype_name(p.type));
  if (p.axes != 1) refuse_field("pope", "positions", "must have one axis", Index{p.axes});
  if (p.count != h.tokens)
    refuse_field("pope", "positions",
                 "must be one for each of the " + std::to_string(h.tokens) + " tokens", p.count);
  if (p.batch != h.batch && p.batch != 1)
    refuse_field("pope", "positions",
                 "must have one row, or one for each of the batch of " + std::to_string(h.batch),
                 p.batch);
  if (p.data == nullptr && p.count > 0) refuse_field("pope", "positions", "must have memory");
  const Positions read = detail::shared_row(p);
  if (p.type == DType::f64)
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 0; t < p.count; ++t) {
        const double x =
            static_cast<const double*>(p.data)[b * p.batch_stride + t * p.token_stride];
        if (!(std::fabs(x) <= 0x1p62))
          refuse_field("pope", "positions", "must be finite and at most 2^62", x);
      }
  detail::check_length("pope", read, s.lengths);
  return read;
}

void check_bias(const ConstTensorView& v, const ConstHeads& h, Index channels, bool gradient) {
  if (v.empty()) return;
  if (v.rank != 2 || v.shape[0] != h.heads || v.shape[1] != channels)
    detail::refuse_shape(
        "pope", "bias",
        "must be [" + std::to_string(h.heads) + ", " + std::to_string(channels) + "]", v);
  if (v.device != Device::cpu) refuse_field("pope", "bias", "must be in the CPU's memory");
  const bool fits = v.dtype == DType::f64 || (!gradient && v.dtype == DType::f32);
  if (!fits)
    refuse_field("pope", gradient ? "gradient of the bias" : "bias",
                 gradient ? "must be f64" : "must be f32 or f64", dtype_name(v.dtype));
}

}  // namespace

Spectrum Pope::spectrum() const {
  return geometric_spectrum(base, 2 * head_dim);
}

PopePlan::PopePlan(const Pope& definition, DType type, PlanOptions options)
    : PopePlan(
          [&] {
            if (definition.head_dim < 1 || definition.head_dim > 32768)
              refuse_field("pope", "head_dim", "must be 1 to 32768", definition.head_dim);
            if (!(definition.base > 0) || !std::isfinite(definition.base))
              refuse_field("pope", "base", "must be finite and positive", definition.base);
            return definition.spectrum();
          }(),
          type, options) {}

PopePlan::PopePlan(const Spectrum& spectrum, DType type, PlanOptions options) {
  if (!is_float(type))
    refuse_field("pope", "dtype", "must be f64, f32, f16 or bf16", dtype_name(type));
  check_spectrum(spectrum);
  if (spectrum.heads != 1) refuse("pope", "the spectrum must be one for all heads", spectrum.heads);
  if (spectrum.axes != 1) refuse("pope", "the spectrum must have one axis", spectrum.axes);
  if (spectrum.gain != 1) refuse("pope", "the spectrum must have gain 1", spectrum.gain);
  auto s = std::make_shared<detail::PopePlanState>();
  s->dtype = type;
  detail::check_known("pope", "outside", options.outside);
  if (options.outside == OutsideRange::refuse)
    s->lengths = {spectrum.valid_from, spectrum.valid_to};
  s->channels = spectrum.pairs();
  for (const Turns& t : exact_turns(spectrum))
    s->hi.push_back(t.hi), s->lo.push_back(t.lo), s->per_unit.push_back(t.per_unit);
  s->turns.hi = s->hi.data(), s->turns.lo = s->lo.data();
  s->turns.per_unit = s->per_unit.data();
  s->turns.pairs = s->channels;
  state_ = std::move(s);
}

void PopePlan::apply(const ConstHeads& in, const Heads& out, const Positions& p,
                     const ConstTensorView& bias, const Executor& executor) const {
  const detail::PopePlanState& s = *state_;
  check_tensor(s.dtype, in, in, s.channels, "in");
  check_tensor(s.dtype, out, in, 2 * s.channels, "out");
  const Positions read = check_positions(s, in, p);
  check_bias(bias, in, s.channels, false);
  if (in.batch * in.tokens * in.heads == 0) return;
  detail::check_outputs("pope", {{"out", detail::memory_of(out)}}, {},
                        {{"in", detail::memory_of(in)}, {"bias", detail::memory_of(bias)}});
  detail::check_positions_apart("pope", read, {{"out", detail::memory_of(out)}});
  detail::pope_rows({&s.turns, &read, &in, &out, nullptr, nullptr, &bias, nullptr}, executor);
}

void PopePlan::gradient(const ConstHeads& in, const ConstHeads& d_out, const Positions& p,
                        const ConstTensorView& bias, const Heads& d_in, const TensorView& d_bias,
                        const Executor& executor) const {
  const detail::PopePlanState& s = *state_;
  check_tensor(s.dtype, in, in, s.channels, "in");
  check_tensor(s.dtype, d_out, in, 2 * s.channels, "d_out");
  check_tensor(s.dtype, d_in, in, s.channels, "d_in");
  const Positions read = check_positions(s, in, p);
  check_bias(bias, in, s.channels, false);
  check_bias(d_bias, in, s.channels, true);
  if (!d_bias.empty() && bias.empty()) refuse("pope", "a gradient of the bias needs the bias");
  if (in.batch * in.tokens * in.heads == 0) return;
  detail::check_outputs(
      "pope", {{"d_in", detail::memory_of(d_in)}, {"d_bias", detail::memory_of(d_bias)}}, {},
      {{"in", detail::memory_of(in)},
       {"d_out", detail::memory_of(d_out)},
       {"bias", detail::memory_of(bias)}});
  detail::check_positions_apart(
      "pope", read, {{"d_in", detail::memory_of(d_in)}, {"d_bias", detail::memory_of(d_bias)}});
  detail::pope_rows({&s.turns, &read, &in, nullptr, &d_out, &d_in, &bias, &d_bias}, executor);
}

}  // namespace posenc::v0
