// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/pope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "core/convert.h"
#include "core/overlap.h"
#include "core/shape.h"
#include "kernels/read.h"
#include "kernels/token.h"
#include "posenc/core/error.h"
#include "positions/shared_row.h"

namespace posenc {

struct PopePlan::State {
  DType dtype = DType::f32;
  Index channels = 0;
  std::vector<std::uint64_t> hi, lo;
  std::vector<double> per_unit;
  RotaryTables table;  // of the phase alone
};

namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

void write(const Heads& h, Index at, double x) noexcept {
  switch (h.dtype) {
    case DType::f64:
      static_cast<double*>(h.data)[at] = x;
      break;
    case DType::f32:
      static_cast<float*>(h.data)[at] = static_cast<float>(x);
      break;
    case DType::f16:
      static_cast<std::uint16_t*>(h.data)[at] = f16_from(x);
      break;
    default:
      static_cast<std::uint16_t*>(h.data)[at] = bf16_from(x);
      break;
  }
}
Index row_of(const Heads& h, Index batch, Index token, Index head) noexcept {
  return batch * h.batch_stride + token * h.token_stride + head * h.head_stride;
}
double bias_at(const TensorView& v, Index head, Index i) noexcept {
  if (v.empty()) return 0;
  return detail::ReadRow(v.data, v.dtype, head * v.stride[0] + i * v.stride[1]);
}

double angle(const RotaryTables& t, const detail::TokenPosition& p, Index i) noexcept {
  std::uint64_t turn = detail::WideTurn(t, i, p.whole[0]);
  if (p.fractional) turn += static_cast<std::uint64_t>(detail::FractionOfTurn(t, i, p) * 0x1p64);
  return static_cast<double>(static_cast<std::int64_t>(turn)) * 0x1p-64 * kTwoPi;
}

// ln(1 + e^x) without overflow.
double softplus(double x) noexcept {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
double sigmoid(double x) noexcept {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

struct Call {
  const RotaryTables* table;
  const Heads *in, *out;  // out: the gradient of what came out when d_in is given
  const Positions* positions;
  const TensorView* bias;
  const Heads* d_in;
  const TensorView* d_bias;
  Index channels, tasks;
};

void forward_row(const Call& c, const detail::TokenPosition& p, Index x, Index y,
                 Index head) noexcept {
  for (Index i = 0; i < c.channels; ++i) {
    const double bias = std::clamp(bias_at(*c.bias, head, i), -kTwoPi, 0.0);
    const double phi = angle(*c.table, p, i) + bias;
    const double mu = softplus(detail::ReadRow(c.in->data, c.in->dtype, x + i * c.in->dim_stride));
    write(*c.out, y + i * c.out->dim_stride, mu * std::cos(phi));
    write(*c.out, y + (c.channels + i) * c.out->dim_stride, mu * std::sin(phi));
  }
}

void backward_row(const Call& c, const detail::TokenPosition& p, Index x, Index y, Index d,
                  Index head) noexcept {
  for (Index i = 0; i < c.channels; ++i) {
    const double raw = bias_at(*c.bias, head, i);
    const double phi = angle(*c.table, p, i) + std::clamp(raw, -kTwoPi, 0.0);
    const double co = std::cos(phi), si = std::sin(phi);
    const double value = detail::ReadRow(c.in->data, c.in->dtype, x + i * c.in->dim_stride);
    const double gc = detail::ReadRow(c.out->data, c.out->dtype, y + i * c.out->dim_stride);
    const double gs =
        detail::ReadRow(c.out->data, c.out->dtype, y + (c.channels + i) * c.out->dim_stride);
    write(*c.d_in, d + i * c.d_in->dim_stride, sigmoid(value) * (gc * co + gs * si));
    if (c.d_bias->empty() || raw <= -kTwoPi || raw >= 0) continue;
    static_cast<double*>(c.d_bias->data)[head * c.d_bias->stride[0] + i * c.d_bias->stride[1]] +=
        softplus(value) * (gs * co - gc * si);
  }
}

// Heads are shared out; each meets its tokens in order.
void run_heads(void* arg, Index task) {
  const Call& c = *static_cast<const Call*>(arg);
  const Heads& h = *c.in;
  for (Index head = h.heads * task / c.tasks; head < h.heads * (task + 1) / c.tasks; ++head)
    for (Index b = 0; b < h.batch; ++b)
      for (Index t = 0; t < h.tokens; ++t) {
        detail::TokenPosition p{};
        detail::read_position(*c.positions, 1, b, t, p);
        const Index x = row_of(h, b, t, head), y = row_of(*c.out, b, t, head);
        if (c.d_in != nullptr)
          backward_row(c, p, x, y, row_of(*c.d_in, b, t, head), head);
        else
          forward_row(c, p, x, y, head);
      }
}

void run(Call& c, const Executor& executor) {
  c.tasks = executor.run != nullptr ? std::min(executor.concurrency, c.in->heads) : 1;
  if (c.tasks > 1) return executor.run(executor.context, c.tasks, run_heads, &c);
  c.tasks = 1;
  run_heads(&c, 0);
}

void check_tensor(DType type, const Heads& h, const Heads& shape, Index dim,
                  std::string_view what) {
  const std::string who(what);
  if (h.dtype != type)
    refuse("pope", who + " must be of the plan's dtype " + std::string(name(type)), name(h.dtype));
  if (h.dim != dim) refuse("pope", who + " must have heads of " + std::to_string(dim), h.dim);
  if (h.batch != shape.batch || h.tokens != shape.tokens || h.heads != shape.heads)
    refuse("pope", who + " must have the batch, tokens and heads of in, tokens", h.tokens);
  if (h.data == nullptr && h.batch * h.tokens * h.heads > 0)
    refuse("pope", who + " must have memory");
}

// Returns the positions to read.
Positions check_positions(const Heads& h, const Positions& p) {
  if (p.type != DType::i64 && p.type != DType::i32 && p.type != DType::f64)
    refuse("pope", "positions must be i64, i32 or f64", name(p.type));
  if (p.axes != 1) refuse("pope", "positions must have one axis", Index{p.axes});
  if (p.count != h.tokens) refuse("pope", "one position for each token, count", p.count);
  if (p.batch != h.batch && p.batch != 1)
    refuse(
        "pope",
        "positions must have one row, or one for each of the batch of " + std::to_string(h.batch),
        p.batch);
  if (p.data == nullptr && p.count > 0) refuse("pope", "positions must have memory");
  const Positions read = detail::shared_row(p);
  if (p.type != DType::f64) return read;
  for (Index b = 0; b < p.batch; ++b)
    for (Index t = 0; t < p.count; ++t) {
      const double x = static_cast<const double*>(p.data)[b * p.batch_stride + t * p.token_stride];
      if (!(std::fabs(x) <= 0x1p62)) refuse("pope", "positions must be finite and at most 2^62", x);
    }
  return read;
}

void check_bias(const TensorView& v, const Heads& h, Index channels, bool gradient) {
  if (v.empty()) return;
  if (v.rank != 2 || v.shape[0] != h.heads || v.shape[1] != channels)
    detail::refuse_shape(
        "pope", "bias must be [" + std::to_string(h.heads) + ", " + std::to_string(channels) + "]",
        v);
  const bool fits = v.dtype == DType::f64 || (!gradient && v.dtype == DType::f32);
  if (!fits || (gradient && v.read_only))
    refuse("pope",
           gradient ? "gradient of the bias must be writable f64" : "bias must be f32 or f64",
           name(v.dtype));
}

}  // namespace

PopePlan::PopePlan(const Pope& definition, DType type)
    : PopePlan(
          [&] {
            if (definition.head_dim < 1 || definition.head_dim > 32768)
              refuse("pope", "head_dim must be 1 to 32768", definition.head_dim);
            if (!(definition.base > 0) || !std::isfinite(definition.base))
              refuse("pope", "base must be finite and positive", definition.base);
            return definition.spectrum();
          }(),
          type) {}

PopePlan::PopePlan(const Spectrum& spectrum, DType type) {
  if (!is_float(type)) refuse("pope", "dtype must be f64, f32, f16 or bf16", name(type));
  check(spectrum);
  if (spectrum.heads != 1) refuse("pope", "the spectrum must be one for all heads", spectrum.heads);
  if (spectrum.axes != 1) refuse("pope", "the spectrum must have one axis", spectrum.axes);
  if (spectrum.gain != 1) refuse("pope", "the spectrum must have gain 1", spectrum.gain);
  auto s = std::make_shared<State>();
  s->dtype = type;
  s->channels = spectrum.pairs();
  for (const Turns& t : exact_turns(spectrum))
    s->hi.push_back(t.hi), s->lo.push_back(t.lo), s->per_unit.push_back(t.per_unit);
  s->table.wide_hi = s->hi.data(), s->table.wide_lo = s->lo.data();
  s->table.per_unit = s->per_unit.data();
  s->table.pairs = s->channels;
  state_ = std::move(s);
}

void PopePlan::apply(const Heads& in, const Heads& out, const Positions& p, const TensorView& bias,
                     const Executor& executor) const {
  const State& s = *state_;
  check_tensor(s.dtype, in, in, s.channels, "in");
  check_tensor(s.dtype, out, in, 2 * s.channels, "out");
  if (out.read_only) refuse("pope", "out must not be read-only");
  const Positions read = check_positions(in, p);
  check_bias(bias, in, s.channels, false);
  if (in.batch * in.tokens * in.heads == 0) return;
  detail::check_outputs("pope", {{"out", detail::memory_of(out)}}, {},
                        {{"in", detail::memory_of(in)}});
  Call c{&s.table, &in, &out, &read, &bias, nullptr, nullptr, s.channels, 1};
  run(c, executor);
}

void PopePlan::gradient(const Heads& in, const Heads& d_out, const Positions& p,
                        const TensorView& bias, const Heads& d_in, const TensorView& d_bias,
                        const Executor& executor) const {
  const State& s = *state_;
  check_tensor(s.dtype, in, in, s.channels, "in");
  check_tensor(s.dtype, d_out, in, 2 * s.channels, "d_out");
  check_tensor(s.dtype, d_in, in, s.channels, "d_in");
  if (d_in.read_only) refuse("pope", "d_in must not be read-only");
  const Positions read = check_positions(in, p);
  check_bias(bias, in, s.channels, false);
  check_bias(d_bias, in, s.channels, true);
  if (!d_bias.empty() && bias.empty()) refuse("pope", "a gradient of the bias needs the bias");
  if (in.batch * in.tokens * in.heads == 0) return;
  detail::check_outputs("pope", {{"d_in", detail::memory_of(d_in)}}, {},
                        {{"in", detail::memory_of(in)}, {"d_out", detail::memory_of(d_out)}});
  Call c{&s.table, &in, &d_out, &read, &bias, &d_in, &d_bias, s.channels, 1};
  run(c, executor);
}

}  // namespace posenc
