// SPDX-License-Identifier: Apache-2.0
// Tokens of a picture: terms by row and by column of a grid read one number for each class of keys (SAM, MViT).
#include <gtest/gtest.h>

#include "attention/rows_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

// Queries on a grid of rows x columns against keys on another one, some tokens without a place before both.
struct GridCall : RowsCall {
  GridCall(Index batch, std::array<Index, 2> queries, std::array<Index, 2> keys, Index free,
           std::uint64_t seed)
      : RowsCall(batch, queries[0] * queries[1] + free, keys[0] * keys[1] + free, 2, 10, seed) {
    const auto places = [&](std::array<Index, 2> grid, std::vector<Index>& to, bool moves) {
      const Index tokens = grid[0] * grid[1] + free;
      to.assign(static_cast<std::size_t>(2 * batch * tokens), 0);
      for (Index b = 0; b < batch; ++b)
        for (Index n = free; n < tokens; ++n) {
          const auto at = static_cast<std::size_t>(b * tokens + n);
          to[at] = (n - free) / grid[1] + (moves ? b : 0);
          to[at + static_cast<std::size_t>(batch * tokens)] = (n - free) % grid[1];
        }
      Positions p{to.data(), DType::i64, 2, tokens};
      p.batch = batch, p.batch_stride = tokens, p.axis_stride = batch * tokens;
      return p;
    };
    args.query_positions = places(queries, query_places, true);
    args.key_positions = places(keys, key_places, false);
    args.mask.query_offset = 0;
    for (const std::int32_t axis : {0, 1}) {
      ProductTerm t = rows(Rows::clipped, false, 1, axis == 0 ? 1 : 2);
      t.lines[0].axis = axis;
      if (free > 0) {
        disabled = {-1, -1, -1, 0};
        t.pair = {disabled.data(), 2, 2, marks(query_marks, Tq, free), marks(key_marks, Tk, free)};
      }
      add(t);
    }
  }
  ConstTensorView marks(std::vector<std::int64_t>& to, Index tokens, Index free) {
    to.assign(static_cast<std::size_t>(tokens), 1);
    std::fill_n(to.begin(), free, 0);
    return tensor(std::as_const(to).data(), {1, tokens});
  }
  std::vector<Index> query_places, key_places;
  std::vector<std::int64_t> query_marks, key_marks;
  std::vector<std::int32_t> disabled;
};

TEST(FastClasses, Grids) {
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const auto& [rows, columns] : {std::array<Index, 2>{1, 9}, {5, 3}, {7, 14}, {3, 30}}) {
      ++seed;
      GridCall call(seed % 3 == 0 ? 2 : 1, {rows, columns}, {rows, columns}, seed % 2, seed);
      call.args.mask.causal = seed % 4 == 0;
      ASSERT_EQ(call.wrong_backward(), "") << isa_name(isa) << rows << " x " << columns;
    }
  }
  reset_isa();
}

// Queries of other places than the keys, a bias beside them, and padding.
TEST(FastClasses, PooledKeysBiasesAndPadding) {
  GridCall call(2, {6, 12}, {3, 31}, 1, 3);
  EXPECT_EQ(call.wrong_backward(), "");
  const std::vector<double> bias = call.random.normals(static_cast<std::size_t>(call.Tq * call.Tk));
  call.args.mask.bias = tensor(bias.data(), {call.Tq, call.Tk});
  EXPECT_EQ(call.wrong_backward(), "");
  call.args.mask.bias = {};
  const std::vector<std::int64_t> lengths{61, 94};
  call.args.mask.key_length = tensor(lengths.data(), {2});
  EXPECT_EQ(call.wrong_backward(), "");
  expect_same_gradient_bits(call.args);
}

// Keys in an order without runs, and more classes than a row keeps numbers of.
TEST(FastClasses, ShortRunsAndManyClasses) {
  for (const Index columns : {11, 150}) {
    GridCall call(1, {1, 50}, {columns == 11 ? 10 : 1, columns}, 0, 4);
    for (std::size_t n = 0; n < call.key_places.size() / 2; ++n)
      std::swap(call.key_places[n], call.key_places[n * 37 % (call.key_places.size() / 2)]);
    const std::size_t half = call.key_places.size() / 2;
    for (std::size_t n = 0; n < half; ++n)
      std::swap(call.key_places[half + n], call.key_places[half + n * 7 % half]);
    EXPECT_EQ(call.wrong_backward(), "") << columns;
  }
}

TEST(FastClasses, FewQueries) {
  for (const Index free : {0, 1}) {
    GridCall call(1, {1, 3}, {7, 9}, free, 5);
    EXPECT_EQ(call.wrong(), "") << free;
  }
}

}  // namespace
}  // namespace posenc
