// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/convert.h"
#include "core/element.h"
#include "kernels/token.h"
#include "phase/rows.h"

namespace posenc::inline v0::detail {
namespace {

__extension__ using I128 = __int128;

// Rows between exact anchors when angles are added: each step adds at most 4e-16.
constexpr Index kAnchor = 256;
// Below this length of a run of consecutive positions every row is made on its own.
constexpr Index kShortRun = 6;
struct Position {
  std::uint64_t whole = 0;    // two's complement
  std::int64_t fraction = 0;  // x 2^63, |fraction| <= 2^62
};

Position read(const Positions& p, Index at) noexcept {
  Position r;
  if (p.type != DType::f64) {
    r.whole = static_cast<std::uint64_t>(integer_element(p.data, p.type, at));
  } else {
    const double x = static_cast<const double*>(p.data)[at], whole = std::nearbyint(x);
    r.whole = static_cast<std::uint64_t>(static_cast<std::int64_t>(whole));
    r.fraction = static_cast<std::int64_t>((x - whole) * 0x1p63);  // x - whole is exact
  }
  return r;
}

// Turns x fraction of a position, whole turns of the frequency included.
std::uint64_t fraction_turn(std::uint64_t hi, double per_unit, std::int64_t fraction) noexcept {
  const double whole =
      std::fmod(std::nearbyint(per_unit - static_cast<double>(hi) * 0x1p-64), 0x1p62);
  const auto turns = static_cast<std::uint64_t>(static_cast<std::int64_t>(whole));
  const I128 rest = static_cast<I128>(hi) * fraction;
  return 2 * turns * static_cast<std::uint64_t>(fraction) + static_cast<std::uint64_t>(rest >> 63);
}

// What all rows of one call share, and the buffers of the pairs at hand.
struct Rows {
  const RowKernels& kernels;
  const PhaseTurns& turns;
  const Positions& positions;
  const RowPlane &cos, &sin;
  bool stream;
  std::uint64_t near;

  Index head = 0, first = 0, n = 0;  // pairs [first, first + n) of `head`
  bool has_step = false;
  // Left as they are: clearing them would cost as much as a token.
  alignas(64) std::uint64_t phase[kRowChunk + kRowPadding];
  alignas(64) double c[kRowChunk + kRowPadding], s[kRowChunk + kRowPadding];
  alignas(64) double step_c[kRowChunk + kRowPadding], step_s[kRowChunk + kRowPadding];

  Rows(const RowKernels& k, const PhaseTurns& t, const Positions& p, const RowPlane& c_plane,
       const RowPlane& s_plane, bool around) noexcept
      : kernels(k), turns(t), positions(p), cos(c_plane), sin(s_plane), stream(around) {
    const bool wide =
        (cos.data && cos.dtype == DType::f64) || (sin.data && sin.dtype == DType::f64);
    near = wide ? kNear64 : kNear32;
  }

  // Zero, with the lanes behind the last pair.
  void clear_phase() noexcept {
    std::memset(phase, 0, static_cast<std::size_t>(n + kRowPadding) * sizeof *phase);
  }

  void make_phase(Index at) noexcept {
    clear_phase();
    add_phases(kernels, turns, positions, at, head, first, n, near, phase);
  }

  void make_step() noexcept {
    clear_phase();
    std::memcpy(phase, turns.hi + head * turns.pairs + first,
                static_cast<std::size_t>(n) * sizeof *phase);
    kernels.sincos(phase, n, 1.0, step_c, step_s);
    has_step = true;
  }

  std::byte* place(const RowPlane& plane, Index batch, Index token) const noexcept {
    if (plane.data == nullptr) return nullptr;
    const Index at = batch * plane.batch_stride + token * plane.token_stride +
                     head * plane.head_stride + first * plane.step * plane.column_stride;
    return static_cast<std::byte*>(plane.data) + at * size_of(plane.dtype);
  }

  template <class T>
  static void scatter(const RowPlane& plane, const T* values, Index n, T* to) noexcept {
    const Index stride = plane.step * plane.column_stride, copy = plane.copy * plane.column_stride;
    for (Index i = 0; i < n; ++i) to[i * stride] = values[i];
    if (copy != 0)
      for (Index i = 0; i < n; ++i) to[i * stride + copy] = values[i];
  }

  template <class T>
  void put(const RowPlane& plane, const double* x, void (*store)(const double*, Index, void*),
           std::byte* to) const noexcept {
    if (plane.step * plane.column_stride == 1) {
      store(x, n, to);
      if (plane.copy != 0)
        std::memcpy(to + plane.copy * static_cast<Index>(sizeof(T)), to,
                    static_cast<std::size_t>(n) * sizeof(T));
    } else {
      T values[kRowChunk];
      store(x, n, values);
      scatter(plane, values, n, reinterpret_cast<T*>(to));
    }
  }

  void write(const RowPlane& plane, const double* x, Index batch, Index token) const noexcept {
    std::byte* to = place(plane, batch, token);
    if (to == nullptr) return;
    switch (plane.dtype) {
      case DType::f64:
        scatter(plane, x, n, reinterpret_cast<double*>(to));
        break;
      case DType::f32:
        put<float>(plane, x, kernels.store_f32, to);
        break;
      case DType::f16:
        put<std::uint16_t>(plane, x, kernels.store_f16, to);
        break;
      default:
        put<std::uint16_t>(plane, x, kernels.store_bf16, to);
        break;
    }
  }

  void one(Index batch, Index token) noexcept {
    make_phase(batch * positions.batch_stride + token * positions.token_stride);
    kernels.sincos(phase, n, turns.gain, c, s);
    write(cos, c, batch, token);
    write(sin, s, batch, token);
  }

  // Tokens from `token` on, before `end`, at consecutive positions up to the next anchor.
  Index run(Index batch, Index token, Index end) const noexcept {
    const Index at = batch * positions.batch_stride;
    const std::uint64_t p = read(positions, at + token * positions.token_stride).whole;
    const auto room = static_cast<Index>(static_cast<std::uint64_t>(kAnchor) - p % kAnchor);
    end = std::min(end, token + room);
    Index t = token + 1;
    while (t < end && read(positions, at + t * positions.token_stride).whole ==
                          p + static_cast<std::uint64_t>(t - token))
      ++t;
    return t - token;
  }

  bool allows_recurrence(const RowPlane& plane) const noexcept {
    return plane.data == nullptr ||
           (plane.dtype != DType::f64 && plane.step * plane.column_stride == 1);
  }

  void recurrence(Index batch, Index token, Index rows) noexcept {
    if (!has_step) make_step();
    make_phase(batch * positions.batch_stride + token * positions.token_stride);
    kernels.sincos(phase, n, turns.gain, c, s);
    const RowRecurrence w{c,
                          s,
                          step_c,
                          step_s,
                          n,
                          rows,
                          place(cos, batch, token),
                          place(sin, batch, token),
                          cos.token_stride,
                          sin.token_stride,
                          cos.data ? cos.copy : sin.copy,
                          stream};
    const DType dtype = cos.data ? cos.dtype : sin.dtype;
    (dtype == DType::f32   ? kernels.recurrence_f32
     : dtype == DType::f16 ? kernels.recurrence_f16
                           : kernels.recurrence_bf16)(w);
  }

  void chunk(Index begin, Index end) noexcept {
    has_step = false;
    const bool recurrent = turns.axes == 1 && positions.type != DType::f64 &&
                           allows_recurrence(cos) && allows_recurrence(sin) &&
                           (cos.data == nullptr || sin.data == nullptr ||
                            (cos.dtype == sin.dtype && cos.copy == sin.copy));
    for (Index r = begin; r < end;) {
      const Index batch = r / positions.count, token = r % positions.count;
      const Index stop = std::min(positions.count, token + (end - r));
      const Index rows = recurrent ? run(batch, token, stop) : 1;
      if (rows >= kShortRun) {
        recurrence(batch, token, rows);
      } else {
        for (Index i = 0; i < rows; ++i) one(batch, token + i);
      }
      r += rows;
    }
  }
};

}  // namespace

void add_phases(const RowKernels& kernels, const PhaseTurns& turns, const Positions& positions,
                Index at, Index head, Index first, Index n, std::uint64_t near,
                std::uint64_t* phase) noexcept {
  for (Index a = 0; a < turns.axes; ++a) {
    const Index base = (head * turns.axes + a) * turns.pairs + first;
    const Position p = read(positions, at + a * positions.axis_stride);
    if (p.whole + near < 2 * near) {
      kernels.add_turns(turns.hi + base, p.whole, n, phase);
    } else {
      for (Index i = 0; i < n; ++i)
        phase[i] += wide_turn(turns.hi[base + i], turns.lo[base + i], p.whole);
    }
    if (p.fraction != 0)
      for (Index i = 0; i < n; ++i)
        phase[i] += fraction_turn(turns.hi[base + i], turns.per_unit[base + i], p.fraction);
  }
}

void exact_rows(const RowKernels& kernels, const PhaseTurns& turns, const Positions& positions,
                const RowPlane& cos, const RowPlane& sin, bool stream, Index begin,
                Index end) noexcept {
  Rows rows(kernels, turns, positions, cos, sin, stream);
  for (rows.head = 0; rows.head < turns.heads; ++rows.head)
    for (rows.first = 0; rows.first < turns.pairs; rows.first += kRowChunk) {
      rows.n = std::min(kRowChunk, turns.pairs - rows.first);
      rows.chunk(begin, end);
    }
}

}  // namespace posenc::v0::detail
