// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine for few queries, for every instruction set.
#include "kernels/attention/fast_decode.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fast_decode.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/attention/fast_pack-inl.h"
#include "kernels/q8_0-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

#define POSENC_UNROLL _Pragma("GCC unroll 16")

HWY_INLINE void FetchLines(const FastPrefetch& f, Index token, Index begin, Index end) {
  constexpr Index kLine = 64;
  if (f.tokens == nullptr) return;
  const auto* from = static_cast<const std::byte*>(f.tokens[token]);
  for (Index n = begin; n < end; n += kLine) __builtin_prefetch(from + n);
}

#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR

// The compiler makes vectors of sums that are independent.
template <int R, class T>
HWY_NOINLINE void Scores(float* HWY_RESTRICT x, const float* HWY_RESTRICT q, Index width,
                         const void* const* k, Index channels, const FastPrefetch& fetch) noexcept {
  constexpr Index kSums = 16;
  for (Index j = 0; j < kDecodeKeys; ++j) {
    const auto key = NumbersOf<T>(k[j]);
    for (Index r = 0; r < R; ++r) {
      float sums[kSums] = {};
      Index c = 0;
      for (; c + kSums <= channels; c += kSums)
        for (Index n = 0; n < kSums; ++n) sums[n] += q[r * width + c + n] * Widen(key[c + n]);
      for (; c < channels; ++c) sums[c % kSums] += q[r * width + c] * Widen(key[c]);
      float sum = 0;
      for (const float y : sums) sum += y;
      x[r * kDecodeKeys + j] = sum;
    }
    FetchLines(fetch, j, 0, fetch.bytes);
  }
}
template <class T>
HWY_NOINLINE void PairScores(float* HWY_RESTRICT x, const float* const* rows, const void* const* k,
                             Index channels) noexcept {
  for (Index j = 0; j < kDecodeKeys; ++j) {
    const auto key = NumbersOf<T>(k[j]);
    x[j] = 0;
    for (Index c = 0; c < channels; ++c) x[j] += rows[j][c] * Widen(key[c]);
  }
}
template <int R, class T>
HWY_NOINLINE void Values(float* HWY_RESTRICT out, Index width, const float* HWY_RESTRICT p,
                         const void* const* v, Index keys, Index channels,
                         const FastPrefetch& fetch) noexcept {
  for (Index j = 0; j < keys; ++j) {
    const auto value = NumbersOf<T>(v[j]);
    for (Index r = 0; r < R; ++r)
      for (Index c = 0; c < channels; ++c)
        out[r * width + c] += p[r * kDecodeKeys + j] * Widen(value[c]);
    FetchLines(fetch, j, 0, fetch.bytes);
  }
}

#else

// Lane i: the sum of the lanes of v[i].
HWY_INLINE F SumOfEach(F (&v)[kLanes]) {
  const FTag d;
  const hn::RepartitionToWide<FTag> wide;
  constexpr int kFour = static_cast<int>(kLanes / 4);
  F u[kFour];
  POSENC_UNROLL for (int n = 0; n < kFour; ++n) {
    const F* x = v + 4 * n;
    const auto a = hn::BitCast(
        wide, hn::Add(hn::InterleaveLower(d, x[0], x[1]), hn::InterleaveUpper(d, x[0], x[1])));
    const auto b = hn::BitCast(
        wide, hn::Add(hn::InterleaveLower(d, x[2], x[3]), hn::InterleaveUpper(d, x[2], x[3])));
    u[n] = hn::Add(hn::BitCast(d, hn::InterleaveLower(wide, a, b)),
                   hn::BitCast(d, hn::InterleaveUpper(wide, a, b)));
  }
  if constexpr (kLanes == 4) {
    return u[0];
  } else if constexpr (kLanes == 8) {
    return hn::Add(hn::ConcatLowerLower(d, u[1], u[0]), hn::ConcatUpperUpper(d, u[1], u[0]));
  } else {
    const F even =
        hn::Add(hn::ConcatLowerLower(d, u[2], u[0]), hn::ConcatUpperUpper(d, u[2], u[0]));
    const F odd = hn::Add(hn::ConcatLowerLower(d, u[3], u[1]), hn::ConcatUpperUpper(d, u[3], u[1]));
    return hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even),
                   hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even)));
  }
}

// Channels [at, at + lanes) of a token; of blocks they lie in one.
template <class T>
HWY_INLINE F ReadToken(const void* token, Index at) {
  if constexpr (std::is_same_v<T, Block>) {
    const auto* block = static_cast<const std::byte*>(token) + at / kQ8Numbers * kQ8Bytes;
    return MulF(ReadBytes(FTag(), BytesOf(block) + at % kQ8Numbers), SetF(ScaleOf(block)));
  } else {
    return ReadF(static_cast<const T*>(token) + at);
  }
}

// A vector of the products of R rows and lanes / R keys; `at`: its channel.
template <int R, class T>
HWY_INLINE void AddChannels(F (&c)[kLanes], const float* HWY_RESTRICT q, Index width,
                            const void* const* k, Index at) {
  constexpr int kKeys = static_cast<int>(kLanes) / R;
  F z[R];
  POSENC_UNROLL for (int r = 0; r < R; ++r) z[r] = LoadF(q + r * width);
  POSENC_UNROLL for (int j = 0; j < kKeys; ++j) {
    const F y = ReadToken<T>(k[j], at);
    POSENC_UNROLL for (int r = 0; r < R; ++r) c[r * kKeys + j] = MulAddF(z[r], y, c[r * kKeys + j]);
  }
}
// All channels of keys in blocks: the products of a block, then its scale.
template <int R>
HWY_INLINE void AddBlocks(F (&c)[kLanes], const float* HWY_RESTRICT q, Index width,
                          const void* const* k, Index channels) {
  constexpr int kKeys = static_cast<int>(kLanes) / R;
  for (Index at = 0; at < channels; at += kQ8Numbers)
    POSENC_UNROLL for (int j = 0; j < kKeys; ++j) {
      const auto* block = static_cast<const std::byte*>(k[j]) + at / kQ8Numbers * kQ8Bytes;
      F sum[R];
      POSENC_UNROLL for (Index n = 0; n < kQ8Numbers; n += kLanes) {
        const F y = ReadBytes(FTag(), BytesOf(block) + n);
        POSENC_UNROLL for (int r = 0; r < R; ++r) {
          const F z = LoadF(q + r * width + at + n);
          sum[r] = n == 0 ? MulF(z, y) : MulAddF(z, y, sum[r]);
        }
      }
      const F scale = SetF(ScaleOf(block));
      POSENC_UNROLL for (int r = 0; r < R; ++r) c[r * kKeys + j] =
          MulAddF(sum[r], scale, c[r * kKeys + j]);
    }
}

template <int R, class T>
HWY_NOINLINE void Scores(float* HWY_RESTRICT x, const float* HWY_RESTRICT q, Index width,
                         const void* const* k, Index channels, const FastPrefetch& fetch) noexcept {
  constexpr Index kKeys = kLanes / R;
  const Index whole = channels / kLanes * kLanes;
  for (Index j = 0; j < kDecodeKeys; j += kKeys) {
    F c[kLanes];
    POSENC_UNROLL for (Index n = 0; n < kLanes; ++n) c[n] = SetF(0);
    if constexpr (std::is_same_v<T, Block>) {
      AddBlocks<R>(c, q, width, k + j, channels);
    } else {
      for (Index at = 0; at < whole; at += kLanes) AddChannels<R, T>(c, q + at, width, k + j, at);
      if (whole < channels) AddChannels<R, T>(c, q + whole, width, k + j, channels - kLanes);
    }
    const F sums = SumOfEach(c);
    if constexpr (R == 1) {
      StoreF(x + j, sums);
    } else {
      HWY_ALIGN float some[kLanes];
      StoreF(some, sums);
      POSENC_UNROLL for (Index r = 0; r < R; ++r) POSENC_UNROLL for (Index n = 0; n < kKeys; ++n)
          x[r * kDecodeKeys + j + n] = some[r * kKeys + n];
    }
    for (Index n = j; n < j + kKeys; ++n) FetchLines(fetch, n, 0, fetch.bytes);
  }
}

template <class T>
HWY_NOINLINE void PairScores(float* HWY_RESTRICT x, const float* const* rows, const void* const* k,
                             Index channels) noexcept {
  const Index whole = channels / kLanes * kLanes, rest = channels - whole;
  // The last vector holds the last channels. Of a token of one vector, those behind `channels` are 0.
  const Index last = HWY_MAX(Index{0}, channels - kLanes);
  const auto inside = hn::FirstN(FTag(), static_cast<std::size_t>(whole == 0  ? 0
                                                                  : rest == 0 ? kLanes
                                                                              : kLanes - rest));
  for (Index j = 0; j < kDecodeKeys; j += kLanes) {
    F c[kLanes];
    POSENC_UNROLL for (Index n = 0; n < kLanes; ++n) c[n] = SetF(0);
    for (Index at = 0; at < whole; at += kLanes)
      POSENC_UNROLL for (Index n = 0; n < kLanes; ++n) c[n] =
          MulAddF(LoadF(rows[j + n] + at), ReadToken<T>(k[j + n], at), c[n]);
    if (rest != 0)
      POSENC_UNROLL for (Index n = 0; n < kLanes; ++n) c[n] =
          MulAddF(hn::IfThenZeroElse(inside, LoadF(rows[j + n] + last)),
                  ReadToken<T>(k[j + n], last), c[n]);
    StoreF(x + j, SumOfEach(c));
  }
}

// N vectors of the value of one key, from channel `at` on, times the weights of R rows.
template <int R, int N, class T>
HWY_INLINE void AddValue(F (&c)[R][N], const float* HWY_RESTRICT p, const void* token, Index at) {
  const T* value = static_cast<const T*>(token) + at;
  F y[N];
  POSENC_UNROLL for (int n = 0; n < N; ++n) y[n] = ReadF(value + n * kLanes);
  POSENC_UNROLL for (int r = 0; r < R; ++r) {
    const F z = SetF(p[r * kDecodeKeys]);
    POSENC_UNROLL for (int n = 0; n < N; ++n) c[r][n] = MulAddF(z, y[n], c[r][n]);
  }
}
// The same in blocks. The scale of a block multiplies weights or numbers, whatever is less.
template <int R, int N>
HWY_INLINE void AddValueOfBlocks(F (&c)[R][N], const float* HWY_RESTRICT p, const void* token,
                                 Index at) {
  constexpr int kVectors = static_cast<int>(kQ8Numbers / kLanes),
                kPart = N < kVectors ? N : kVectors;
  const auto* block = static_cast<const std::byte*>(token) + at / kQ8Numbers * kQ8Bytes;
  const Index first = at % kQ8Numbers;
  POSENC_UNROLL for (int b = 0; b < N; b += kPart, block += kQ8Bytes) {
    const F scale = SetF(ScaleOf(block));
    F z[R], y[kPart];
    POSENC_UNROLL for (int n = 0; n < kPart; ++n) {
      y[n] = ReadBytes(FTag(), BytesOf(block) + first + n * kLanes);
      if constexpr (R >= kPart) y[n] = MulF(y[n], scale);
    }
    POSENC_UNROLL for (int r = 0; r < R; ++r) {
      z[r] = SetF(p[r * kDecodeKeys]);
      if constexpr (R < kPart) z[r] = MulF(z[r], scale);
      POSENC_UNROLL for (int n = 0; n < kPart; ++n) c[r][b + n] = MulAddF(z[r], y[n], c[r][b + n]);
    }
  }
}

// N vectors of R rows, from channel `at` of the values and number `to` of a row on; what is fetched meanwhile: bytes
// [begin, end) of each token.
template <int R, int N, class T>
HWY_INLINE void AddVectors(float* HWY_RESTRICT out, Index width, const float* HWY_RESTRICT p,
                           const void* const* v, Index keys, Index at, const FastPrefetch& fetch,
                           Index begin, Index end) {
  F c[R][N];
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int n = 0; n < N; ++n) c[r][n] =
      LoadF(out + r * width + n * kLanes);
  for (Index j = 0; j < keys; ++j) {
    if constexpr (std::is_same_v<T, Block>)
      AddValueOfBlocks<R, N>(c, p + j, v[j], at);
    else
      AddValue<R, N, T>(c, p + j, v[j], at);
    FetchLines(fetch, j, begin, end);
  }
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int n = 0; n < N; ++n)
      StoreF(out + r * width + n * kLanes, c[r][n]);
}
template <int R, class T>
HWY_NOINLINE void Values(float* HWY_RESTRICT out, Index width, const float* HWY_RESTRICT p,
                         const void* const* v, Index keys, Index channels,
                         const FastPrefetch& fetch) noexcept {
  // As many sums as the registers hold.
  constexpr int kMost = R == 1 ? 8 : R == 2 || kStripRows == 12 ? 4 : 2;
  constexpr Index kLine = 64;
  const Index vectors = channels / kLanes, parts = (vectors + kMost - 1) / kMost;
  // Each part fetches some of the lines.
  const Index lines = (fetch.bytes + kLine - 1) / kLine,
              share = (lines + parts - 1) / parts * kLine;
  Index n = 0, begin = 0;
  const auto end = [&] { return HWY_MIN(fetch.bytes, begin + share); };
  for (; n + kMost <= vectors; n += kMost, begin += share)
    AddVectors<R, kMost, T>(out + n * kLanes, width, p, v, keys, n * kLanes, fetch, begin, end());
  for (; n < vectors; ++n, begin += share)
    AddVectors<R, 1, T>(out + n * kLanes, width, p, v, keys, n * kLanes, fetch, begin, end());
  if (n * kLanes < channels)
    AddVectors<R, 1, T>(out + n * kLanes, width, p, v, keys, channels - kLanes, {}, 0, 0);
}

#endif

HWY_INLINE F StartOf(const FastDecodeRow& r, F by, Index key) {
  return r.start == nullptr ? by : AddF(LoadF(r.start + key), by);
}
HWY_INLINE void AddWeights(const FastDecodeRow& r, F by, bool given) {
  F sum = LoadF(r.sums);
  Index key = 0;
  for (; key < r.keys; key += kLanes) {
    const F x = LoadF(r.x + key);
    const F p = Exp2F(AddF(x, given ? StartOf(r, by, key) : by));
    StoreF(r.x + key, p);
    sum = AddF(sum, p);
  }
  for (; key < kDecodeKeys; key += kLanes) StoreF(r.x + key, SetF(0));
  StoreF(r.sums, sum);
}
bool Weights(const FastDecodeRow& r) noexcept {
  const F by = SetF(static_cast<float>(r.base - *r.reference));
  F largest = SetF(-127.0f);
  bool usable = true;
  for (Index key = 0; key < r.keys; key += kLanes) {
    const F x = LoadF(r.x + key);
    usable = usable && AllBelowF(x, kLargestScore);
    largest = MaxF(largest, AddF(x, StartOf(r, by, key)));
  }
  if (!usable || !AllAtMostF(largest, kLargestExponent)) return false;
  AddWeights(r, by, true);
  return true;
}
bool RescaleDecoded(const FastDecodeRow& r, float* out, Index vectors) noexcept {
  float largest = -HUGE_VALF, start = 0;
  bool usable = true;
  for (Index key = 0; key < r.keys; ++key) {
    if (r.start != nullptr) start = r.start[key];
    const float x = start == -HUGE_VALF ? start : r.x[key] + start;
    r.x[key] = x;
    usable = usable && (x == -HUGE_VALF ? start == x : std::fabs(x) <= kLargestScore);
    largest = x > largest ? x : largest;
  }
  for (Index key = r.keys; key < kDecodeKeys; ++key) r.x[key] = -HUGE_VALF;
  if (!usable) return false;
  if (largest != -HUGE_VALF) {
    const bool empty = SumF(LoadF(r.sums)) == 0;
    // References move by whole numbers: what they scale is not rounded.
    const double top = std::ceil(r.base + static_cast<double>(largest));
    if (empty || top > *r.reference) {
      const F factor = SetF(static_cast<float>(std::exp2(*r.reference - top)));
      if (!empty) StoreF(r.sums, MulF(LoadF(r.sums), factor));
      for (Index n = 0; !empty && n < vectors; ++n)
        StoreF(out + n * kLanes, MulF(LoadF(out + n * kLanes), factor));
      *r.reference = top;
    }
  }
  AddWeights(r, SetF(static_cast<float>(r.base - *r.reference)), false);
  return true;
}

#undef POSENC_UNROLL

constexpr FastDecodeKernels kDecodeKernels{
    kLanes,
    {{Scores<1, float>, Scores<1, Float16>, Scores<1, BFloat16>, Scores<1, Block>},
     {Scores<2, float>, Scores<2, Float16>, Scores<2, BFloat16>, Scores<2, Block>},
     {Scores<4, float>, Scores<4, Float16>, Scores<4, BFloat16>, Scores<4, Block>}},
    {PairScores<float>, PairScores<Float16>, PairScores<BFloat16>, PairScores<Block>},
    Weights,
    RescaleDecoded,
    {{Values<1, float>, Values<1, Float16>, Values<1, BFloat16>, Values<1, Block>},
     {Values<2, float>, Values<2, Float16>, Values<2, BFloat16>, Values<2, Block>},
     {Values<4, float>, Values<4, Float16>, Values<4, BFloat16>, Values<4, Block>}}};

}  // namespace

const FastDecodeKernels* table_of_fast_decode() {
  return &kDecodeKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_fast_decode);
const FastDecodeKernels& fast_decode_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_fast_decode), isa);
}
}  // namespace posenc::v0::detail
#endif
