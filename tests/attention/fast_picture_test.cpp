// SPDX-License-Identifier: Apache-2.0
// Numbers by two distances (Swin) and by one whose keys do not count up, which the fast engine reads in runs of keys.
#include <gtest/gtest.h>

#include "attention/float_call.h"
#include "posenc/positions/grid.h"

namespace posenc {
namespace {

// A picture of `height` x `width` tokens, and a number for each offset inside of a window of 4 x 9.
struct PictureCall : FloatCall {
  PictureCall(Index height, Index width, std::uint64_t seed, Index batch = 1, Index heads = 2)
      : FloatCall(batch, height * width, height * width, heads, heads, 5, 6, seed),
        places(grid({height, width})),
        numbers(test::Random(seed).normals(static_cast<std::size_t>(2 * 7 * 17))) {
    args.query_positions = args.key_positions = places;
    for (Index d = -3; d <= 3; ++d) rows.push_back(static_cast<std::int32_t>((d + 3) * 17));
    for (Index d = -8; d <= 8; ++d)
      columns.push_back(static_cast<std::int32_t>(d == 5 ? -1 : d + 8));
    term.lines[0] = {rows.data(), 7, -3, nullptr, 0};
    term.lines[1] = {columns.data(), 17, -8, nullptr, 1};
    term.table = tensor(std::as_const(numbers).data(), {1, 2, 7 * 17, 1});
    terms = {term};
    args.terms = terms;
  }
  PictureCall(const PictureCall&) = delete;
  OwnedPositions places;
  std::vector<double> numbers;
  std::vector<std::int32_t> rows, columns;
  ProductTerm term;
  std::vector<Term> terms;
};

TEST(FastPicture, SizesAndMasks) {
  std::uint64_t seed = 0;
  for (const auto& [height, width] :
       {std::pair<Index, Index>{1, 1}, {3, 1}, {1, 20}, {7, 7}, {3, 40}, {14, 14}})
    for (const bool masked : {false, true}) {
      PictureCall call(height, width, ++seed, masked ? 2 : 1);
      if (masked) call.args.mask.window_left = 30, call.args.mask.window_right = 11;
      ASSERT_EQ(call.wrong_backward_of_all_isas(), "") << height << 'x' << width << ' ' << masked;
      expect_same_gradient_bits(call.args);
    }
}

// Few queries, another term beside it, slopes by each axis, and padding.
TEST(FastPicture, BesideOtherTerms) {
  for (const Index queries : {3, 60}) {
    PictureCall call(6, 10, 5, 2);
    std::vector<std::int64_t> at;
    for (Index i = 0; i < 2 * queries; ++i) at.push_back(i * 7 % 6 - 1);
    for (Index i = 0; i < 2 * queries; ++i) at.push_back(i * 3 % 10);
    call.args.query_positions =
        Positions{at.data(), DType::i64, 2, queries, 2, 1, queries, 2 * queries};
    call.args.q.tokens = queries;
    call.args.q.batch_stride = 60 * 2 * 5;
    call.Tq = queries;
    call.args.mask.query_offset = 0;
    std::vector<std::uint8_t> visible(120, 1);
    for (std::size_t j = 0; j < 120; j += 11) visible[j] = 0;
    call.args.mask.key_visible = tensor(std::as_const(visible).data(), {2, 60});
    const std::vector<double> slopes{-0.1, -0.2, 0.05, -0.3, -0.02, 0.1, 0.2, 0.3};
    LinearTerm rows{.table = tensor(slopes.data(), {2, 1, 1, 2})};
    LinearTerm columns{.scale = 0.5, .table = tensor(slopes.data() + 4, {1, 2, 1, 2}), .axis = 1};
    call.args.terms = call.terms = {call.term, rows, columns};
    AttentionArgs exact = call.args;
    exact.exact = true;
    const CallResult got = gradients_of_fast(call.args), want = gradients_of_fast(exact);
    EXPECT_EQ(wrong_gradients(got, want, DType::f32, gradient_tolerance(DType::f32)), "")
        << queries;
  }
}

// Numbers far from 0, or not finite, are read pair by pair.
TEST(FastPicture, NumbersThatAreFarOrNotFinite) {
  for (const double bad : {-3000.0, 500.0, HUGE_VAL, std::nan("")}) {
    PictureCall call(9, 9, 3);
    call.numbers[40] = bad;
    AttentionArgs exact = call.args;
    exact.exact = true;
    const CallResult got = of_attend(call.args), want = of_attend(exact);
    EXPECT_LE(difference(got.out, want.out), kFloatError) << bad;
    EXPECT_LE(difference(got.log_sum_exp, want.log_sum_exp), kFloatError) << bad;
    std::vector<std::byte> memory(workspace_bytes(call.args));
    ResultArrays to(call.args, DType::f32);
    attend(call.args, to.r, default_executor(), memory);
  }
}

// One axis whose keys are in any order.
TEST(FastPicture, KeysInAnyOrder) {
  FloatCall call(1, 90, 200, 2, 1, 8, 8, 4);
  std::vector<std::int64_t> at;
  for (Index j = 0; j < 200; ++j) at.push_back(j < 100 ? j * 37 % 100 : 300 - j);
  call.args.key_positions = Positions{at.data(), DType::i64, 1, 200};
  const std::vector<double> slopes{-0.02, -0.1, -0.05, 0.03};
  const Term terms[] = {LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})}};
  call.args.terms = terms;
  EXPECT_EQ(call.wrong(), "");
  EXPECT_EQ(call.wrong_backward(), "");
}

// Distances at the end of 64 bits have no neighbour.
TEST(FastPicture, DistancesAtTheEndOf64Bits) {
  constexpr Index far = Index{1} << 62;
  for (const bool past : {false, true}) {
    FloatCall call(1, 8, 8, 2, 1, 8, 8, 4);
    std::vector<std::int64_t> query, key;
    for (Index i = 0; i < 8; ++i) {
      const Index mixed = i * 3 % 8;
      query.push_back(past ? far - 1 - i : i - far);
      key.push_back(past ? mixed - far : far - mixed);
    }
    call.args.query_positions = Positions{query.data(), DType::i64, 1, 8};
    call.args.key_positions = Positions{key.data(), DType::i64, 1, 8};
    const std::vector<double> slopes{-1e-19, -2e-19, -2e-19, -1e-19};
    const Term terms[] = {LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})}};
    call.args.terms = terms;
    EXPECT_EQ(call.wrong(), "") << past;
    EXPECT_EQ(call.wrong_backward(), "") << past;
  }
}

}  // namespace
}  // namespace posenc
