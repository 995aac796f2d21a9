// SPDX-License-Identifier: Apache-2.0
#include "absolute/rows.h"

#include <algorithm>
#include <cmath>

#include "absolute/names.h"
#include "core/shape.h"
#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"
#include "positions/memory.h"

namespace posenc::inline v0 {
namespace {

// A phase or an affine map of the position; layers may follow.
void check_source(const InputTerm& t, const Positions& p) {
  const Index width = source_width(t);
  if (t.phase != nullptr) {
    if (t.phase->heads != 1) refuse(kApplyInput, "a phase must be of one head", t.phase->heads);
    if (width < sine_channels(t.layout, t.phase->pairs()) - 1)
      refuse_field(kApplyInput, "width", "must hold the pairs of the phase but for one channel",
                   width);
    return;
  }
  const ConstTensorView& v = t.table.empty() ? t.affine : t.table;
  if (v.rank != 2 || v.shape[1] != width || v.dtype != DType::f64)
    detail::refuse_shape(kApplyInput,
                         "a table must be [rows, " + std::to_string(width) + "] of f64", v);
  if (!t.affine.empty() && v.shape[0] != p.axes + 1)
    refuse(kApplyInput,
           "an affine map needs a row for every axis of the positions, " + std::to_string(p.axes) +
               ", and one more",
           v.shape[0]);
}

void check_term(const InputTerm& t, const Positions& p, Index batch, Index tokens) {
  check_one_source(kApplyInput, t);
  if (t.width < 1) refuse(kApplyInput, "width of a term must be positive", t.width);
  check_layers(t.layers, source_width(t), t.width);
  if (!t.rows.empty()) {
    const ConstTokenView r = tokens_of(t.rows, "rows");
    if (r.tokens != tokens || r.width != source_width(t) || (r.batch != 1 && r.batch != batch))
      detail::refuse_shape(kApplyInput,
                           "the caller's rows must have the tokens and width of the term, " +
                               detail::sizes_text({batch, tokens, source_width(t)}),
                           t.rows);
    return;
  }
  if (p.count != tokens)
    refuse_field(kApplyInput, "positions",
                 "must be one for each of the " + std::to_string(tokens) + " tokens", p.count);
  if (p.batch != 1 && p.batch != batch)
    refuse_field(kApplyInput, "positions",
                 "must have one row or the batch of x, " + std::to_string(batch), p.batch);
  const bool many = t.phase != nullptr && t.phase->axes > 1;
  if (t.axis < 0) refuse(kApplyInput, "axis of a term must not be negative", Index{t.axis});
  if (many && t.phase->axes != p.axes)
    refuse_field(kApplyInput, "positions",
                 "must have the " + std::to_string(t.phase->axes) + " axes of the phase",
                 Index{p.axes});
  if (const std::int32_t reads = std::max(t.axis, t.minus); !many && reads >= p.axes)
    refuse(kApplyInput,
           "a term reads axis " + std::to_string(reads) + " of the positions: they must have " +
               std::to_string(reads + 1) + " or more axes",
           Index{p.axes});
  if (t.minus >= p.axes)
    refuse_field(kApplyInput, "positions", "must have the axis that a term subtracts",
                 Index{t.minus});
  if (t.divide < 1) refuse_field(kApplyInput, "divide", "must be positive", t.divide);
  if (t.wrap < 0) refuse_field(kApplyInput, "wrap", "must not be negative", t.wrap);
  check_source(t, p);
  if (p.type != DType::f64) return;
  for (std::int32_t a = 0; a < p.axes; ++a)
    for (Index b = 0; b < p.batch; ++b)
      for (Index i = 0; i < p.count; ++i)
        if (const double x = position_at(p, a, b, i); !std::isfinite(x))
          refuse_field(kApplyInput, "positions", "must be finite", x);
}

}  // namespace

void check_one_source(const char* who, const InputTerm& t) {
  const int sources = (t.phase != nullptr ? 1 : 0) + (t.table.empty() ? 0 : 1) +
                      (t.affine.empty() ? 0 : 1) + (t.rows.empty() ? 0 : 1);
  if (sources != 1)
    refuse(who, "a term must have one source of rows: phase, table, affine or rows",
           Index{sources});
}

void check_rows_memory(const char* who, const LoweredInput& lowered, const TensorView& out,
                       std::string_view name, Index width) {
  const auto last = static_cast<std::size_t>(out.rank - 1);
  for (const InputTerm& t : lowered.terms) {
    const Index first = t.compose == Compose::concat ? width : t.first;
    width += t.compose == Compose::concat ? t.width : 0;
    if (t.rows.empty()) continue;
    const detail::Memory rows = detail::memory_of(t.rows);
    if (!detail::overlaps(rows, detail::memory_of(out))) continue;
    TensorView own = out;
    own.data = static_cast<std::byte*>(out.data) + first * out.stride[last] * size_of(out.dtype);
    own.shape[last] = t.width;
    if (first + t.width > out.shape[last] || !detail::same_view(rows, detail::memory_of(own)))
      refuse_field(who, name, "must not overlap the caller's rows but channel by channel");
  }
}

namespace {

// All that a term may have a gradient of.
template <class F>
void each_gradient(const InputGradient& g, F&& use) {
  for (const TensorView* v : {&g.table, &g.affine, &g.rows, &g.frequency, &g.gain, &g.position})
    if (!v->empty()) use(*v);
  for (const DenseGradient& layer : g.layers)
    for (const TensorView* v : {&layer.weight, &layer.bias})
      if (!v->empty()) use(*v);
}

}  // namespace

void check_gradient_memory(std::string_view who, std::span<const InputGradient> g,
                           const Positions& p, std::initializer_list<detail::Operand> other) {
  for (const InputGradient& term : g)
    each_gradient(term, [&](const TensorView& v) {
      const detail::Operand out{"a gradient", detail::memory_of(v)};
      detail::check_no_self_overlap(who, out);
      for (const detail::Operand& in : other) detail::check_separate(who, in, out);
      detail::check_positions_apart(who, p, {out});
    });
}

void check_product_has_x(std::string_view who, const LoweredInput& lowered,
                         const ConstTensorView& x, std::span<const InputGradient> g) {
  if (!x.empty()) return;
  for (std::size_t n = 0; n < g.size(); ++n) {
    const Compose compose = lowered.terms[n].compose;
    if (compose != Compose::multiply && compose != Compose::one_plus) continue;
    each_gradient(g[n], [&](const TensorView&) {
      refuse_field(who, "x", "must be given: gradients of a product need it", enum_text(compose));
    });
  }
}

namespace {

template <class Data>
BasicTokenView<Data> token_view(const BasicTensorView<Data>& v, const char* what) {
  if (!is_float(v.dtype))
    refuse_field(kApplyInput, what, "must be f64, f32, f16 or bf16", dtype_name(v.dtype));
  if (v.device != Device::cpu) refuse_field(kApplyInput, what, "must be in the CPU's memory");
  if (v.rank != 2 && v.rank != 3)
    detail::refuse_shape(kApplyInput, what, "must be [t, c] or [b, t, c]", v);
  const auto last = static_cast<std::size_t>(v.rank - 1);
  BasicTokenView<Data> t;
  t.data = v.data;
  t.dtype = v.dtype;
  t.width = v.shape[last];
  t.width_stride = v.stride[last];
  t.tokens = v.shape[last - 1];
  t.token_stride = v.stride[last - 1];
  if (v.rank == 3) t.batch = v.shape[0], t.batch_stride = v.stride[0];
  return t;
}

}  // namespace

TokenView tokens_of(const TensorView& v, const char* what) {
  return token_view(v, what);
}
ConstTokenView tokens_of(const ConstTensorView& v, const char* what) {
  return token_view(v, what);
}

SineChannel sine_channel(SineLayout layout, Index pairs, Index width, Index channel) {
  const Index used = std::min(width, sine_channels(layout, pairs));
  if (channel >= used) return {};
  if (layout == SineLayout::sines) return {channel, false};
  if (layout == SineLayout::cosines) return {channel, true};
  if (layout == SineLayout::interleaved) return {channel / 2, channel % 2 != 0};
  // Of an odd number of channels the sines get one more.
  const Index cosines = used / 2, sines = used - cosines;
  if (layout == SineLayout::halves)
    return channel < sines ? SineChannel{channel, false} : SineChannel{channel - sines, true};
  return channel < cosines ? SineChannel{channel, true} : SineChannel{channel - cosines, false};
}

InputRows::InputRows(const LoweredInput& lowered, const Positions& p, Index batch, Index tokens)
    : lowered_(lowered), positions_(p), tokens_(tokens) {
  for (const InputTerm& t : lowered.terms) {
    check_term(t, p, batch, tokens);
    sine_.emplace_back();
    cosine_.emplace_back();
    if (t.phase == nullptr) continue;
    OwnedPositions moved = owned(p);
    if (t.phase->axes == 1) {  // the stream of the term
      const Index plane = moved.batch * moved.count();
      moved = std::visit(
          [&](const auto& v) {
            const auto begin = v.begin() + static_cast<std::ptrdiff_t>(t.axis * plane);
            return explicit_positions(
                std::decay_t<decltype(v)>(begin, begin + static_cast<std::ptrdiff_t>(plane)),
                std::max<Index>(p.batch, 1));
          },
          moved.value);
    }
    if (t.offset != 0) moved = shifted(moved, t.offset);
    const Index rows = std::max<Index>(p.batch, 1) * tokens, pairs = t.phase->pairs();
    sine_.back().resize(static_cast<std::size_t>(rows * pairs));
    cosine_.back().resize(static_cast<std::size_t>(rows * pairs));
    if (rows * pairs > 0)
      phase_rows(*t.phase, moved, tensor(cosine_.back().data(), {rows, pairs}),
                 tensor(sine_.back().data(), {rows, pairs}));
  }
}

std::size_t InputRows::phase_at(const InputTerm& t, Index b, Index token, Index pair) const {
  const Index row = (positions_.batch == 1 ? 0 : b) * tokens_ + token;
  return static_cast<std::size_t>(row * t.phase->pairs() + pair);
}

double InputRows::position(std::int32_t axis, Index b, Index token) const {
  return position_at(positions_, axis, positions_.batch == 1 ? 0 : b, token);
}

bool InputRows::is_zero(const InputTerm& t, Index b, Index token) const {
  if (!t.zero_position.has_value()) return false;
  if (positions_.type == DType::f64)
    return position(t.axis, b, token) == static_cast<double>(*t.zero_position);
  return integer_position_at(positions_, t.axis, positions_.batch == 1 ? 0 : b, token) ==
         *t.zero_position;
}

void InputRows::source_row(std::size_t n, Index b, Index token, std::vector<double>& out) const {
  const InputTerm& t = lowered_.terms[n];
  const Index width = source_width(t);
  out.assign(static_cast<std::size_t>(width), 0.0);
  const auto add = [&](const ConstTensorView& v, Index row, double factor) {
    for (Index c = 0; c < width; ++c)
      out[static_cast<std::size_t>(c)] +=
          factor * static_cast<const double*>(v.data)[row * v.stride[0] + c * v.stride[1]];
  };
  if (!t.rows.empty()) {
    const ConstTokenView r = tokens_of(t.rows, "rows");
    for (Index c = 0; c < width; ++c)
      out[static_cast<std::size_t>(c)] = r.get(r.batch == 1 ? 0 : b, token, c);
  } else if (t.phase != nullptr) {
    for (Index c = 0; c < width; ++c) {
      const SineChannel s = sine_channel(t.layout, t.phase->pairs(), width, c);
      if (s.pair >= 0)
        out[static_cast<std::size_t>(c)] =
            (s.cosine ? cosine_ : sine_)[n][phase_at(t, b, token, s.pair)];
    }
  } else if (!t.affine.empty()) {
    add(t.affine, positions_.axes, 1);
    for (std::int32_t a = 0; a < positions_.axes; ++a) add(t.affine, a, position(a, b, token));
  } else {
    const Index row = table_row(t, b, token), n_rows = t.table.shape[0];
    if (row < 0) return;
    if (row < n_rows) return add(t.table, row, 1);
    add(t.table, row % n_rows, 1);
    add(t.table, row / n_rows, t.extension);
    add(t.table, 0, -t.extension);
  }
}

void InputRows::row(std::size_t n, Index b, Index token, std::vector<double>& out) const {
  const InputTerm& t = lowered_.terms[n];
  if (t.rows.empty() && is_zero(t, b, token)) {
    out.assign(static_cast<std::size_t>(t.width), 0.0);
    return;
  }
  source_row(n, b, token, out);
  apply_layers(t.layers, out);
}

void InputRows::pull(std::size_t n, Index b, Index token, const std::vector<double>& d,
                     const InputGradient& g) const {
  const InputTerm& t = lowered_.terms[n];
  if (t.rows.empty() && is_zero(t, b, token)) return;
  if (t.layers.empty()) {
    pull_source(n, b, token, d, g);
    return;
  }
  std::vector<double> row, back = d;
  source_row(n, b, token, row);
  pull_layers(t.layers, row, back, g.layers);
  pull_source(n, b, token, back, g);
}

void InputRows::pull_source(std::size_t n, Index b, Index token, const std::vector<double>& d,
                            const InputGradient& g) const {
  const InputTerm& t = lowered_.terms[n];
  const Index width = source_width(t);
  if (!t.rows.empty()) {
    if (g.rows.empty()) return;
    const TokenView r = tokens_of(g.rows, "gradient of rows");
    for (Index c = 0; c < width; ++c) {
      const Index row = r.batch == 1 ? 0 : b;
      r.put(row, token, c, r.get(row, token, c) + d[static_cast<std::size_t>(c)]);
    }
  } else if (t.phase != nullptr) {
    pull_phase(n, b, token, d, g);
  } else if (!t.affine.empty()) {
    pull_affine(t, b, token, d, g);
  } else {
    pull_table(t, b, token, d, g);
  }
}

// d sin(p w + ..)/dp = w cos, /dw = p cos; d cos = minus the same with sin.
void InputRows::pull_phase(std::size_t n, Index b, Index token, const std::vector<double>& d,
                           const InputGradient& g) const {
  if (g.position.empty() && g.frequency.empty()) return;
  const InputTerm& t = lowered_.terms[n];
  const Index pairs = t.phase->pairs(), width = source_width(t);
  for (Index c = 0; c < width; ++c) {
    const SineChannel s = sine_channel(t.layout, pairs, width, c);
    if (s.pair < 0) continue;
    const std::size_t at = phase_at(t, b, token, s.pair);
    const double by_angle =
        d[static_cast<std::size_t>(c)] * (s.cosine ? -sine_[n][at] : cosine_[n][at]);
    for (std::int32_t a = 0; a < t.phase->axes; ++a) {
      const double f = t.phase->frequency[static_cast<std::size_t>(a * pairs + s.pair)];
      const std::int32_t axis = t.phase->axes == 1 ? t.axis : a;
      if (!g.position.empty()) position_gradient(g, axis, b, token) += by_angle * f;
      if (!g.frequency.empty())
        static_cast<double*>(
            g.frequency.data)[a * g.frequency.stride[0] + s.pair * g.frequency.stride[1]] +=
            by_angle * (position(axis, b, token) + static_cast<double>(t.offset));
    }
  }
}

void InputRows::pull_affine(const InputTerm& t, Index b, Index token, const std::vector<double>& d,
                            const InputGradient& g) const {
  const auto at = [](const auto& v, Index row, Index c) -> auto& {
    return data_of<double>(v)[row * v.stride[0] + c * v.stride[1]];
  };
  for (Index c = 0; c < source_width(t); ++c) {
    const double up = d[static_cast<std::size_t>(c)];
    for (std::int32_t a = 0; a < positions_.axes; ++a) {
      if (!g.affine.empty()) at(g.affine, a, c) += up * position(a, b, token);
      if (!g.position.empty()) position_gradient(g, a, b, token) += up * at(t.affine, a, c);
    }
    if (!g.affine.empty()) at(g.affine, positions_.axes, c) += up;
  }
}

double& InputRows::position_gradient(const InputGradient& g, std::int32_t axis, Index b,
                                     Index token) const {
  return static_cast<double*>(
      g.position.data)[axis * g.position.stride[0] +
                       (positions_.batch == 1 ? 0 : b) * g.position.stride[1] +
                       token * g.position.stride[2]];
}

}  // namespace posenc::v0
