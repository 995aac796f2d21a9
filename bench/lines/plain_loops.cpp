// SPDX-License-Identifier: Apache-2.0
// The compiler makes vectors of these loops; only what it has no word for is written with Highway.
#include "plain_loops.h"

#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lines/plain_loops.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#if defined(POSENC_BENCH_KERNELS)
#include "core/isa_table.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace posenc::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr Index kPairs = 64, kAhead = 4096;  // bytes of the prefetch

void scale_in_place(float* x, std::size_t n, float factor) {
  for (std::size_t i = 0; i < n; ++i) x[i] *= factor;
}
void copy(float* __restrict to, const float* __restrict from, std::size_t n) {
  // A multiplication keeps the compiler from calling memcpy, which is measured beside it.
  for (std::size_t i = 0; i < n; ++i) to[i] = from[i] * 1.0000001f;
}
void copy_streaming(float* to, const float* from, std::size_t n) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i + hn::Lanes(d) <= n; i += hn::Lanes(d))
    hn::Stream(hn::LoadU(d, from + i), d, to + i);
  hwy::FlushStream();
}
void fill(float* to, std::size_t n, float value) {
  for (std::size_t i = 0; i < n; ++i) to[i] = value + static_cast<float>(i & 1);
}
void fill_streaming(float* to, std::size_t n, float value) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i + hn::Lanes(d) <= n; i += hn::Lanes(d))
    hn::Stream(hn::Set(d, value), d, to + i);
  hwy::FlushStream();
}

template <bool ahead>
float sum(const float* from, std::size_t n) {
  constexpr std::size_t kFloatsAhead = 1024, kLine = 16;
  float sums[64] = {};
  for (std::size_t i = 0; i + 64 <= n; i += 64) {
    if (ahead)
      for (std::size_t j = 0; j < 64; j += kLine) __builtin_prefetch(from + i + kFloatsAhead + j);
    for (std::size_t j = 0; j < 64; ++j) sums[j] += from[i + j];
  }
  float total = 0;
  for (const float s : sums) total += s;
  return total;
}

void token_rotation(float* __restrict q, int q_heads, float* __restrict k, int k_heads, int pairs,
                    const float* __restrict cos, const float* __restrict sin) {
  for (int h = 0; h < q_heads + k_heads; ++h) {
    float* x = h < q_heads ? q + 2 * pairs * h : k + 2 * pairs * (h - q_heads);
    for (int i = 0; i < pairs; ++i) {
      const float a = x[i], b = x[i + pairs];
      x[i] = a * cos[i] - b * sin[i];
      x[i + pairs] = a * sin[i] + b * cos[i];
    }
  }
}

template <class T>
[[gnu::always_inline]] inline void prefetch_head(T* x) {
  for (Index at = 0; at < Index{2 * kPairs * sizeof(T)}; at += 64)
    __builtin_prefetch(reinterpret_cast<char*>(x) + kAhead + at, 1, 3);
}
[[gnu::always_inline]] inline float widen(std::uint16_t x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
}
[[gnu::always_inline]] inline std::uint16_t narrow(float x) {  // to nearest, ties to even; no NaN
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

void rotation_f32(float* __restrict x, Index tokens, Index heads, const float* __restrict cos,
                  const float* __restrict sin) {
  for (Index t = 0; t < tokens; ++t, cos += kPairs, sin += kPairs)
    for (Index h = 0; h < heads; ++h, x += 2 * kPairs) {
      prefetch_head(x);
      for (Index i = 0; i < kPairs; ++i) {
        const float a = x[i], b = x[i + kPairs];
        x[i] = a * cos[i] - b * sin[i];
        x[i + kPairs] = a * sin[i] + b * cos[i];
      }
    }
}
void rotation_bf16(std::uint16_t* __restrict x, Index tokens, Index heads,
                   const float* __restrict cos, const float* __restrict sin) {
  for (Index t = 0; t < tokens; ++t, cos += kPairs, sin += kPairs)
    for (Index h = 0; h < heads; ++h, x += 2 * kPairs) {
      prefetch_head(x);
      for (Index i = 0; i < kPairs; ++i) {
        const float a = widen(x[i]), b = widen(x[i + kPairs]);
        x[i] = narrow(a * cos[i] - b * sin[i]);
        x[i + kPairs] = narrow(a * sin[i] + b * cos[i]);
      }
    }
}

#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2 || HWY_TARGET == HWY_SCALAR
constexpr Rotation<std::uint16_t> kRotationF16 = nullptr;  // no instruction converts
#else
// Compilers for x86-64 have no type of C++20 for f16.
void rotation_f16(std::uint16_t* x, Index tokens, Index heads, const float* cos, const float* sin) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::uint16_t, decltype(d)> d_bits;
  const hn::Rebind<hwy::float16_t, decltype(d)> d_half;
  for (Index t = 0; t < tokens; ++t, cos += kPairs, sin += kPairs)
    for (Index h = 0; h < heads; ++h, x += 2 * kPairs) {
      prefetch_head(x);
      for (Index i = 0; i < kPairs; i += static_cast<Index>(hn::Lanes(d))) {
        std::uint16_t *low = x + i, *high = x + i + kPairs;
        const auto a = hn::PromoteTo(d, hn::BitCast(d_half, hn::LoadU(d_bits, low)));
        const auto b = hn::PromoteTo(d, hn::BitCast(d_half, hn::LoadU(d_bits, high)));
        const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
        const auto u = hn::MulSub(a, c, hn::Mul(b, s)), v = hn::MulAdd(a, s, hn::Mul(b, c));
        hn::StoreU(hn::BitCast(d_bits, hn::DemoteTo(d_half, u)), d_bits, low);
        hn::StoreU(hn::BitCast(d_bits, hn::DemoteTo(d_half, v)), d_bits, high);
      }
    }
}
constexpr Rotation<std::uint16_t> kRotationF16 = rotation_f16;
#endif

const PlainLoops* loops() {
  static constexpr PlainLoops kLoops{scale_in_place, copy,          copy_streaming, fill,
                                     fill_streaming, sum<false>,    sum<true>,      token_rotation,
                                     rotation_f32,   rotation_bf16, kRotationF16};
  return &kLoops;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::bench {

HWY_EXPORT(loops);

const PlainLoops& plain_loops() {
#if defined(POSENC_BENCH_KERNELS)
  return isa_kernels(HWY_DISPATCH_TABLE(loops), active_isa());
#else
  return *HWY_DYNAMIC_DISPATCH(loops)();
#endif
}

}  // namespace posenc::bench
#endif  // HWY_ONCE
