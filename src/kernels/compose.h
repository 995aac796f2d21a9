// SPDX-License-Identifier: Apache-2.0
// Composition of rows with token embeddings: arguments and the table of entries. However many terms
// add, multiply or append, y is M x + A a channel; the kernel makes A (and M) of one position and
// applies them to every token that stands there. Arithmetic on pointers and strides: no policy, no
// allocation, nothing thrown.
#pragma once
#include "core/access_pattern.h"
#include "core/element.h"
#include "kernels/args.h"
#include "posenc/core/composition.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

// Rows of consecutive positions follow by recurrence from the exact row of a multiple of
// kPhaseGroup, phase_run of them before the next channels; in 16 bits from starts that are
// phase_run positions apart.
inline constexpr Index kPhaseGroup = 64;
constexpr Index phase_run(DType type) noexcept {
  return size_of(type) == 2 ? 16 : 8;
}

// How far one position and, for 16 bits, phase_run positions rotate each channel of a phase; padded
// as the turns are. 16 bits are made in float from cos(w) - 1: `cosine` of one position is that.
// Nothing here: each row is made alone (several axes; 16 bits, where a position turns a channel by
// more than a quarter: a recurrence in float would be off by 3e-5 near a half).
template <class S>
struct PhaseRotation {
  struct {
    const S *cosine = nullptr, *sine = nullptr;
  } by_one, by_run;
};

// One term, prepared. The channels [first, first + width) of y.
struct ComposeSource {
  enum class Kind : std::uint8_t { phase, table, affine, rows } kind = Kind::phase;
  Compose compose = Compose::add;
  SineLayout layout = SineLayout::interleaved;
  Beyond beyond = Beyond::error;
  bool has_zero = false;        // zero_position counts
  std::int32_t axis = 0;        // of the positions; phases of several axes take all of them
  RotaryTables phase;           // axes, pairs and turns
  PhaseRotation<double> wide;   // f32
  PhaseRotation<float> narrow;  // f16 and bf16
  const void* table = nullptr;  // dense [table_rows, width] of the plan's dtype
  Index table_rows = 0;
  const double* wide_table = nullptr;  // the same in f64: Beyond::extend reads it
  double extension = 0;
  // Row floor((p - p[minus]) / divide) mod wrap + offset; picks: not only p + offset.
  bool picks = false;
  std::int32_t minus = -1;
  Index divide = 1, wrap = 0;
  const double* affine = nullptr;  // dense [axes of the positions + 1, width]
  RowView rows;                    // the caller's
  Index offset = 0, zero_position = 0, first = 0, width = 0;
  double gain = 1;
  Index frozen_row = -1;  // of the table: no gradient
};

// How many sines and cosines a row of a phase has: with one channel less than the layout has the
// last cosine is dropped, of sines alone the last sine.
struct SineCounts {
  Index sines, cosines;
};
[[gnu::always_inline]] inline SineCounts sine_counts(SineLayout layout, Index pairs,
                                                     Index width) noexcept {
  const Index most = sine_channels(layout, pairs), used = width < most ? width : most;
  if (layout == SineLayout::sines) return {used, 0};
  if (layout == SineLayout::cosines) return {0, used};
  return {used - used / 2, used / 2};
}
[[gnu::always_inline]] inline bool cosine_first(SineLayout layout) noexcept {
  return layout == SineLayout::halves_cos_first || layout == SineLayout::cosines;
}

// [batch, tokens, channels] of the plan's dtype, strides in elements.
template <class Data>
struct BasicComposeTensor {
  Data* data = nullptr;
  Index batch_stride = 0, token_stride = 0, channel_stride = 1;
};
using ComposeTensor = BasicComposeTensor<void>;
using ConstComposeTensor = BasicComposeTensor<const void>;

struct ComposeCall {
  ConstComposeTensor x;  // without data: zeros
  ComposeTensor y;
  Index batch = 1, tokens = 0, x_width = 0, y_width = 0;
  const ComposeSource* sources = nullptr;
  Index count = 0;
  const Positions* positions = nullptr;
  bool shared =
      false;  // every batch stands at the same positions, and no source differs between them
  bool stream = false;  // y is another tensor than x and far larger than the cache
  AccessPattern access = AccessPattern::sequential;
  double input_gain = 1;
};

struct ComposeKernels {
  // Items [begin, end): tokens when shared, else batch * tokens.
  void (*compose)(const ComposeCall&, Index begin, Index end);
  // out[i] += gain * sum over k < count of at[offset[k] + i], i < n, summed in that order in
  // double.
  void (*sum_rows)(const void* at, const Index* offset, Index count, Index n, double gain,
                   double* out);
};
// Of one dtype, in the instruction set in use or by what this machine has beside it. Throws
// [input_plan]: integer dtype.
const ComposeKernels& compose_kernels(DType, Isa);
// Each in a file that the build makes of vectors.cpp.in or, null where it has none, native.cpp.in.
const ComposeKernels& compose_kernels_f64(Isa);
const ComposeKernels& compose_kernels_f32(Isa);
const ComposeKernels& compose_kernels_f16(Isa);
const ComposeKernels& compose_kernels_bf16(Isa);
const ComposeKernels* compose_kernels_avx512_bf16();

// The row of a table that a token picks: -1 for zeros, -2 where there is none (error); the number
// of rows and above: extended.
[[gnu::always_inline]] inline Index table_row(const ComposeSource& s, const Positions& p,
                                              Index batch, Index token) noexcept {
  const Index at = integer_position(p, s.axis, batch, token), rows = s.table_rows;
  if (s.has_zero && at == s.zero_position) return -1;
  Index row = at;
  bool fits = true;
  if (s.picks) {
    if (s.minus >= 0)
      fits = !__builtin_sub_overflow(at, integer_position(p, s.minus, batch, token), &row);
    row = floor_divide(row, s.divide);
    if (s.wrap > 0) row -= floor_divide(row, s.wrap) * s.wrap;
  }
  fits = fits && !__builtin_add_overflow(row, s.offset, &row);
  if (fits && row >= 0 && row < rows) return row;
  if (s.beyond == Beyond::extend && fits && rows > 0 && row >= 0 && row / rows < rows) return row;
  if (s.beyond == Beyond::zero) return -1;
  if (s.beyond != Beyond::clamp || rows == 0) return -2;
  return (fits ? row : at) < 0 ? 0 : rows - 1;
}

// Whether the token stands where the term has no row.
[[gnu::always_inline]] inline bool is_zero(const ComposeSource& s, const Positions& p, Index batch,
                                           Index token) noexcept {
  if (!s.has_zero) return false;
  if (p.type == DType::f64)
    return real_position(p, s.axis, batch, token) == static_cast<double>(s.zero_position);
  return integer_position(p, s.axis, batch, token) == s.zero_position;
}

}  // namespace posenc::v0::detail
