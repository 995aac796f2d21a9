// SPDX-License-Identifier: Apache-2.0
// Products with panels and what is read of them, for every instruction set.
#include "kernels/attention/fast_reads.h"

#include <utility>

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fast_reads.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/attention/fast_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

#define POSENC_UNROLL _Pragma("GCC unroll 16")

template <int R>
HWY_NOINLINE void Products(float* HWY_RESTRICT to, Index to_row, const float* HWY_RESTRICT a,
                           Index a_row, const float* HWY_RESTRICT b, Index b_panel, Index panels,
                           Index channels, const float* start) noexcept {
  for (Index p = 0; p < panels; ++p, to += kPanel, b += b_panel) {
    F c[R][2];
    POSENC_UNROLL for (int x = 0; x < 2; ++x) {
      const F first = start == nullptr ? SetF(0) : LoadF(start + p * kPanel + x * kLanes);
      POSENC_UNROLL for (int r = 0; r < R; ++r) c[r][x] = first;
    }
    AddProduct(c, a, a_row, 1, b, kPanel, channels);
    POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < 2; ++x)
        StoreF(to + r * to_row + x * kLanes, c[r][x]);
  }
}

template <int R, int N>
HWY_INLINE void AddValuesOfPanel(float* out, const float* a, Index a_row, const float* b,
                                 Index count) {
  F c[R][N];
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
      LoadF(out + r * kPanel + x * kLanes);
  AddProduct(c, a, a_row, 1, b, kPanel, count);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x)
      StoreF(out + r * kPanel + x * kLanes, c[r][x]);
}
template <int R>
void AddValuesOf(float* out, const float* a, Index a_row, const float* b, Index b_panel,
                 Index vectors, Index count) noexcept {
  const Index panels = vectors / 2;
  for (Index p = 0; p < panels; ++p)
    AddValuesOfPanel<R, 2>(out + p * R * kPanel, a, a_row, b + p * b_panel, count);
  if (vectors % 2 != 0)
    AddValuesOfPanel<R, 1>(out + panels * R * kPanel, a, a_row, b + panels * b_panel, count);
}

float Sum(const float* x, Index count) noexcept {
  F sum[4] = {SetF(0), SetF(0), SetF(0), SetF(0)};
  Index j = 0;
  for (; j + 4 * kLanes <= count; j += 4 * kLanes)
    POSENC_UNROLL for (int y = 0; y < 4; ++y) sum[y] = AddF(sum[y], LoadF(x + j + y * kLanes));
  for (; j < count; j += kLanes) sum[0] = AddF(sum[0], LoadF(x + j));
  return SumF(AddF(AddF(sum[0], sum[1]), AddF(sum[2], sum[3])));
}

void AddSlice(float* to, const float* from, Index count) noexcept {
  for (Index j = 0; j < count; j += kLanes) StoreF(to + j, AddF(LoadF(to + j), LoadF(from + j)));
}

void AddSlices(float* to, const float* x, const float* y, Index count) noexcept {
  for (Index j = 0; j < count; j += kLanes) StoreF(to + j, AddF(LoadF(x + j), LoadF(y + j)));
}

// The first n lanes; 0 behind them.
HWY_INLINE F FirstF(F x, Index n) {
#if HWY_HAVE_SCALABLE
  return n > 0 ? x : 0;
#else
  return n >= kLanes ? x : hn::IfThenElseZero(hn::FirstN(FTag(), static_cast<std::size_t>(n)), x);
#endif
}
void AddRuns(float* to, Index to_row, Index rows, const float* numbers, Index numbers_row,
             const FastRun* runs, Index count) noexcept {
  for (Index r = 0; r < rows; ++r, to += to_row, numbers += numbers_row)
    for (const FastRun* run = runs; run < runs + count; ++run) {
      float* y = to + run->at;
      const float* x = numbers + run->first;
      const F one = SetF(*x);
      for (Index j = 0; j < run->count; j += kLanes) {
        const F add = run->steps ? LoadF(x + j) : one;
        StoreF(y + j, AddF(LoadF(y + j), FirstF(add, run->count - j)));
      }
    }
}
void SumRuns(float* sums, Index sums_row, Index rows, const float* x, Index x_row,
             const FastRun* runs, Index count) noexcept {
  for (Index r = 0; r < rows; ++r, sums += sums_row, x += x_row)
    for (const FastRun* run = runs; run < runs + count; ++run) {
      const float* from = x + run->at;
      float* to = sums + run->first;
      F sum = SetF(0);
      for (Index j = 0; j < run->count; j += kLanes) {
        const F some = FirstF(LoadF(from + j), run->count - j);
        if (run->steps)
          StoreF(to + j, AddF(LoadF(to + j), some));
        else
          sum = AddF(sum, some);
      }
      if (!run->steps) *to += SumF(sum);
    }
}

void Copy(float* to, Index to_row, const float* from, Index from_row, Index rows,
          Index count) noexcept {
  for (Index r = 0; r < rows; ++r)
    for (Index j = 0; j < count; j += kLanes)
      StoreF(to + r * to_row + j, LoadF(from + r * from_row + j));
}

// A vector of steps that all differ, or are one, needs no look at each.
void SumSteps(float* to, const std::int32_t* step, const float* x, Index count) noexcept {
  for (Index j = 0; j < count;) {
    const std::int32_t at = step[j];
    const Index last = j + kLanes - 1;
    const std::int32_t others = last < count ? step[last] - at : -1;
    if (others == static_cast<std::int32_t>(kLanes) - 1) {
      StoreF(to + at, AddF(LoadF(to + at), LoadF(x + j)));
      j += kLanes;
      continue;
    }
    float sum = 0;
    if (others == 0) {
      F of_lanes = SetF(0);
      for (; j + kLanes <= count && step[j + kLanes - 1] == at; j += kLanes)
        of_lanes = AddF(of_lanes, LoadF(x + j));
      sum = SumF(of_lanes);
    }
    for (; j < count && step[j] == at; ++j) sum += x[j];
    to[at] += sum;
  }
}

template <class T>
HWY_INLINE bool NarrowEach(float* to, const T* from, Index begin, Index count, double factor,
                           float most) {
  bool bounded = true;
  for (Index n = begin; n < count; ++n) {
    to[n] = static_cast<float>(factor * static_cast<double>(from[n]));
    bounded = bounded && std::fabs(to[n]) <= most;
  }
  return bounded;
}
#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR
template <class T>
bool Narrow(float* to, const T* from, Index count, double factor, float most) noexcept {
  return NarrowEach(to, from, 0, count, factor, most);
}
#else
using DoubleTag = hn::ScalableTag<double>;
using HalfTag = hn::Rebind<float, DoubleTag>;
HWY_INLINE hn::Vec<DoubleTag> ReadWide(const double* from) {
  return hn::LoadU(DoubleTag(), from);
}
HWY_INLINE hn::Vec<DoubleTag> ReadWide(const float* from) {
  return hn::PromoteTo(DoubleTag(), hn::LoadU(HalfTag(), from));
}
template <class T>
bool Narrow(float* to, const T* from, Index count, double factor, float most) noexcept {
  const DoubleTag wide;
  const HalfTag half;
  constexpr Index kDoubles = kLanes / 2;
  const auto limit = hn::Set(half, most);
  const auto by = hn::Set(wide, factor);
  auto beyond = hn::Lt(limit, hn::Zero(half));
  Index n = 0;
  for (; n + kDoubles <= count; n += kDoubles) {
    const auto y = hn::DemoteTo(half, hn::Mul(by, ReadWide(from + n)));
    hn::StoreU(y, half, to + n);
    // NaN is no number up to the limit.
    beyond = hn::Or(beyond, hn::Not(hn::Le(hn::Abs(y), limit)));
  }
  return NarrowEach(to, from, n, count, factor, most) && hn::AllFalse(half, beyond);
}
#endif

#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR
void AddIndexed(float* to, const float* from, const std::int32_t* index, Index count) noexcept {
  for (Index j = 0; j < count; ++j) to[j] += from[index[j]];
}
void AddColumns(float* to, Index to_row, Index rows, const float* from, Index from_row,
                const std::int32_t* index, Index count) noexcept {
  for (Index r = 0; r < rows; ++r)
    for (Index j = 0; j < count; ++j) to[r * to_row + j] += from[index[j - r] * from_row + j];
}
#else
using ITag = hn::RebindToSigned<FTag>;
HWY_INLINE F Gather(const float* from, hn::Vec<ITag> index) {
  return hn::GatherIndex(FTag(), from, index);
}
// Loads and inserts, not the instruction that gathers: 0.31 beside 0.50 ns a number on Zen 3.
template <std::size_t... N>
HWY_INLINE F ReadIndexed(const float* from, const std::int32_t* index, std::index_sequence<N...>) {
#if HWY_TARGET == HWY_EMU128
  const float x[] = {from[index[N]]...};
  return LoadF(x);
#else
  return F{decltype(F::raw){from[index[N]]...}};
#endif
}
void AddIndexed(float* to, const float* from, const std::int32_t* index, Index count) noexcept {
  for (Index j = 0; j < count; j += kLanes) {
    const F x = ReadIndexed(from, index + j, std::make_index_sequence<kLanes>());
    StoreF(to + j, AddF(LoadF(to + j), x));
  }
}
// All rows of a vector of keys: they read the same lines of the cache.
void AddColumns(float* to, Index to_row, Index rows, const float* from, Index from_row,
                const std::int32_t* index, Index count) noexcept {
  const auto row = hn::Set(ITag(), static_cast<std::int32_t>(from_row));
  const auto lane = hn::Iota(ITag(), 0);
  for (Index j = 0; j < count; j += kLanes)
    for (Index r = 0; r < rows; ++r) {
      const auto at = hn::Add(hn::Mul(hn::LoadU(ITag(), index + j - r), row), lane);
      float* y = to + r * to_row + j;
      StoreF(y, AddF(LoadF(y), Gather(from + j, at)));
    }
}
#endif

#undef POSENC_UNROLL

constexpr FastReadKernels kReadKernels{{Products<kStripRows>, Products<kFewRows>},
                                       {AddValuesOf<kStripRows>, AddValuesOf<kFewRows>},
                                       Sum,
                                       AddSlice,
                                       AddSlices,
                                       AddIndexed,
                                       AddColumns,
                                       AddRuns,
                                       SumRuns,
                                       Copy,
                                       SumSteps,
                                       Narrow<double>,
                                       Narrow<float>};

}  // namespace

const FastReadKernels* table_of_fast_reads() {
  return &kReadKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_fast_reads);
const FastReadKernels& fast_read_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_fast_reads), isa);
}
}  // namespace posenc::v0::detail
#endif
