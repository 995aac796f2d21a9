// SPDX-License-Identifier: Apache-2.0
// Rows are taken several at a time: shapes around the edges of blocks and tiles, against the
// reference; what a row gives does not depend on its neighbours.
#include <gtest/gtest.h>
#include <deque>

#include <cmath>
#include <limits>
#include <thread>

#include "attention/engine_compare.h"
#include "posenc/core/isa.h"
#include "posenc/positions/sequence.h"
#include "support/random.h"

namespace posenc {
namespace {

struct BlockShape {
  Index batch = 1, queries = 1, keys = 1, heads = 1, key_heads = 1, dim = 4, value_dim = 4;
};
enum class BlockMask { none, causal, window, tree, biased };

// A call with a term of distances; heads lie apart or tokens do.
struct BlockCall {
  BlockCall(const BlockShape& shape, BlockMask mask, bool strided) : s(shape) {
    a.q = array(s.queries, s.heads, s.dim, strided);
    a.k = array(s.keys, s.key_heads, s.dim, strided);
    a.v = array(s.keys, s.key_heads, s.value_dim, strided);
    a.scale = 0.5;
    query_place = arange(s.keys - s.queries, s.queries);
    key_place = arange(0, s.keys);
    a.query_positions = query_place, a.key_positions = key_place;
    table = random.normals(static_cast<std::size_t>(s.heads) * 5);
    ProductTerm numbers;
    numbers.lines[0] = {row, 5, -1};
    numbers.table = tensor(std::as_const(table).data(), {1, s.heads, 5, 1});
    term = numbers;
    a.terms = std::span(&term, 1);
    a.mask.query_offset = s.keys - s.queries;
    set_mask(mask);
  }
  BlockCall(const BlockCall&) = delete;

  ConstHeads array(Index tokens, Index count, Index dim, bool strided) {
    const Index step = strided ? 3 : 1, gap = strided ? 5 : 0;
    ConstHeads h;
    h.batch = s.batch, h.tokens = tokens, h.heads = count, h.dim = dim;
    h.dtype = DType::f64;
    h.dim_stride = step;
    h.token_stride = dim * step + gap;
    h.head_stride = tokens * h.token_stride;
    h.batch_stride = count * h.head_stride;
    memory.push_back(random.normals(static_cast<std::size_t>(s.batch * h.batch_stride) + 1));
    h.data = memory.back().data();
    return h;
  }
  void set_mask(BlockMask mask) {
    const auto pairs = static_cast<std::size_t>(s.queries * s.keys);
    a.mask.causal = mask == BlockMask::causal || mask == BlockMask::window;
    if (mask == BlockMask::window) a.mask.window_left = 9, a.mask.sink_tokens = 2;
    if (mask == BlockMask::tree) {
      for (std::size_t n = 0; n < pairs; ++n) seen.push_back(random.uniform() < 0.6 ? 1 : 0);
      if (pairs > 0) a.mask.visible = tensor(std::as_const(seen).data(), {s.queries, s.keys});
    }
    if (mask == BlockMask::biased) {
      for (std::size_t n = 0; n < pairs; ++n)
        bias.push_back(random.uniform() < 0.2 ? -HUGE_VAL : random.normal());
      if (pairs > 0) a.mask.bias = tensor(std::as_const(bias).data(), {s.queries, s.keys});
    }
  }

  BlockShape s;
  test::Random random{5};
  std::deque<std::vector<double>> memory;
  std::vector<double> table, bias;
  std::vector<std::uint8_t> seen;
  const std::int32_t row[5] = {4, 0, 1, -1, 3};
  OwnedPositions query_place, key_place;
  Term term;
  AttentionArgs a;
};

void expect_reference(const BlockShape& s, BlockMask mask, bool strided) {
  const BlockCall call(s, mask, strided);
  EXPECT_EQ(differences(of_engine(call.a), of_reference(call.a), 2e-11, 2e-11), "")
      << s.batch << ' ' << s.queries << 'x' << s.keys << " heads " << s.heads << '/' << s.key_heads
      << " of " << s.dim << '/' << s.value_dim << " mask " << static_cast<int>(mask);
}

constexpr BlockMask kMasks[] = {BlockMask::none, BlockMask::causal, BlockMask::window,
                                BlockMask::tree, BlockMask::biased};

TEST(AttentionBlocks, RowsAndKeysAroundTheEdges) {
  int n = 0;
  for (const Index queries : {0, 1, 3, 4, 5, 8, 9, 17, 63, 64, 65})
    for (const Index keys : {0, 1, 3, 4, 5, 15, 16, 17, 63, 64, 65}) {
      expect_reference({1, queries, keys, 2, 1, 4, 3}, kMasks[n % 5], n % 2 == 1);
      ++n;
    }
  for (const BlockMask mask : kMasks) expect_reference({2, 65, 65, 2, 2, 5, 6}, mask, false);
}

TEST(AttentionBlocks, GroupedQueries) {
  for (const Index group : {1, 2, 3, 5, 8})
    for (const Index queries : {1, 2, 7, 9})
      expect_reference({2, queries, 20, 2 * group, 2, 6, 6}, kMasks[queries % 5], true);
}

TEST(AttentionBlocks, HeadSizes) {
  int n = 0;
  for (const Index dim : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 80, 128, 576}) {
    expect_reference({1, 19, 23, 2, 1, dim, 1 + dim % 9}, kMasks[n % 5], n % 2 == 0);
    expect_reference({1, 19, 23, 2, 1, 1 + dim % 9, dim}, kMasks[++n % 5], false);
  }
}

void run_block_threads(void*, Index n, void (*task)(void*, Index), void* arg) {
  std::vector<std::thread> all;
  for (Index i = n; i-- > 0;) all.emplace_back(task, arg, i);
  for (std::thread& t : all) t.join();
}

// More parts than there were slices once, and one key head whose rows are cut.
TEST(AttentionBlocks, AnyNumberOfThreadsGivesTheSameBits) {
  for (const BlockShape& s :
       {BlockShape{5, 33, 40, 8, 4, 33, 16}, BlockShape{1, 600, 70, 2, 1, 8, 8},
        BlockShape{1, 260, 260, 1, 1, 16, 16}}) {
    const BlockCall call(s, BlockMask::causal, false);
    const CallResult one = of_engine(call.a, inline_executor());
    EXPECT_EQ(differences(one, of_reference(call.a), 2e-11, 2e-11), "");
    for (const Index n : {2, 3, 19}) {
      Executor e;
      e.concurrency = n, e.run = run_block_threads;
      const CallResult many = of_engine(call.a, e);
      EXPECT_EQ(one.out, many.out);
      EXPECT_EQ(one.log_sum_exp, many.log_sum_exp);
      EXPECT_EQ(one.gradients, many.gradients);
    }
  }
}

TEST(AttentionBlocks, AnyInstructionSetGivesTheSameBits) {
  for (const Index dim : {3, 20, 67}) {
    const BlockCall call({1, 37, 41, 3, 1, dim, dim + 2}, BlockMask::window, false);
    const CallResult want = of_engine(call.a);
    for (const Isa isa : supported_isas()) {
      force_isa(isa);
      const CallResult got = of_engine(call.a);
      EXPECT_EQ(got.out, want.out) << isa_name(isa);
      EXPECT_EQ(got.gradients, want.gradients) << isa_name(isa);
    }
    reset_isa();
  }
}

// A row alone is the row of a block, whatever the other rows of the block see.
TEST(AttentionBlocks, ARowAloneIsARowOfABlock) {
  for (const BlockMask mask : {BlockMask::causal, BlockMask::tree}) {
    const BlockCall all({1, 29, 40, 1, 1, 7, 7}, mask, false);
    const CallResult want = of_engine(all.a);
    for (Index i = 0; i < 29; ++i) {
      AttentionArgs a = all.a;
      a.q.data = static_cast<const double*>(a.q.data) + i * 7;
      a.q.tokens = 1;
      const OwnedPositions at = arange(11 + i, 1);
      a.query_positions = at;
      a.mask.query_offset += i;
      if (mask == BlockMask::tree) a.mask.visible = tensor(all.seen.data() + i * 40, {1, 40});
      const CallResult got = of_engine(a);
      EXPECT_EQ(got.out,
                std::vector<double>(want.out.begin() + i * 7, want.out.begin() + i * 7 + 7));
      EXPECT_EQ(got.log_sum_exp[0], want.log_sum_exp[static_cast<std::size_t>(i)]);
    }
  }
}

// Of 40 keys one holds NaN in k, one in v and one, which no row sees, in both.
TEST(AttentionBlocks, ANaNReachesTheRowsThatSeeItAndNoOther) {
  BlockCall call({1, 40, 40, 1, 1, 9, 9}, BlockMask::causal, false);
  const std::vector<std::uint8_t> visible = [] {
    std::vector<std::uint8_t> v(40, 1);
    v[3] = 0;
    return v;
  }();
  call.a.mask.key_visible = tensor(visible.data(), {1, 40});
  const CallResult clean = of_engine(call.a);
  const auto spoil = [&](std::size_t array, Index key) {
    call.memory[array][static_cast<std::size_t>(key * 9 + 4)] = std::nan("");
  };
  spoil(1, 3), spoil(2, 3);
  const CallResult hidden = of_engine(call.a);
  EXPECT_EQ(hidden.out, clean.out);
  EXPECT_EQ(hidden.gradients, clean.gradients);
  spoil(1, 30), spoil(2, 21);
  const CallResult got = of_engine(call.a);
  for (Index i = 0; i < 40; ++i)
    for (Index d = 0; d < 9; ++d) {
      const auto at = static_cast<std::size_t>(i * 9 + d);
      EXPECT_EQ(std::isnan(got.out[at]), i >= 30 || (i >= 21 && d == 4)) << i << ' ' << d;
      if (i < 21) {
        EXPECT_EQ(got.out[at], clean.out[at]);
      }
    }
}

// Two rows: one sees no key, one only keys that a mask of -3.4e38 was added to.
TEST(AttentionBlocks, MaskedRows) {
  BlockCall call({1, 20, 17, 1, 1, 4, 4}, BlockMask::biased, false);
  std::fill(call.bias.begin(), call.bias.begin() + 17, -HUGE_VAL);
  std::fill(call.bias.begin() + 17, call.bias.begin() + 34, -3.4e38);
  const CallResult got = of_engine(call.a);
  const auto* v = static_cast<const double*>(call.a.v.data);
  for (std::size_t d = 0; d < 4; ++d) {
    double mean = 0;
    for (std::size_t j = 0; j < 17; ++j) mean += v[4 * j + d] / 17;
    EXPECT_EQ(got.out[d], 0);
    EXPECT_NEAR(got.out[4 + d], mean, 1e-15);
  }
  EXPECT_EQ(got.log_sum_exp[0], -HUGE_VAL);
  EXPECT_EQ(differences(got, of_reference(call.a), 2e-11, 2e-11), "");
}

}  // namespace
}  // namespace posenc
