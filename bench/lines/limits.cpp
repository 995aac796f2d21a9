// SPDX-License-Identifier: Apache-2.0
#include "limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <new>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
// One loop for every machine: the dynamic linker picks the widest the processor has.
#define POSENC_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define POSENC_CLONES
#endif

namespace posenc::bench {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class F>
double best_seconds(F&& f, int samples = 5) {
  double best = 1e30;
  for (int i = 0; i < samples; ++i) {
    const double t = now();
    f();
    best = std::min(best, now() - t);
  }
  return best;
}

void copy_libc_floats(float* to, const float* from, std::size_t n) {
  copy_libc(to, from, 4 * n);
}

}  // namespace

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  const std::size_t align = bytes >= kHuge ? kHuge : 64;
  data_ = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (!data_) throw std::bad_alloc();
  if (bytes >= kHuge) madvise(data_, bytes, MADV_HUGEPAGE);
  std::memset(data_, 0, bytes);
}
Buffer::~Buffer() {
  std::free(data_);
}
SharedBuffer buffer(std::size_t bytes) {
  return std::make_shared<Buffer>(bytes);
}

POSENC_CLONES void scale_in_place(float* x, std::size_t n, float factor) {
  for (std::size_t i = 0; i < n; ++i) x[i] *= factor;
}
POSENC_CLONES void copy_plain(float* __restrict to, const float* __restrict from, std::size_t n) {
  // A multiplication keeps the compiler from calling memcpy, which is measured beside it.
  for (std::size_t i = 0; i < n; ++i) to[i] = from[i] * 1.0000001f;
}
void copy_libc(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
POSENC_CLONES void fill_plain(float* to, std::size_t n, float value) {
  for (std::size_t i = 0; i < n; ++i) to[i] = value + static_cast<float>(i & 1);
}
POSENC_CLONES float read_all(const float* from, std::size_t n) {
  float sum[64] = {};
  for (std::size_t i = 0; i + 64 <= n; i += 64)
    for (std::size_t j = 0; j < 64; ++j) sum[j] += from[i + j];
  float total = 0;
  for (float s : sum) total += s;
  return total;
}
POSENC_CLONES float read_ahead(const float* from, std::size_t n) {
  constexpr std::size_t kFloatsAhead = 1024, kLine = 16;
  float sum[64] = {};
  for (std::size_t i = 0; i + 64 <= n; i += 64) {
    for (std::size_t j = 0; j < 64; j += kLine) __builtin_prefetch(from + i + kFloatsAhead + j);
    for (std::size_t j = 0; j < 64; ++j) sum[j] += from[i + j];
  }
  float total = 0;
  for (float s : sum) total += s;
  return total;
}
double fused_multiply_adds_f64(std::size_t n) {
  static const MultiplyAdds best = multiply_adds().back();
  return best.f64(n, 1);
}

#if defined(__x86_64__)
namespace {
__attribute__((target("avx512f"))) void stream512(float* to, const float* from, std::size_t n) {
  for (std::size_t i = 0; i + 16 <= n; i += 16) _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
}
__attribute__((target("avx512f"))) void stream_fill512(float* to, std::size_t n, float v) {
  for (std::size_t i = 0; i + 16 <= n; i += 16) _mm512_stream_ps(to + i, _mm512_set1_ps(v));
}
}  // namespace
void copy_streaming(float* to, const float* from, std::size_t n) {
  if (__builtin_cpu_supports("avx512f")) {
    stream512(to, from, n);
  } else {
    for (std::size_t i = 0; i + 4 <= n; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
  }
  _mm_sfence();
}
void fill_streaming(float* to, std::size_t n, float v) {
  if (__builtin_cpu_supports("avx512f")) {
    stream_fill512(to, n, v);
  } else {
    for (std::size_t i = 0; i + 4 <= n; i += 4) _mm_stream_ps(to + i, _mm_set1_ps(v));
  }
  _mm_sfence();
}
#else
void copy_streaming(float* to, const float* from, std::size_t n) {
  copy_plain(to, from, n);
}
void fill_streaming(float* to, std::size_t n, float v) {
  fill_plain(to, n, v);
}
#endif

POSENC_CLONES void plain_rotation(float* __restrict q, int q_heads, float* __restrict k,
                                  int k_heads, int pairs, const float* __restrict cos,
                                  const float* __restrict sin) {
  for (int h = 0; h < q_heads + k_heads; ++h) {
    float* x = h < q_heads ? q + 2 * pairs * h : k + 2 * pairs * (h - q_heads);
    for (int i = 0; i < pairs; ++i) {
      const float a = x[i], b = x[i + pairs];
      x[i] = a * cos[i] - b * sin[i];
      x[i + pairs] = a * sin[i] + b * cos[i];
    }
  }
}

namespace {

constexpr Index kPairs = 64, kAhead = 4096;  // bytes of the prefetch

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

}  // namespace

POSENC_CLONES void plain_rotation_f32(float* __restrict x, Index tokens, Index heads,
                                      const float* __restrict cos, const float* __restrict sin) {
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
POSENC_CLONES void plain_rotation_bf16(std::uint16_t* __restrict x, Index tokens, Index heads,
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
#if defined(__x86_64__)
// clang 14 has no word for f16c: bit 29 of ecx of leaf 1. That the system keeps the registers is
// what avx2 says.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 29 & 1) != 0;
}
__attribute__((target("avx2,f16c,fma"))) void plain_rotation_f16(std::uint16_t* x, Index tokens,
                                                                 Index heads, const float* cos,
                                                                 const float* sin) {
  for (Index t = 0; t < tokens; ++t, cos += kPairs, sin += kPairs)
    for (Index h = 0; h < heads; ++h, x += 2 * kPairs) {
      prefetch_head(x);
      for (Index i = 0; i < kPairs; i += 8) {
        auto* low = reinterpret_cast<__m128i*>(x + i);
        auto* high = reinterpret_cast<__m128i*>(x + i + kPairs);
        const __m256 a = _mm256_cvtph_ps(_mm_loadu_si128(low));
        const __m256 b = _mm256_cvtph_ps(_mm_loadu_si128(high));
        const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
        const __m256 u = _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s));
        const __m256 v = _mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c));
        _mm_storeu_si128(low, _mm256_cvtps_ph(u, _MM_FROUND_TO_NEAREST_INT));
        _mm_storeu_si128(high, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
      }
    }
}
#else
bool has_f16c() {
  return false;
}
void plain_rotation_f16(std::uint16_t*, Index, Index, const float*, const float*) {}
#endif

Copy best_copy(std::size_t bytes) {
  static std::mutex mutex;
  static std::map<std::size_t, Copy> known;
  const std::lock_guard lock(mutex);
  if (const auto it = known.find(bytes); it != known.end()) return it->second;
  const SharedBuffer a = buffer(bytes), b = buffer(bytes);
  Copy best = copy_plain;
  double seconds = 1e30;
  for (const Copy c : {Copy{copy_plain}, Copy{copy_streaming}, Copy{copy_libc_floats}}) {
    const double t = best_seconds([&] { c(b->as<float>(), a->as<float>(), bytes / 4); });
    if (t < seconds) seconds = t, best = c;
  }
  return known[bytes] = best;
}

Fill best_fill(std::size_t bytes) {
  const SharedBuffer a = buffer(bytes);
  const double plain = best_seconds([&] { fill_plain(a->as<float>(), bytes / 4, 1); });
  const double streaming = best_seconds([&] { fill_streaming(a->as<float>(), bytes / 4, 1); });
  return plain <= streaming ? Fill{fill_plain} : Fill{fill_streaming};
}

double multiply_adds_per_second(const MultiplyAdds& m, double seconds) {
  volatile double sink = 0;
  std::size_t n = 1 << 16;
  const auto once = [&] { sink = m.f32(n, 1); };
  while (best_seconds(once, 1) < seconds / 10) n *= 2;
  return 2 * static_cast<double>(n) / best_seconds(once, 10);
}

std::vector<Limit> machine_limits() {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  const SharedBuffer a = buffer(kBytes), b = buffer(kBytes);
  const std::size_t n = kBytes / 4;
  volatile float sink = 0;
  const auto rate = [&](double bytes, auto&& f) { return bytes / best_seconds(f) / 1e9; };
  const double once = static_cast<double>(kBytes);
  std::vector<Limit> limits{
      {"in_place", rate(2 * once, [&] { scale_in_place(a->as<float>(), n, 1.0000001f); })},
      {"copy_plain", rate(2 * once, [&] { copy_plain(b->as<float>(), a->as<float>(), n); })},
      {"copy_nt", rate(2 * once, [&] { copy_streaming(b->as<float>(), a->as<float>(), n); })},
      {"copy_libc", rate(2 * once, [&] { copy_libc(b->data(), a->data(), kBytes); })},
      {"write", std::max(rate(once, [&] { fill_plain(b->as<float>(), n, 1); }),
                         rate(once, [&] { fill_streaming(b->as<float>(), n, 1); }))},
      {"read", rate(once, [&] { sink = read_all(a->as<float>(), n); })}};
  const std::vector<MultiplyAdds> all = multiply_adds();
  limits.push_back({"fma_f32", multiply_adds_per_second(all.back(), 0.05) / 1e9});
  for (const MultiplyAdds& m : all)
    limits.push_back({"fma_f32_" + m.isa, multiply_adds_per_second(m, 0.02) / 1e9});
  return limits;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

}  // namespace posenc::bench
