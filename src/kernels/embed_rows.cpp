// SPDX-License-Identifier: Apache-2.0
#include "kernels/embed_rows.h"

#include <hwy/cache_control.h>

#include <cmath>

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embed_rows.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/double_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = DoubleTag;
using V = DoubleVector;

HWY_INLINE V set(double x) {
  return hn::Set(D(), x);
}
HWY_INLINE Index lanes() {
  return static_cast<Index>(hn::Lanes(D()));
}
inline constexpr std::size_t kMax = hn::MaxLanes(D());

// f(c, n): vectors of `step` channels from c on, n of them there.
template <class F>
HWY_INLINE void for_vectors(Index width, Index step, const F& f) {
  Index c = 0;
  for (; c + step <= width; c += step) f(c, step);
  if (c < width) f(c, width - c);
}

// A vector of channels from c on, of which n are there; the rest are zero.
template <class T>
HWY_INLINE V read(const T* row, Index c, Index n) {
  if (n >= lanes()) return ReadDoubles(row + c);
  HWY_ALIGN T part[kMax] = {};
  for (Index i = 0; i < n; ++i) part[i] = row[c + i];
  return ReadDoubles(part);
}
template <class T>
HWY_INLINE void write(V v, T* row, Index c, Index n) {
  if (n >= lanes()) return WriteDoubles(v, row + c);
  HWY_ALIGN T part[kMax];
  WriteDoubles(v, part);
  for (Index i = 0; i < n; ++i) row[c + i] = part[i];
}

// Halves of a vector are written around the cache where they have 16 bytes, the least.
template <bool kStream, class T>
HWY_INLINE void write_two(V a, V b, T* p) {
  if constexpr (!kStream)
    WriteTwoDoubles(a, b, p);
  else if constexpr (sizeof(T) == 4 && kMax < 4)
    StreamTwoDoubles(a, b, p);
  else
    WriteDoubles<true>(a, p), WriteDoubles<true>(b, p + lanes());
}

// What one token's loop needs.
template <class T>
struct Token {
  const T* row;    // row 0 ...
  const T* ahead;  // ... and that of a later token
  double weight;
  const double* base;  // what the other rows add up to
  double* s;           // the sum, for the norm
};

// Whether two tokens read the same rows behind row 0.
HWY_INLINE bool same_base(const EmbedRows& e, const void* const* a, const void* const* b) {
  for (Index k = 1; k < e.parts; ++k)
    if (a[k] != b[k]) return false;
  return true;
}

// The rows behind row 0 of token i, summed; those that follow them are prefetched.
template <class T>
HWY_NOINLINE void sum_base(const EmbedRows& e, Index i, double* base) {
  const void* const* rows = e.rows + i * e.parts;
  Index later = i + kEmbedAhead;
  const Index end = e.tokens + kEmbedAhead - 1;
  while (later < end && same_base(e, rows, e.rows + later * e.parts)) ++later;
  const void* const* ahead = e.rows + later * e.parts;
  for_vectors(e.width, 2 * lanes(), [&](Index c, Index n) HWY_ATTR {
    const Index d = c + lanes();
    V a = set(0), b = set(0);
    for (Index k = 1; k < e.parts; ++k) {
      const T* row = static_cast<const T*>(rows[k]);
      const V weight = set(e.weight[k]);
      a = hn::MulAdd(weight, read(row, c, n), a);
      if (n > lanes()) b = hn::MulAdd(weight, read(row, d, n - lanes()), b);
      __builtin_prefetch(static_cast<const T*>(ahead[k]) + c, 0, 2);
    }
    hn::StoreU(a, D(), base + c);
    if (n > lanes()) hn::StoreU(b, D(), base + d);
  });
}

template <bool kBase>
HWY_INLINE V add_base(V weight, V row, const double* base) {
  if constexpr (kBase) return hn::MulAdd(weight, row, hn::LoadU(D(), base));
  return hn::Mul(weight, row);
}

template <class T, bool kBase, bool kStream>
void sum_token(const Token<T>& t, Index width, T* out) {
  const Index step = lanes(), whole = width / (2 * step) * (2 * step);
  const V weight = set(t.weight);
  Index c = 0;
  for (; c < whole; c += 2 * step) {
    __builtin_prefetch(t.ahead + c, 0, 2);
    const V a = add_base<kBase>(weight, ReadDoubles(t.row + c), t.base + c);
    const V b = add_base<kBase>(weight, ReadDoubles(t.row + c + step), t.base + c + step);
    if constexpr (kStream && sizeof(T) == 4)
      StreamTwoDoubles(a, b, out + c);
    else  // sums of few bits often lie between two numbers of 16 bits
      WriteDoubles<kStream>(a, out + c), WriteDoubles<kStream>(b, out + c + step);
  }
  for (; c < width; c += step)
    write(add_base<kBase>(weight, read(t.row, c, width - c), t.base + c), out, c, width - c);
}

// y = (s scale + shift) gamma + beta.
struct Affine {
  double scale, shift;
  const double *gamma, *beta;
};
template <bool kGamma>
HWY_INLINE V apply(V s, V scale, V shift, const Affine& a, Index c) {
  const V z = hn::MulAdd(s, scale, shift);
  if constexpr (!kGamma) return z;
  return hn::MulAdd(z, hn::LoadU(D(), a.gamma + c), hn::LoadU(D(), a.beta + c));
}

// Two passes over s.
HWY_NOINLINE Affine exact_moments(const double* s, Index n, double sum, double epsilon) {
  const double mean = sum / static_cast<double>(n);
  const V middle = set(mean);
  V squares = set(0);
  Index i = 0;
  for (; i + lanes() <= n; i += lanes()) {
    const V x = hn::Sub(hn::LoadU(D(), s + i), middle);
    squares = hn::MulAdd(x, x, squares);
  }
  double square = hn::GetLane(hn::SumOfLanes(D(), squares));
  for (; i < n; ++i) square += (s[i] - mean) * (s[i] - mean);
  const double scale = 1 / std::sqrt(square / static_cast<double>(n) + epsilon);
  return {scale, -mean * scale, nullptr, nullptr};
}
// From sums of s and s^2 where their difference keeps all but ten bits; in double never.
template <class T>
HWY_INLINE Affine moments(const EmbedRows& e, const double* s, double sum, double square) {
  const auto n = static_cast<double>(e.width);
  const double mean = sum / n, variance = square / n - mean * mean;
  const double scale = 1 / std::sqrt(variance + e.epsilon);
  Affine a{scale, -mean * scale, nullptr, nullptr};
  if (sizeof(T) == 8 || !(variance > 0x1p-10 * (square / n)))
    a = exact_moments(s, e.width, sum, e.epsilon);
  a.gamma = e.gamma, a.beta = e.beta;
  return a;
}

// The sum of a token is made in s where that of the token before is read, normalised and written:
// loads, arithmetic and stores of both overlap.
template <class T, bool kBase, bool kGamma, bool kStream, bool kFirst>
void norm_token(const Token<T>& t, const EmbedRows& e, const Affine& before, T* out, double& sum,
                double& square) {
  const Index step = lanes(), whole = e.width / (2 * step) * (2 * step);
  const V weight = set(t.weight), scale = set(before.scale), shift = set(before.shift);
  V sum_a = set(0), sum_b = set(0), square_a = set(0), square_b = set(0);
  Index c = 0;
  for (; c < whole; c += 2 * step) {
    __builtin_prefetch(t.ahead + c, 0, 2);
    const V a = add_base<kBase>(weight, ReadDoubles(t.row + c), t.base + c);
    const V b = add_base<kBase>(weight, ReadDoubles(t.row + c + step), t.base + c + step);
    sum_a = hn::Add(sum_a, a), sum_b = hn::Add(sum_b, b);
    square_a = hn::MulAdd(a, a, square_a), square_b = hn::MulAdd(b, b, square_b);
    if constexpr (!kFirst) {
      const V u = hn::LoadU(D(), t.s + c), v = hn::LoadU(D(), t.s + c + step);
      write_two<kStream>(apply<kGamma>(u, scale, shift, before, c),
                         apply<kGamma>(v, scale, shift, before, c + step), out + c);
    }
    hn::StoreU(a, D(), t.s + c), hn::StoreU(b, D(), t.s + c + step);
  }
  for (; c < e.width; c += step) {
    const Index left = e.width - c;
    const V a = add_base<kBase>(weight, read(t.row, c, left), t.base + c);
    sum_a = hn::Add(sum_a, a), square_a = hn::MulAdd(a, a, square_a);
    if constexpr (!kFirst)
      write(apply<kGamma>(hn::LoadU(D(), t.s + c), scale, shift, before, c), out, c, left);
    hn::StoreU(a, D(), t.s + c);
  }
  sum = hn::GetLane(hn::SumOfLanes(D(), hn::Add(sum_a, sum_b)));
  square = hn::GetLane(hn::SumOfLanes(D(), hn::Add(square_a, square_b)));
}

template <class T, bool kGamma>
void norm_last(const EmbedRows& e, const Affine& a, const double* s, T* out) {
  const V scale = set(a.scale), shift = set(a.shift);
  const Index step = lanes();
  Index c = 0;
  for (; c + step <= e.width; c += step)
    WriteDoubles(apply<kGamma>(hn::LoadU(D(), s + c), scale, shift, a, c), out + c);
  if (c < e.width)
    write(apply<kGamma>(hn::LoadU(D(), s + c), scale, shift, a, c), out, c, e.width - c);
}

template <class T, bool kBase, bool kGamma, bool kStream>
void all_tokens(const EmbedRows& e) {
  Token<T> t{nullptr, nullptr, e.weight[0], e.scratch, e.scratch + embed_scratch(e.width) / 2};
  const void* const* kept = nullptr;  // rows whose sum is in base
  Affine before{};
  double sum = 0, square = 0;
  for (Index i = 0; i < e.tokens; ++i) {
    const void* const* rows = e.rows + i * e.parts;
    t.row = static_cast<const T*>(rows[0]);
    t.ahead = static_cast<const T*>(rows[kEmbedAhead * e.parts]);
    if (kBase && (kept == nullptr || !same_base(e, rows, kept)))
      sum_base<T>(e, i, e.scratch), kept = rows;
    if (!e.norm) {
      sum_token<T, kBase, kStream>(t, e.width, static_cast<T*>(e.out[i]));
      continue;
    }
    if (i == 0)
      norm_token<T, kBase, kGamma, kStream, true>(t, e, before, nullptr, sum, square);
    else
      norm_token<T, kBase, kGamma, kStream, false>(t, e, before, static_cast<T*>(e.out[i - 1]), sum,
                                                   square);
    before = moments<T>(e, t.s, sum, square);
  }
  if (e.norm && e.tokens > 0)
    norm_last<T, kGamma>(e, before, t.s, static_cast<T*>(e.out[e.tokens - 1]));
  if (kStream) hwy::FlushStream();
}

template <class T, bool kBase>
void with_base(const EmbedRows& e) {
  constexpr bool kMayStream = sizeof(T) >= 4;
  const bool stream = kMayStream && e.stream;
  if (e.gamma != nullptr)
    stream ? all_tokens<T, kBase, true, kMayStream>(e) : all_tokens<T, kBase, true, false>(e);
  else
    stream ? all_tokens<T, kBase, false, kMayStream>(e) : all_tokens<T, kBase, false, false>(e);
}
template <class T>
void embed_rows(const EmbedRows& e) {
  e.parts > 1 ? with_base<T, true>(e) : with_base<T, false>(e);
}

constexpr EmbedKernels kF64{embed_rows<double>};
constexpr EmbedKernels kF32{embed_rows<float>};
constexpr EmbedKernels kF16{embed_rows<Float16>};
constexpr EmbedKernels kBF16{embed_rows<BFloat16>};
}  // namespace

const EmbedKernels* embed_of(DType type) {
  return kernels_of_type(type, kF64, kF32, kF16, kBF16);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(embed_of);
const EmbedKernels& embed_kernels(Isa isa, DType type) {
  return *isa_entry(HWY_DISPATCH_TABLE(embed_of), isa)(type);
}
}  // namespace posenc::v0::detail
#endif
