// SPDX-License-Identifier: Apache-2.0
// Scores of few queries: in which order keys are read as they lie, and their products with the rows of q (fast_decode.h).
#include "kernels/attention/fast_decode.h"

#if defined(POSENC_KERNELS_FAST_DECODE_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_FAST_DECODE_SCORES_INL_H_
#undef POSENC_KERNELS_FAST_DECODE_SCORES_INL_H_
#else
#define POSENC_KERNELS_FAST_DECODE_SCORES_INL_H_
#endif
#include "kernels/attention/fast_pack-inl.h"
#include "kernels/q8_0-inl.h"

#if !(HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR)

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

#define POSENC_UNROLL _Pragma("GCC unroll 16")

// Lane i of each 128 bits: the sum of those of v[i].
HWY_INLINE F SumsOfParts(const F* v) {
  const FTag d;
  const hn::RepartitionToWide<FTag> wide;
  const auto a = hn::BitCast(
      wide, hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1])));
  const auto b = hn::BitCast(
      wide, hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3])));
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(wide, a, b)),
                 hn::BitCast(d, hn::InterleaveUpper(wide, a, b)));
}
// Lane i: the sum of the lanes of v[i].
HWY_INLINE F SumOfEach(const F (&v)[kLanes]) {
  const FTag d;
  constexpr int kFour = static_cast<int>(kLanes / 4);
  F u[kFour];
  POSENC_UNROLL for (int n = 0; n < kFour; ++n) u[n] = SumsOfParts(v + 4 * n);
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

// A vector of the products of R rows and a key; `at`: its channel.
template <int R, class T>
HWY_INLINE void AddChannels(F (&c)[R], const float* HWY_RESTRICT q, Index width, const void* token,
                            Index at) {
  const F y = ReadToken<T>(token, at);
  POSENC_UNROLL for (int r = 0; r < R; ++r) c[r] = MulAddF(LoadF(q + r * width), y, c[r]);
}
// Products of a row with keys: a vector of sums for each of kLanes keys.
constexpr Index kSumsOfRow = kLanes * kLanes;

// Of R rows and one key.
template <int R, class T, std::enable_if_t<!std::is_same_v<T, Block>, int> = 0>
HWY_INLINE void KeyScores(float* HWY_RESTRICT sums, const float* HWY_RESTRICT q, Index width,
                          const void* token, Index channels) {
  constexpr int kSums = R == 1 ? 4 : 2;  // of a row, which do not wait for each other
  F c[kSums][R];
  POSENC_UNROLL for (int n = 0; n < kSums; ++n) POSENC_UNROLL for (int r = 0; r < R; ++r) c[n][r] =
      SetF(0);
  Index at = 0;
  for (; at + kSums * kLanes <= channels; at += kSums * kLanes)
    POSENC_UNROLL for (int n = 0; n < kSums; ++n)
        AddChannels<R, T>(c[n], q + at + n * kLanes, width, token, at + n * kLanes);
  for (; at + kLanes <= channels; at += kLanes) AddChannels<R, T>(c[0], q + at, width, token, at);
  if (at < channels) AddChannels<R, T>(c[1], q + at, width, token, channels - kLanes);
  POSENC_UNROLL for (int n = 1; n < kSums; ++n) POSENC_UNROLL for (int r = 0; r < R; ++r) c[0][r] =
      AddF(c[0][r], c[n][r]);
  POSENC_UNROLL for (int r = 0; r < R; ++r) StoreF(sums + r * kSumsOfRow, c[0][r]);
}
// c[r * kStep] += products of R rows with a block of a key: those of its bytes, then the scale.
template <int R, int kStep>
HWY_INLINE void AddBlock(F* c, const float* HWY_RESTRICT q, Index width, const std::byte* block) {
  F sum[R];
  POSENC_UNROLL for (Index n = 0; n < kQ8Numbers; n += kLanes) {
    const F y = ReadBytes(FTag(), BytesOf(block) + n);
    POSENC_UNROLL for (int r = 0; r < R; ++r) {
      const F z = LoadF(q + r * width + n);
      sum[r] = n == 0 ? MulF(z, y) : MulAddF(z, y, sum[r]);
    }
  }
  const F scale = SetF(ScaleOf(block));
  POSENC_UNROLL for (int r = 0; r < R; ++r) c[r * kStep] = MulAddF(sum[r], scale, c[r * kStep]);
}
// The same of a key in blocks.
template <int R, class T, std::enable_if_t<std::is_same_v<T, Block>, int> = 0>
HWY_INLINE void KeyScores(float* HWY_RESTRICT sums, const float* HWY_RESTRICT q, Index width,
                          const void* token, Index channels) {
  F c[R];
  POSENC_UNROLL for (int r = 0; r < R; ++r) c[r] = SetF(0);
  const auto* block = static_cast<const std::byte*>(token);
  for (Index at = 0; at < channels; at += kQ8Numbers, block += kQ8Bytes)
    AddBlock<R, 1>(c, q + at, width, block);
  POSENC_UNROLL for (int r = 0; r < R; ++r) StoreF(sums + r * kSumsOfRow, c[r]);
}
template <class T>
HWY_INLINE Index BytesOfToken(Index channels) {
  return std::is_same_v<T, Block> ? channels / kQ8Numbers * kQ8Bytes : channels * Index{sizeof(T)};
}
// Whether the heads of a token fill a page of memory, so that each token is a stream of its own.
template <class T>
HWY_INLINE bool FillsPage(const FastDecodeHeads& all) {
  return all.count * BytesOfToken<T>(all.channels) >= 4096;
}
// Whether some tokens of one head are read before the next head: where each token is a stream, or where many rows of q are
// multiplied with each. Others are read in their order in memory.
template <class T>
HWY_INLINE bool ReadsHeads(const FastDecodeHeads& all) {
  return all.rows >= 4 || FillsPage<T>(all);
}
// Loads to the first cache, while a head of tokens [at, at + count) is read, what follows them in memory. If tokens are
// streams, it loads the same head of the next tokens instead, or nothing where the machine follows streams by itself. The
// same head too where a head is read of several short tokens: the next ones lie as far behind these as these do from each
// other.
template <class T>
HWY_INLINE void FetchAhead(const FastDecodeHeads& all, const void* const* tokens, Index at,
                           Index count) {
  constexpr std::uintptr_t kLine = 64, kAhead = 2048;
  const bool turned = all.turns.rows != nullptr, streams = FillsPage<T>(all) && !turned;
  if (streams && all.access == AccessPattern::sequential) return;
  // Numbers, not pointers: what is prefetched need not exist.
  const auto address = [&](Index n) { return reinterpret_cast<std::uintptr_t>(tokens[n]); };
  std::uintptr_t ahead = streams ? 0 : kAhead;
  if (count > 1 && !FillsPage<T>(all) && ReadsHeads<T>(all) && !turned)
    ahead = static_cast<std::uintptr_t>(count) * (address(at + 1) - address(at));
  const Index first = streams ? at + count : at, end = HWY_MIN(kDecodeKeys, first + count);
  const auto bytes = static_cast<std::uintptr_t>(BytesOfToken<T>(all.channels));
  for (Index n = first; n < end; ++n)
    for (std::uintptr_t line = 0; line < bytes; line += kLine)
      __builtin_prefetch(reinterpret_cast<const void*>(address(n) + ahead + line));  // NOLINT
}
// A vector of the products of R rows and lanes / R keys; `at`: its channel.
template <int R, class T>
HWY_INLINE void AddTokens(F (&c)[kLanes], const float* HWY_RESTRICT q, Index width,
                          const void* const* k, Index at) {
  constexpr int kKeys = static_cast<int>(kLanes) / R;
  F z[R];
  POSENC_UNROLL for (int r = 0; r < R; ++r) z[r] = LoadF(q + r * width);
  POSENC_UNROLL for (int j = 0; j < kKeys; ++j) {
    const F y = ReadToken<T>(k[j], at);
    POSENC_UNROLL for (int r = 0; r < R; ++r) c[r * kKeys + j] = MulAddF(z[r], y, c[r * kKeys + j]);
  }
}
// All channels of keys in blocks.
template <int R>
HWY_INLINE void AddBlocks(F (&c)[kLanes], const float* HWY_RESTRICT q, Index width,
                          const void* const* k, Index channels) {
  constexpr int kKeys = static_cast<int>(kLanes) / R;
  for (Index at = 0; at < channels; at += kQ8Numbers)
    POSENC_UNROLL for (int j = 0; j < kKeys; ++j) AddBlock<R, kKeys>(
        c + j, q + at, width, static_cast<const std::byte*>(k[j]) + at / kQ8Numbers * kQ8Bytes);
}

// R rows of a head and kLanes keys.
template <int R, class T>
HWY_INLINE void TileScores(float* HWY_RESTRICT x, const float* HWY_RESTRICT q, Index width,
                           const void* const* k, Index channels) {
  constexpr Index kKeys = kLanes / R;
  const Index whole = channels / kLanes * kLanes;
  for (Index j = 0; j < kLanes; j += kKeys) {
    F c[kLanes];
    POSENC_UNROLL for (Index n = 0; n < kLanes; ++n) c[n] = SetF(0);
    if constexpr (std::is_same_v<T, Block>) {
      AddBlocks<R>(c, q, width, k + j, channels);
    } else {
      for (Index at = 0; at < whole; at += kLanes) AddTokens<R, T>(c, q + at, width, k + j, at);
      if (whole < channels) AddTokens<R, T>(c, q + whole, width, k + j, channels - kLanes);
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
  }
}
// Products of R rows with a key that is rotated on the way, as KeyScores. Channels [begin, end) are not rotated.
template <int R, class T>
HWY_INLINE void AddKept(F (&c)[R], const float* HWY_RESTRICT q, Index width, const void* token,
                        Index begin, Index end) {
  for (Index at = begin; at < end; at += kLanes) AddChannels<R, T>(c, q + at, width, token, at);
}
template <int R>
HWY_INLINE void AddProducts(F (&c)[R], const float* HWY_RESTRICT q, Index width, F y) {
  POSENC_UNROLL for (int r = 0; r < R; ++r) c[r] = MulAddF(LoadF(q + r * width), y, c[r]);
}
// Pairs (x, y), half a window apart, from pair `at` of a window on.
template <int R>
HWY_INLINE void AddPairs(F (&c)[R], F (&e)[R], const float* HWY_RESTRICT q, Index width, F x, F y,
                         const FastTurns& t, const float* HWY_RESTRICT cos, Index at) {
  const F a = LoadF(cos + at), b = LoadF(cos + t.stride / 2 + at);
  AddProducts<R>(c, q + at, width, NegMulAddF(b, y, MulF(a, x)));
  AddProducts<R>(e, q + t.pairs + at, width, MulAddF(b, x, MulF(a, y)));
}
// Those of whole blocks, whose scales are read once. Returns the first pair that is left.
template <int R>
HWY_INLINE Index AddPairsOfBlocks(F (&c)[R], F (&e)[R], const float* HWY_RESTRICT q, Index width,
                                  const void* token, const FastTurns& t,
                                  const float* HWY_RESTRICT cos) {
  if (t.offset % kQ8Numbers != 0 || t.pairs % kQ8Numbers != 0) return 0;
  const auto* first = static_cast<const std::byte*>(token) + t.offset / kQ8Numbers * kQ8Bytes;
  const auto* second = first + t.pairs / kQ8Numbers * kQ8Bytes;
  for (Index at = 0; at < t.pairs; at += kQ8Numbers, first += kQ8Bytes, second += kQ8Bytes) {
    const F scale = SetF(ScaleOf(first)), other = SetF(ScaleOf(second));
    POSENC_UNROLL for (Index n = 0; n < kQ8Numbers; n += kLanes)
        AddPairs<R>(c, e, q, width, MulF(ReadBytes(FTag(), BytesOf(first) + n), scale),
                    MulF(ReadBytes(FTag(), BytesOf(second) + n), other), t, cos, at + n);
  }
  return t.pairs;
}
template <int R, class T>
HWY_INLINE void TurnedScores(float* HWY_RESTRICT sums, const float* HWY_RESTRICT q, Index width,
                             const void* token, Index channels, const FastTurns& t, Index key) {
  const FTag d;
  const float *cos = t.rows + key * t.stride, *sin = cos + t.stride / 2;
  F c[R], e[R], f[R], g[R];
  POSENC_UNROLL for (int r = 0; r < R; ++r) c[r] = e[r] = f[r] = g[r] = SetF(0);
  AddKept<R, T>(c, q, width, token, 0, t.offset);
  AddKept<R, T>(e, q, width, token, t.offset + 2 * t.pairs, channels);
  q += t.offset;
  if (t.interleaved) {
    const auto turn = [&](Index at) HWY_ATTR {
      // Even lanes: x cos - x' sin, odd ones x cos + x' sin, of the partner x'.
      const F x = ReadToken<T>(token, t.offset + at), y = MulF(LoadF(sin + at), hn::Reverse2(d, x));
      return MulAddF(LoadF(cos + at), x, hn::OddEven(y, hn::Neg(y)));
    };
    Index at = 0;
    for (; at + 2 * kLanes <= 2 * t.pairs; at += 2 * kLanes) {
      AddProducts<R>(c, q + at, width, turn(at));
      AddProducts<R>(e, q + at + kLanes, width, turn(at + kLanes));
    }
    if (at < 2 * t.pairs) AddProducts<R>(c, q + at, width, turn(at));
  } else {
    const auto x = [&](Index pair) HWY_ATTR { return ReadToken<T>(token, t.offset + pair); };
    const auto y = [&](Index pair) HWY_ATTR { return x(t.pairs + pair); };
    Index at = 0;
    if constexpr (std::is_same_v<T, Block>) at = AddPairsOfBlocks<R>(c, e, q, width, token, t, cos);
    for (; R == 1 && at + 2 * kLanes <= t.pairs; at += 2 * kLanes) {
      AddPairs<R>(c, e, q, width, x(at), y(at), t, cos, at);
      AddPairs<R>(f, g, q, width, x(at + kLanes), y(at + kLanes), t, cos, at + kLanes);
    }
    for (; at < t.pairs; at += kLanes) AddPairs<R>(c, e, q, width, x(at), y(at), t, cos, at);
  }
  POSENC_UNROLL for (int r = 0; r < R; ++r)
      StoreF(sums + r * kSumsOfRow, AddF(AddF(c[r], e[r]), AddF(f[r], g[r])));
}

// R rows of a head from row r on.
template <bool kTurns, int R, class T>
HWY_INLINE void RowScores(const FastDecodeHeads& all, const FastDecodeHead& h, Index key, Index r,
                          float* HWY_RESTRICT sums) {
  const float* q = h.q + r * all.width;
  sums += r * kSumsOfRow;
  if constexpr (kTurns)
    TurnedScores<R, T>(sums, q, all.width, h.k[key], all.channels, all.turns, key);
  else
    KeyScores<R, T>(sums, q, all.width, h.k[key], all.channels);
}
// Products of all rows of some heads with kLanes keys, token by token.
template <bool kTurns, class T>
HWY_NOINLINE void ScoresByToken(const FastDecodeHeads& all, Index begin) noexcept {
  const Index rows = all.rows;
  for (Index n = 0; n < kLanes; ++n) {
    float* sums = all.sums + n * kLanes;
    for (const FastDecodeHead* h = all.first; h < all.first + all.count; ++h) {
      FetchAhead<T>(all, h->k, begin + n, 1);
      Index r = 0;
      for (; r + 4 <= rows; r += 4) RowScores<kTurns, 4, T>(all, *h, begin + n, r, sums);
      if (r + 2 <= rows) RowScores<kTurns, 2, T>(all, *h, begin + n, r, sums), r += 2;
      if (r < rows) RowScores<kTurns, 1, T>(all, *h, begin + n, r, sums);
      sums += rows * kSumsOfRow;
    }
  }
  const float* sums = all.sums;
  for (const FastDecodeHead* h = all.first; h < all.first + all.count; ++h)
    for (Index r = 0; r < rows; ++r, sums += kSumsOfRow) {
      F c[kLanes];
      POSENC_UNROLL for (Index n = 0; n < kLanes; ++n) c[n] = LoadF(sums + n * kLanes);
      StoreF(h->x + r * kDecodeKeys + begin, SumOfEach(c));
    }
}
// The same, head by head, some tokens side by side.
template <class T>
HWY_NOINLINE void ScoresByHead(const FastDecodeHeads& all, Index begin) noexcept {
  const Index rows = all.rows, width = all.width, channels = all.channels;
  for (const FastDecodeHead* h = all.first; h < all.first + all.count; ++h) {
    const void* const* k = h->k + begin;
    FetchAhead<T>(all, h->k, begin, kLanes);
    float* x = h->x + begin;
    Index r = 0;
    for (; r + 4 <= rows; r += 4)
      TileScores<4, T>(x + r * kDecodeKeys, h->q + r * width, width, k, channels);
    if (r + 2 <= rows) {
      TileScores<2, T>(x + r * kDecodeKeys, h->q + r * width, width, k, channels);
      r += 2;
    }
    if (r < rows) TileScores<1, T>(x + r * kDecodeKeys, h->q + r * width, width, k, channels);
  }
}
template <class T>
void Scores(const FastDecodeHeads& all) noexcept {
  for (Index begin = 0; begin < kDecodeKeys; begin += kLanes) {
    if (all.turns.rows != nullptr)
      ScoresByToken<true, T>(all, begin);
    else if (ReadsHeads<T>(all))
      ScoresByHead<T>(all, begin);
    else
      ScoresByToken<false, T>(all, begin);
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

#undef POSENC_UNROLL

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#endif
#endif
