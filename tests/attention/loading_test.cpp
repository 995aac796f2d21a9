// SPDX-License-Identifier: Apache-2.0
// Keys and values in double: the kernels that widen, what is read of a cache, and that one query
// gives the bits that it gives among others.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/element.h"
#include "kernels/attention/widen.h"
#include "posenc/attention/attend.h"
#include "posenc/attention/explain_plan.h"
#include "posenc/core/isa.h"
#include "posenc/positions/sequence.h"
#include "posenc/rotary/rope.h"
#include "support/random.h"

namespace posenc {
namespace {

constexpr DType kTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

// Normal numbers of any float type in one array.
struct LoadedNumbers {
  LoadedNumbers(DType t, Index n, std::uint64_t seed)
      : type(t), bytes(static_cast<std::size_t>(n)) {
    test::Random r(seed);
    for (Index i = 0; i < n; ++i) detail::put_element(bytes.data(), t, i, r.normal());
  }
  double at(Index i) const { return detail::float_element(bytes.data(), type, i); }
  const void* from(Index i) const {
    return reinterpret_cast<const std::byte*>(bytes.data()) + i * size_of(type);
  }
  DType type;
  std::vector<double> bytes;
};

TEST(Widen, RowsAndTilesHoldTheElements) {
  for (const Isa isa : supported_isas())
    for (const DType type : kTypes) {
      SCOPED_TRACE(std::string(isa_name(isa)) + " " + std::string(dtype_name(type)));
      const detail::WidenKernels& kernels = detail::widen_kernels(isa, type);
      const LoadedNumbers x(type, 2000, 3);
      for (Index channels = 0; channels < 40; ++channels) {
        std::vector<double> row(static_cast<std::size_t>(channels) + 1, -7);
        kernels.row(row.data(), x.from(channels), channels);
        for (Index c = 0; c < channels; ++c)
          ASSERT_EQ(row[static_cast<std::size_t>(c)], x.at(channels + c));
        EXPECT_EQ(row.back(), -7);
        const Index rows = channels % detail::kTile + 1;
        const void* from[detail::kTile];
        for (Index j = 0; j < rows; ++j) from[j] = x.from(41 * j);
        std::vector<double> tile(static_cast<std::size_t>(channels * detail::kTile) + 1, -7);
        kernels.tile(tile.data(), from, rows, channels);
        for (Index c = 0; c < channels; ++c)
          for (Index j = 0; j < detail::kTile; ++j)
            ASSERT_EQ(tile[static_cast<std::size_t>(c * detail::kTile + j)],
                      j < rows ? x.at(41 * j + c) : 0);
        EXPECT_EQ(tile.back(), -7);
      }
    }
}

// Up to 40 queries, of which the last has order 139, and a cache of 150 keys.
struct CacheCall {
  static constexpr Index kKeys = 150, kHeads = 4, kGroups = 2, kDim = 19, kPage = 5;
  CacheCall(DType t, bool by_pages, Index channels = kDim)
      : dim(channels),
        q(t, 40 * kHeads * dim, 1),
        k(t, kKeys * kGroups * dim, 2),
        v(t, kKeys * kGroups * dim, 3),
        paged(by_pages) {
    // Each page where the reversed table says.
    for (Index p = 0; p < kKeys / kPage; ++p) pages.push_back(kKeys / kPage - 1 - p);
  }
  AttentionArgs args(Index queries) const {
    const auto of = [&](const LoadedNumbers& x, Index first, std::vector<Index> shape) {
      return heads(tensor(x.from(first), x.type, shape), HeadsLayout::bthd);
    };
    AttentionArgs a;
    a.exact = true;
    a.q = of(q, (40 - queries) * kHeads * dim, {1, queries, kHeads, dim});
    const std::vector<Index> shape = paged ? std::vector<Index>{kKeys / kPage, kPage, kGroups, dim}
                                           : std::vector<Index>{1, kKeys, kGroups, dim};
    a.k = of(k, 0, shape), a.v = of(v, 0, shape);
    a.scale = 0.3;
    a.mask.causal = true;
    a.mask.query_offset = 140 - queries;
    if (!paged) return a;
    a.block_table = tensor(pages.data(), {1, kKeys / kPage});
    a.mask.key_length = tensor(&length, {1});
    return a;
  }
  Index dim;
  LoadedNumbers q, k, v;
  bool paged;
  std::vector<Index> pages;
  Index length = kKeys;
};

struct LastRow {
  std::vector<double> out, lse = std::vector<double>(CacheCall::kHeads);
};
// Of the last query alone.
LastRow last_row(const AttentionArgs& a) {
  LastRow r;
  const Index n = a.q.tokens, width = CacheCall::kHeads * a.q.dim;
  std::vector<double> out(static_cast<std::size_t>(n * width));
  const Heads o = heads(tensor(static_cast<void*>(out.data()), a.q.dtype,
                               std::vector<Index>{1, n, CacheCall::kHeads, a.q.dim}),
                        HeadsLayout::bthd);
  std::vector<double> lse(static_cast<std::size_t>(n * CacheCall::kHeads));
  attend(a, {o, tensor(lse.data(), {1, CacheCall::kHeads, n})});
  for (Index i = 0; i < width; ++i)
    r.out.push_back(detail::float_element(out.data(), a.q.dtype, (n - 1) * width + i));
  for (Index h = 0; h < CacheCall::kHeads; ++h)
    r.lse[static_cast<std::size_t>(h)] = lse[static_cast<std::size_t>(h * n + n - 1)];
  return r;
}

TEST(Loading, OneQueryGivesTheBitsThatItGivesAmongOthers) {
  for (const DType type : kTypes)
    for (const bool paged : {false, true})
      for (const Index window : {kUnbounded, Index{20}})
        for (const Index queries : {1, 3, 8}) {
          const CacheCall call(type, paged);
          AttentionArgs many = call.args(40), few = call.args(queries);
          many.mask.window_left = few.mask.window_left = window;
          many.mask.sink_tokens = few.mask.sink_tokens = 2;
          const LastRow want = last_row(many), got = last_row(few);
          EXPECT_EQ(got.out, want.out) << dtype_name(type) << paged << window << queries;
          EXPECT_EQ(got.lse, want.lse);
        }
}

// Few queries read the keys through biases, norms and rotations, a few keys at a time.
TEST(Loading, StagesOfFewQueriesGiveTheSameBits) {
  const RotarySpec rope = resolve(Rope{.head_dim = 20, .pairing = Pairing::half_split});
  test::Random random(5);
  const std::vector<double> numbers = random.normals(2 * 20);
  const ConstTensorView array = tensor(numbers.data(), {2, 20});
  const Stage stages[] = {{.kind = StageKind::add, .q = array, .k = array},
                          {.kind = StageKind::rotate, .rotary = &rope},
                          {.kind = StageKind::rms, .q = array, .k = array, .epsilon = 1e-6},
                          {.kind = StageKind::l2, .epsilon = 1e-12}};
  const OwnedPositions keys = arange(-30, CacheCall::kKeys);
  for (const DType type : kTypes)
    for (const bool paged : {false, true})
      for (const Index window : {kUnbounded, Index{20}})
        for (const Index queries : {1, 8}) {
          const CacheCall call(type, paged, 20);
          AttentionArgs many = call.args(40), few = call.args(queries);
          const OwnedPositions of_many = arange(70, 40), of_few = arange(110 - queries, queries);
          many.query_positions = of_many, few.query_positions = of_few;
          many.key_positions = few.key_positions = keys;
          many.prepare = few.prepare = stages;
          many.mask.window_left = few.mask.window_left = window;
          EXPECT_EQ(last_row(few).out, last_row(many).out)
              << dtype_name(type) << paged << window << queries;
        }
}

// Channels that do not lie side by side.
TEST(Loading, StridesChangeNoBit) {
  CacheCall call(DType::f32, false);
  AttentionArgs a = call.args(1);
  const LastRow want = last_row(a);
  LoadedNumbers k(DType::f32, 3 * CacheCall::kKeys * CacheCall::kGroups * CacheCall::kDim, 9);
  for (Index i = 0; i < CacheCall::kKeys * CacheCall::kGroups * CacheCall::kDim; ++i)
    detail::put_element(k.bytes.data(), DType::f32, 3 * i, call.k.at(i));
  a.k.data = k.bytes.data();
  for (Index* stride : {&a.k.batch_stride, &a.k.token_stride, &a.k.head_stride, &a.k.dim_stride})
    *stride *= 3;
  EXPECT_EQ(last_row(a).out, want.out);
  AttentionArgs many = call.args(40);
  many.k = a.k;
  EXPECT_EQ(last_row(many).out, want.out);
}

// What no query may see may be NaN, and pages that hold nothing else may not exist.
TEST(Loading, HiddenKeysAreNotRead) {
  for (const Index queries : {1, 40})
    for (const bool paged : {false, true}) {
      CacheCall call(DType::f32, paged);
      AttentionArgs a = call.args(queries);
      a.mask.window_left = 19;  // query 100 and later ones see from key 81 on, and none from 140 on
      call.length = 140;
      const LastRow want = last_row(a);
      const Index width = CacheCall::kGroups * CacheCall::kDim;
      for (Index j = 0; j < CacheCall::kKeys; ++j) {
        if (j >= 80 && j < 140) continue;
        const Index at = paged ? CacheCall::kKeys - CacheCall::kPage -
                                     j / CacheCall::kPage * CacheCall::kPage + j % CacheCall::kPage
                               : j;
        for (Index c = 0; c < width; ++c)
          for (LoadedNumbers* x : {&call.k, &call.v})
            detail::put_element(x->bytes.data(), DType::f32, at * width + c, std::nan(""));
      }
      if (paged) call.pages[28] = call.pages[29] = Index{1} << 40;
      EXPECT_EQ(last_row(a).out, want.out) << queries << paged;
    }
}

// 1 x 16,384 x 8 x 64: one row of scores, and q in double; with 32 queries k and v too.
TEST(Loading, FewQueriesNeedNoCopyOfTheCache) {
  constexpr Index kKeys = 16384, kHeads = 8, kDim = 64;
  const std::vector<float> x(kKeys * kHeads * kDim);
  AttentionArgs a;
  a.q = heads(x.data(), 1, kHeads, kDim);
  a.k = a.v = heads(x.data(), kKeys, kHeads, kDim);
  a.scale = 1, a.exact = true;
  constexpr std::size_t kRow = kKeys * sizeof(double), kCopy = kRow * kHeads * kDim;
  const auto bytes = [&] { return workspace_bytes(a, inline_executor()); };
  EXPECT_GE(bytes(), kRow);
  EXPECT_LE(bytes(), 2 * kRow);
  EXPECT_EQ(explain_plan(a).workspace_bytes, workspace_bytes(a));
  const RotarySpec rope = resolve(Rope{.head_dim = kDim, .pairing = Pairing::half_split});
  const OwnedPositions keys = arange(0, kKeys), query = arange(kKeys - 1, 1);
  const Stage rotation{.kind = StageKind::rotate, .rotary = &rope};
  a.key_positions = keys, a.query_positions = query, a.prepare = {&rotation, 1};
  EXPECT_LE(bytes(), 5 * kRow);  // and the positions, as integers and as doubles
  a.prepare = {}, a.key_positions = a.query_positions = {};
  a.q = heads(x.data(), 32, kHeads, kDim);
  EXPECT_GE(bytes(), 2 * kCopy);
  EXPECT_LE(bytes(), 2 * kCopy + 10 * kRow);
}

}  // namespace
}  // namespace posenc
