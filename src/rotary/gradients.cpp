// SPDX-License-Identifier: Apache-2.0
// Gradients of what the rotation was made of, in double. With u = y / (gain * decay),
//   u_a = x_a cos phi - d x_b sin phi,   u_b = d x_a sin phi + x_b cos phi      (d the direction)
//   dL/dphi   = gain decay d (g_b u_a - g_a u_b)          phi = sum of position * frequency
//   dL/dgain  = decay (g_a u_a + g_b u_b)
//   dL/dp     = sum frequency dL/dphi + ln 2 (+-log2_decay / scale) gain decay (g_a u_a + g_b u_b)
// Tokens are cut into slices by the shape alone, and these are added in order: the result does not
// depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <string>

#include "core/parallel.h"
#include "core/shape.h"
#include "core/workspace.h"
#include "kernels/token.h"
#include "posenc/core/error.h"
#include "positions/memory.h"
#include "rotary/gradient_tensors.h"

namespace posenc::inline v0 {
namespace {

using State = detail::RotaryPlanState;
constexpr Index kSlices = 64;
constexpr double kTwoPi = 6.283185307179586476925;
constexpr double kLn2 = 0.693147180559945309417;

const ConstHeads& shape_of(const ConstQK& x) noexcept {
  return x.q.data != nullptr ? x.q : x.k;
}

void check_call(const State& s, const ConstQK& x, const ConstQK& g) {
  detail::check_gradient_tensors(s, x, g);
  for (const ConstHeads* h : {&x.q, &x.k})
    if (h->data != nullptr && s.heads > 1 && h->heads != s.heads)
      refuse("rotary", "the spectrum is per head: heads must be " + std::to_string(s.heads),
             h->heads);
}

void check_gradient(const ConstTensorView& v, std::string_view what,
                    std::initializer_list<Index> shape) {
  if (v.empty()) return;
  if (v.device != Device::cpu)
    refuse_field("rotary", std::string(what) + " gradient", "must be in the CPU's memory");
  if (v.dtype != DType::f64)
    refuse_field("rotary", std::string(what) + " gradient", "must be f64", dtype_name(v.dtype));
  bool fits = v.rank == static_cast<std::int32_t>(shape.size());
  std::size_t i = 0;
  std::string text;
  for (const Index n : shape) {
    fits = fits && v.shape[i++] == n;
    text += (text.empty() ? "[" : ", ") + std::to_string(n);
  }
  if (!fits)
    detail::refuse_shape("rotary", std::string(what) + " gradient", "must be " + text + "]", v);
}

double& at(const TensorView& v, Index i, Index j, Index k) noexcept {
  return static_cast<double*>(v.data)[i * v.stride[0] + j * v.stride[1] + k * v.stride[2]];
}

Index slices_of(Index tokens) noexcept {
  return std::min(kSlices, tokens);
}

// Of the sums of a slice: frequencies, then the gain.
Index columns_of(const RotaryTables& t) noexcept {
  return Index{t.heads} * t.axes * t.pairs + 1;
}
double* partial_sums(detail::Arena& arena, Index slices, const RotaryTables& t) noexcept {
  return arena.take<double>(slices * columns_of(t));
}

// Where the two members of pair k stand before and after the turn.
struct Members {
  Index a, b;
};
Members members(const RotaryTables& t, bool output, Index k) noexcept {
  const bool side_by_side = t.pairing == Pairing::interleaved &&
                            !(output && t.output_order == OutputOrder::even_then_odd);
  if (side_by_side) return {t.offset + 2 * k, t.offset + 2 * k + 1};
  return {t.offset + k, t.offset + t.pairs + k};
}

struct Call {
  const State* state;
  const RotaryTables* table;
  const Spectrum* spectrum;
  const ConstQK *x, *g;
  const Positions* positions;
  const PhaseGradients* want;
  double* partial;  // [slices, columns]: frequency, then gain
  Index tokens, slices, columns;
};

// Sums over the heads of one tensor that share pair k's phase, of g_b u_a - g_a u_b and
// g_a u_a + g_b u_b.
struct Sums {
  double turn = 0, grow = 0;
};
Sums sum_heads(const RotaryTables& t, const ConstHeads& x, const ConstHeads& g, Index batch,
               Index token, Index first, Index last, Index k, double c, double s) noexcept {
  const Members in = members(t, false, k), out = members(t, true, k);
  const double d = t.direction;
  Sums r;
  for (Index h = first; h < last; ++h) {
    const double xa = detail::head_element(x, batch, token, h, in.a),
                 xb = detail::head_element(x, batch, token, h, in.b);
    const double ga = detail::head_element(g, batch, token, h, out.a),
                 gb = detail::head_element(g, batch, token, h, out.b);
    const double ua = xa * c - d * xb * s, ub = d * xa * s + xb * c;
    r.turn += gb * ua - ga * ub;
    r.grow += ga * ua + gb * ub;
  }
  return r;
}

void add_token(const Call& call, Index batch, Index token, double* partial) noexcept {
  const RotaryTables& t = *call.table;
  detail::TokenPosition p{};
  detail::read_position(*call.positions, t.axes, batch, token, p);
  const double real = detail::RealPosition(p, 0);
  double d_position[detail::kMaxAxes] = {};
  for (Index h = 0; h < t.heads; ++h)
    for (Index k = 0; k < t.pairs; ++k) {
      const Index column = h * t.axes * t.pairs + k;
      std::uint64_t turn = 0;
      for (Index a = 0; a < t.axes; ++a)
        turn += detail::WideTurn(t, column + a * t.pairs, p.whole[a]);
      if (p.fractional)
        turn += static_cast<std::uint64_t>(detail::FractionOfTurn(t, column, p) * 0x1p64);
      const double phi = static_cast<double>(static_cast<std::int64_t>(turn)) * 0x1p-64 * kTwoPi;
      const double c = std::cos(phi), s = std::sin(phi);
      const double power =
          t.log2_decay ? t.log2_decay[k] * (real - t.decay_center) / t.decay_scale : 0;
      double d_phi = 0;
      for (int key = 0; key < 2; ++key) {
        const ConstHeads& x = key ? call.x->k : call.x->q;
        const ConstHeads& g = key ? call.g->k : call.g->q;
        if (x.data == nullptr) continue;
        const Index first = t.heads > 1 ? h : 0, last = t.heads > 1 ? h + 1 : x.heads;
        const Sums sums = sum_heads(t, x, g, batch, token, first, last, k, c, s);
        const double decay = t.log2_decay ? std::exp2(key ? -power : power) : 1;
        d_phi += t.gain * decay * t.direction * sums.turn;
        partial[call.columns - 1] += decay * sums.grow;
        if (t.log2_decay)
          d_position[0] +=
              (key ? -kLn2 : kLn2) * t.log2_decay[k] / t.decay_scale * t.gain * decay * sums.grow;
      }
      for (Index a = 0; a < t.axes; ++a) {
        const Index i = column + a * t.pairs;
        partial[i] += detail::RealPosition(p, a) * d_phi;
        d_position[a] += call.spectrum->frequency[static_cast<std::size_t>(i)] * d_phi;
      }
    }
  if (!call.want->position.empty())
    for (Index a = 0; a < t.axes; ++a) at(call.want->position, a, batch, token) += d_position[a];
}

void add_slice(const Call& call, Index slice, Index begin, Index end) noexcept {
  const Index count = shape_of(*call.x).tokens;
  double* partial = call.partial + slice * call.columns;
  std::fill_n(partial, call.columns, 0.0);
  for (Index r = begin; r < end; ++r) add_token(call, r / count, r % count, partial);
}

}  // namespace

std::size_t RotaryPlan::phase_gradients_workspace(const ConstQK& x) const {
  const ConstHeads& h = shape_of(x);
  const Index slices = h.data != nullptr ? slices_of(h.batch * h.tokens) : 0;
  std::size_t most = 0;
  for (const RotaryTables& t : state_->tables) {
    detail::Arena count;
    partial_sums(count, slices, t);
    most = std::max(most, count.bytes());
  }
  return most;
}

void RotaryPlan::phase_gradients(const ConstQK& x, const ConstQK& g, const Positions& p,
                                 const PhaseGradients& want, Workspace workspace,
                                 const Executor& executor) const {
  const State& s = *state_;
  if (s.spec.precision != Precision::exact)
    refuse("rotary", "gradients of the phase are those of precision exact",
           enum_text(s.spec.precision));
  if (want.block < 0 || want.block >= static_cast<Index>(s.tables.size()))
    refuse_field("rotary", "block", "must be one of the plan's", want.block);
  const RotaryTables& t = s.tables[static_cast<std::size_t>(want.block)];
  check_call(s, x, g);
  std::optional<Positions> one_row;
  const Positions& read = detail::check_positions(s, detail::kernel_view(x), p, one_row);
  if (read.data != nullptr) detail::check_lengths(s, read, RotateMode::forward);
  const ConstHeads& h = shape_of(x);
  check_gradient(want.frequency, "frequency", {t.heads, t.axes, t.pairs});
  check_gradient(want.gain, "gain", {1});
  check_gradient(want.position, "position", {t.axes, h.batch, h.tokens});
  if (workspace.size() < phase_gradients_workspace(x))
    refuse_field("rotary", "workspace",
                 "must have " + std::to_string(phase_gradients_workspace(x)) + " bytes",
                 static_cast<Index>(workspace.size()));
  if (h.data == nullptr || h.batch * h.tokens == 0) return;
  const std::initializer_list<detail::Operand> written = {
      {"the frequency gradient", detail::memory_of(want.frequency)},
      {"the gain gradient", detail::memory_of(want.gain)},
      {"the position gradient", detail::memory_of(want.position)},
      {"the workspace", detail::memory_of(workspace)}};
  detail::check_outputs("rotary", written, {},
                        {{"q", detail::memory_of(x.q)},
                         {"k", detail::memory_of(x.k)},
                         {"d_out of q", detail::memory_of(g.q)},
                         {"d_out of k", detail::memory_of(g.k)}});
  detail::check_positions_apart("rotary", read, written);
  detail::Arena arena(workspace);
  const Index slices = slices_of(h.batch * h.tokens);
  const Call call{&s,
                  &t,
                  &s.spec.blocks[static_cast<std::size_t>(want.block)].spectrum,
                  &x,
                  &g,
                  &read,
                  &want,
                  partial_sums(arena, slices, t),
                  h.batch * h.tokens,
                  slices,
                  columns_of(t)};
  detail::parallel_slices(
      executor, call.tokens, call.slices,
      [&](Index slice, Index begin, Index end) noexcept { add_slice(call, slice, begin, end); });
  for (Index i = 0; i < call.slices; ++i) {
    const double* partial = call.partial + i * call.columns;
    if (!want.gain.empty()) *static_cast<double*>(want.gain.data) += partial[call.columns - 1];
    if (want.frequency.empty()) continue;
    for (Index head = 0; head < t.heads; ++head)
      for (Index a = 0; a < t.axes; ++a)
        for (Index k = 0; k < t.pairs; ++k)
          at(want.frequency, head, a, k) += partial[(head * t.axes + a) * t.pairs + k];
  }
}

}  // namespace posenc::v0
