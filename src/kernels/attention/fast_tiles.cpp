// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine backward, for every instruction set.
#include "kernels/attention/fast_tiles.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fast_tiles.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/attention/fast_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

#define POSENC_UNROLL _Pragma("GCC unroll 16")

template <int R, int N, bool kStart>
HWY_INLINE void SlopeTile(const FastTileKeys& t, const FastTileRows& s, Index key) {
  F c[R][N];
  const Index panel = key / kPanel * kPanel;
  Begin<R, N, kStart>(c, s.start, s.shift, key);
  AddProduct(c, s.q, t.q_width, 1, t.k + panel * t.channels + key % kPanel, kPanel, t.channels);
  StoreSlopes(c, t, s, key, kTileStride);
}

template <int R, bool kStart>
HWY_NOINLINE void Slopes(const FastTileKeys& t, const FastTileRows& s) noexcept {
  Index key = 0;
  for (; key + kLanes < s.keys; key += kPanel) SlopeTile<R, 2, kStart>(t, s, key);
  if (key < s.keys) SlopeTile<R, 1, kStart>(t, s, key);
}

void AddOuter(float* to, const float* a, const float* b, Index rows, Index keys,
              Index width) noexcept {
  AddAll<FloatProduct, true>(to, a, b, keys, rows, width, width);
}
void AddRows(float* to, const float* a, const float* b, Index rows, Index keys,
             Index width) noexcept {
  AddAll<FloatProduct, false>(to, a, b, rows, keys, width, width);
}

// Row r of a group reads one number further than the row before it.
template <int R>
HWY_INLINE void AddRowsOfGroup(float* to, const float* a, const float* b, Index first, Index keys,
                               Index width) {
  AddGroup<FloatProduct, R>(to + first * width, a + first * kTileStride - (R - 1), kTileStride + 1,
                            1, b - (first + R - 1) * width, width, keys + R - 1, width);
}
void AddRowsAlong(float* to, const float* a, const float* b, Index rows, Index keys,
                  Index width) noexcept {
  for (Index r = 0; r < rows;) {
    const bool few = TakesFew(rows - r);
    if (few)
      AddRowsOfGroup<kFewRows>(to, a, b, r, keys, width);
    else
      AddRowsOfGroup<kStripRows>(to, a, b, r, keys, width);
    r += few ? kFewRows : kStripRows;
  }
}
void AddOuterAlong(float* to, const float* a, const float* b, Index rows, Index keys,
                   Index width) noexcept {
  constexpr Index R = kStripRows;
  for (Index t = 1 - rows; t < keys; t += R) {
    // Rows that meet one of the diagonals t .. t + R - 1.
    const Index begin = std::max<Index>(0, 1 - t - R), end = std::min(rows, keys - t);
    AddGroup<FloatProduct, R>(to + t * width, a + begin * (kTileStride + 1) + t, 1, kTileStride + 1,
                              b + begin * width, width, end - begin, width);
  }
}

// Rows are read one number further each: no store is read again before it has left the store buffer.
void Diagonals(float* to, const float* a, Index rows, Index keys) noexcept {
  for (Index n = 0; n < rows - 1 + keys; n += kLanes) {
    // Vector n of row i begins at its number `first + i`, and meets numbers of [-lanes + 1, keys).
    const Index first = n - (rows - 1);
    const Index begin = std::max<Index>(0, -first - kLanes + 1);
    const Index end = std::min(rows, keys - first);
    F sum[4] = {SetF(0), SetF(0), SetF(0), SetF(0)};
    const float* x = a + first;
    Index i = begin;
    for (; i + 4 <= end; i += 4)
      POSENC_UNROLL for (int y = 0; y < 4; ++y) sum[y] =
          AddF(sum[y], LoadF(x + (i + y) * (kTileStride + 1)));
    for (; i < end; ++i) sum[0] = AddF(sum[0], LoadF(x + i * (kTileStride + 1)));
    StoreF(to + n, AddF(AddF(sum[0], sum[1]), AddF(sum[2], sum[3])));
  }
}

void AddScaled(float* s, const float* p, const float* x, Index keys) noexcept {
  for (Index j = 0; j < keys; j += kLanes)
    StoreF(s + j, MulAddF(LoadF(p + j), LoadF(x + j), LoadF(s + j)));
}
#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR
void AddScaledIndexed(float* s, const float* p, const float* x, const std::int32_t* index,
                      Index keys) noexcept {
  for (Index j = 0; j < keys; ++j) s[j] += p[j] * x[index[j]];
}
#else
void AddScaledIndexed(float* s, const float* p, const float* x, const std::int32_t* index,
                      Index keys) noexcept {
  const hn::RebindToSigned<FTag> di;
  for (Index j = 0; j < keys; j += kLanes) {
    const F y = hn::GatherIndex(FTag(), x, hn::LoadU(di, index + j));
    StoreF(s + j, MulAddF(LoadF(p + j), y, LoadF(s + j)));
  }
}
#endif

float Dot(const float* a, const float* b, Index n) noexcept {
  F sum = SetF(0);
  for (Index i = 0; i < n; i += kLanes) sum = MulAddF(LoadF(a + i), LoadF(b + i), sum);
  return SumF(sum);
}

#undef POSENC_UNROLL

constexpr FastTileKernels kTileKernels{kLanes,
                                       kStripRows,
                                       kFewRows,
                                       kTileRows,
                                       kTileKeys,
                                       kTileStride,
                                       {{Slopes<kStripRows, false>, Slopes<kStripRows, true>},
                                        {Slopes<kFewRows, false>, Slopes<kFewRows, true>}},
                                       AddOuter,
                                       AddRows,
                                       AddRowsAlong,
                                       AddOuterAlong,
                                       Diagonals,
                                       AddScaled,
                                       AddScaledIndexed,
                                       Dot};

}  // namespace

const FastTileKernels* table_of_fast_tiles() {
  return &kTileKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_fast_tiles);
const FastTileKernels& fast_tile_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_fast_tiles), isa);
}
}  // namespace posenc::v0::detail
#endif
