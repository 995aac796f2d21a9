// SPDX-License-Identifier: Apache-2.0
#include "kernels/embed_back.h"

#include <cmath>

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embed_back.cpp"
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
HWY_INLINE V load(const double* p) {
  return hn::LoadU(D(), p);
}
HWY_INLINE double total(V v) {
  return hn::GetLane(hn::SumOfLanes(D(), v));
}

// What s, g = up gamma and their products add up to over a token, and then the gradient
// d = of_up g + of_sum s + rest.
struct Sums {
  double s, square, g, along;
};
struct Line {
  double of_up, of_sum, rest;
  double scale, shift;  // z = scale s + shift
};

template <bool kGamma>
HWY_INLINE V times_gamma(V up, const EmbedBack& e, Index c) {
  if constexpr (!kGamma) return up;
  return hn::Mul(up, load(e.gamma + c));
}

// f(c) for whole vectors; the rest one by one, in last(c).
template <class F, class G>
HWY_INLINE Index for_channels(Index width, const F& vector, const G& last) {
  const auto step = static_cast<Index>(hn::Lanes(D()));
  Index c = 0;
  for (; c + step <= width; c += step) vector(c);
  for (; c < width; ++c) last(c);
  return c;
}

template <class T>
HWY_INLINE double one(const void* row, Index c) {
  return static_cast<double>(Widen(static_cast<const T*>(row)[c]));
}

// Sums s of the whole row, and adds up.
template <class T, bool kBase, bool kGamma>
HWY_INLINE Sums sum_rows(const EmbedBack& e) {
  V sum = set(0), square = set(0), g_sum = set(0), along = set(0);
  Sums last{0, 0, 0, 0};
  const T *row = static_cast<const T*>(e.row), *up = static_cast<const T*>(e.up);
  const T* ahead = static_cast<const T*>(e.ahead);
  const V weight = set(e.weight);
  for_channels(
      e.width,
      [&](Index c) HWY_ATTR {
        const V x = ReadDoubles(row + c);
        const V s = kBase ? hn::MulAdd(weight, x, load(e.base + c)) : hn::Mul(weight, x);
        const V g = times_gamma<kGamma>(ReadDoubles(up + c), e, c);
        __builtin_prefetch(ahead + c, 0, 2);
        __builtin_prefetch(e.target + c * e.target_size, 0, 2);
        hn::StoreU(s, D(), e.s + c);
        sum = hn::Add(sum, s), square = hn::MulAdd(s, s, square);
        g_sum = hn::Add(g_sum, g), along = hn::MulAdd(g, s, along);
      },
      [&](Index c) HWY_ATTR {
        const double s = e.weight * one<T>(e.row, c) + (kBase ? e.base[c] : 0);
        const double g = one<T>(e.up, c) * (kGamma ? e.gamma[c] : 1);
        e.s[c] = s;
        last.s += s, last.square += s * s, last.g += g, last.along += g * s;
      });
  return {total(sum) + last.s, total(square) + last.square, total(g_sum) + last.g,
          total(along) + last.along};
}

// Sums about the mean: square and along of s - mean.
template <class T, bool kGamma>
HWY_NOINLINE void sum_about(const EmbedBack& e, double mean, Sums& sums) {
  const T* up = static_cast<const T*>(e.up);
  const V middle = set(mean);
  V square = set(0), along = set(0);
  double last_square = 0, last_along = 0;
  for_channels(
      e.width,
      [&](Index c) HWY_ATTR {
        const V x = hn::Sub(load(e.s + c), middle);
        square = hn::MulAdd(x, x, square);
        along = hn::MulAdd(times_gamma<kGamma>(ReadDoubles(up + c), e, c), x, along);
      },
      [&](Index c) HWY_ATTR {
        const double x = e.s[c] - mean;
        last_square += x * x;
        last_along += one<T>(e.up, c) * (kGamma ? e.gamma[c] : 1) * x;
      });
  sums.square = total(square) + last_square, sums.along = total(along) + last_along;
}

// From sums of s and s^2 where their difference keeps all but ten bits; in double never.
template <class T, bool kGamma>
HWY_INLINE Line line_of(const EmbedBack& e, Sums sums) {
  const auto n = static_cast<double>(e.width);
  const double mean = sums.s / n, mean_g = sums.g / n;
  double variance = sums.square / n - mean * mean, along = sums.along / n - mean * mean_g;
  if (sizeof(T) == 8 || !(variance > 0x1p-10 * (sums.square / n))) {
    sum_about<T, kGamma>(e, mean, sums);
    variance = sums.square / n, along = sums.along / n;
  }
  const double scale = 1 / std::sqrt(variance + e.epsilon);
  const double of_sum = -scale * scale * scale * along;
  return {scale, of_sum, -scale * mean_g - of_sum * mean, scale, -mean * scale};
}

template <class T, bool kGamma, bool kParameters>
void back(const EmbedBack& e) {
  const Line l = line_of<T, kGamma>(
      e, e.base != nullptr ? sum_rows<T, true, kGamma>(e) : sum_rows<T, false, kGamma>(e));
  const V of_up = set(l.of_up), of_sum = set(l.of_sum), rest = set(l.rest);
  const V scale = set(l.scale), shift = set(l.shift);
  const T* from = static_cast<const T*>(e.up);
  for_channels(
      e.width,
      [&](Index c) HWY_ATTR {
        const V up = ReadDoubles(from + c), s = load(e.s + c);
        const V g = times_gamma<kGamma>(up, e, c);
        if constexpr (kParameters) {
          const V z = hn::MulAdd(s, scale, shift);
          hn::StoreU(hn::MulAdd(up, z, load(e.d_gamma + c)), D(), e.d_gamma + c);
          hn::StoreU(hn::Add(up, load(e.d_beta + c)), D(), e.d_beta + c);
        }
        hn::StoreU(hn::MulAdd(g, of_up, hn::MulAdd(s, of_sum, rest)), D(), e.d + c);
      },
      [&](Index c) HWY_ATTR {
        const double up = one<T>(e.up, c), s = e.s[c], g = up * (kGamma ? e.gamma[c] : 1);
        if constexpr (kParameters) {
          e.d_gamma[c] += up * (s * l.scale + l.shift);
          e.d_beta[c] += up;
        }
        e.d[c] = g * l.of_up + (s * l.of_sum + l.rest);
      });
}
template <class T>
void any_back(const EmbedBack& e) {
  const bool parameters = e.d_gamma != nullptr;
  if (e.gamma != nullptr)
    parameters ? back<T, true, true>(e) : back<T, true, false>(e);
  else
    parameters ? back<T, false, true>(e) : back<T, false, false>(e);
}

template <class T>
void accumulate(const AccumulatedRow& r) {
  const T* from = static_cast<const T*>(r.row);
  const V weight = set(r.weight);
  if (r.first)
    for_channels(
        r.n,
        [&](Index c)
            HWY_ATTR { hn::StoreU(hn::Mul(weight, ReadDoubles(from + c)), D(), r.sum + c); },
        [&](Index c) HWY_ATTR { r.sum[c] = r.weight * one<T>(from, c); });
  else
    for_channels(
        r.n,
        [&](Index c) HWY_ATTR {
          hn::StoreU(hn::MulAdd(weight, ReadDoubles(from + c), load(r.sum + c)), D(), r.sum + c);
        },
        [&](Index c) HWY_ATTR { r.sum[c] += r.weight * one<T>(from, c); });
}

template <class T, class Out>
void add(const AddedRow& r) {
  const T* from = static_cast<const T*>(r.row);
  Out* to = static_cast<Out*>(r.to);
  const V weight = set(r.weight);
  for_channels(
      r.n,
      [&](Index c) HWY_ATTR {
        WriteDoubles(hn::Add(ReadDoubles(to + c), hn::Mul(weight, ReadDoubles(from + c))), to + c);
      },
      [&](Index c) HWY_ATTR {
        to[c] = static_cast<Out>(static_cast<double>(to[c]) + r.weight * one<T>(from, c));
      });
}

constexpr EmbedBackKernels kKernels{any_back<double>,    any_back<float>,    any_back<Float16>,
                                    any_back<BFloat16>,  accumulate<double>, accumulate<float>,
                                    add<double, double>, add<double, float>, add<float, double>,
                                    add<float, float>};
}  // namespace

const EmbedBackKernels* table_of_embed_back() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_embed_back);
const EmbedBackKernels& embed_back_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_embed_back), isa);
}
}  // namespace posenc::v0::detail
#endif
