// SPDX-License-Identifier: Apache-2.0
// Keys and values in q8_0 blocks: what both engines compute is that of the numbers of the blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "attention/q8_call.h"
#include "posenc/attention/plan.h"
#include "posenc/core/isa.h"
#include "posenc/rotary/rope.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;
using Which = Q8Call::Which;
constexpr Which kWhichOfBoth[] = {Which::k, Which::v, Which::both};

// In both engines.
std::string wrong_of_blocks(const Q8Call& call) {
  AttentionArgs exact = call.args;
  exact.exact = true;
  return call.wrong() + wrong_of_fast(of_attend(exact), call.plain(), DType::f32);
}

TEST(BlockKeys, ManyQueriesAndTheirGradients) {
  const auto expect_right = [](Which which, Index queries) {
    Q8Call call(1, queries, 130, 4, 2, 64, 96, 1);
    call.use_blocks(which);
    call.args.mask.causal = true;
    EXPECT_EQ(wrong_of_blocks(call), "");
    EXPECT_EQ(call.wrong_backward(), "");
  };
  for (const Which which : kWhichOfBoth) expect_right(which, 37);
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    SCOPED_TRACE(isa_name(isa));
    expect_right(Which::both, 12);
  }
  reset_isa();
}

TEST(BlockKeys, GradientsOfTheExactEngine) {
  for (const Which which : kWhichOfBoth) {
    Q8Call call(2, 9, 40, 4, 2, 32, 64, 2);
    call.use_blocks(which);
    EXPECT_EQ(
        differences(of_engine(call.args), of_reference(call.plain(), call.args), 0x1p-22, 1e-5),
        "");
  }
}

TEST(BlockKeys, FewQueriesReadTheCacheAsItLies) {
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Which which : kWhichOfBoth)
      for (const Index queries : {1, 2, 3, 4})
        for (const Index dim : {32, 128}) {
          Q8Call call(1, queries, 100, 4, 2, dim, 160 - dim, 3);
          call.use_blocks(which);
          EXPECT_EQ(wrong_of_blocks(call), "") << isa_name(isa) << " " << queries << " " << dim;
        }
    Q8Call shared(1, 1, 200, 8, 1, 64, 64, 4);
    shared.use_blocks();
    EXPECT_EQ(wrong_of_blocks(shared), "") << isa_name(isa);
  }
  reset_isa();
}

// Keys side by side become pages of 10 in reverse.
TEST(BlockKeys, Pages) {
  for (const Index queries : {1, 40}) {
    Q8Call call(1, queries, 300, 4, 2, 64, 64, 5);
    call.use_blocks();
    const AttentionArgs plain = call.plain();
    std::vector<Index> table;
    std::vector<std::uint8_t> of[3];
    constexpr Index kPage = 10 * 2 * 68;
    for (Index n = 0; n < 30; ++n) {
      table.push_back(29 - n);
      for (const std::size_t t : {1, 2})
        of[t].insert(of[t].end(), call.blocks[t].begin() + (29 - n) * kPage,
                     call.blocks[t].begin() + (30 - n) * kPage);
    }
    const std::vector<Index> length{300};
    const auto view = [&](std::size_t n) {
      return key_blocks(tensor(std::as_const(of[n]).data(), {30, 10, 2, 68}), HeadsLayout::bthd);
    };
    call.args.k = view(1), call.args.v = view(2);
    call.args.block_table = tensor(std::as_const(table).data(), {1, 30});
    call.args.mask.key_length = tensor(length.data(), {1});
    EXPECT_TRUE(is_fast(call.args));
    EXPECT_EQ(wrong_of_fast(of_attend(call.args), plain, DType::f32), "");
    call.args.exact = true;
    EXPECT_EQ(wrong_of_fast(of_attend(call.args), plain, DType::f32), "");
  }
}

TEST(BlockKeys, StagesChangeTheNumbersOfBlocks) {
  const RotarySpec spec = resolve(Rope{.head_dim = 64, .pairing = Pairing::half_split});
  const Stage stages[] = {{.kind = StageKind::rotate, .rotary = &spec}, {.kind = StageKind::l2}};
  for (const Index queries : {1, 30}) {
    Q8Call call(1, queries, 100, 2, 1, 64, 32, 6);
    call.use_blocks();
    call.args.prepare = stages;
    call.args.scale = 3;
    EXPECT_EQ(wrong_of_blocks(call), "");
    EXPECT_EQ(call.wrong_backward(), "");
  }
}

// The rest of a stick goes to the value of the query's own key.
TEST(BlockKeys, SticksThatKeepTheirRest) {
  for (const Index queries : {1, 50}) {
    Q8Call call(1, queries, 80, 2, 1, 32, 32, 7);
    call.use_blocks();
    call.args.normalisation = Normalisation::stick_breaking_own;
    call.args.mask.causal = true, call.args.mask.window_right = -1;
    call.args.scale = 0.05;
    EXPECT_EQ(wrong_of_blocks(call), "");
    EXPECT_EQ(call.wrong_backward(), "");
  }
}

// A row of a table times k, and q times k once more.
TEST(BlockKeys, TermsReadTheNumbersOfK) {
  const std::vector<std::int32_t> rows{0, 1, 2, 1};
  std::vector<double> table;
  for (Index n = 0; n < 2 * 3 * 32; ++n) table.push_back(std::sin(static_cast<double>(n)) / 8);
  ProductTerm by_row;
  by_row.key.content = true;
  by_row.lines[0] = {.row = rows.data(), .count = 4, .lo = -1};
  by_row.table = tensor(std::as_const(table).data(), {1, 2, 3, 32});
  ProductTerm again;
  again.query.content = again.key.content = true, again.scale = 0.1;
  for (const Term& term : {Term(by_row), Term(again)})
    for (const Index queries : {1, 3, 50}) {
      Q8Call call(1, queries, 90, 2, 2, 32, 32, 8);
      call.use_blocks();
      call.args.terms = std::span(&term, 1);
      EXPECT_EQ(wrong_of_blocks(call), "") << queries;
      EXPECT_EQ(call.wrong_backward(), "") << queries;
    }
}

// Far keys of a steep slope are left out by their lengths.
TEST(BlockKeys, SteepSlopes) {
  Q8Call call(1, 200, 400, 2, 1, 32, 32, 13);
  call.use_blocks();
  call.args.mask.causal = true;
  const std::vector<double> slopes{-0.5, 0.5, -0.9, 0.9};
  const Term linear[] = {LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})}};
  call.args.terms = linear;
  EXPECT_EQ(wrong_of_blocks(call), "");
}

// A NaN where nobody sees it changes nothing; where it is seen, the query is NaN.
TEST(BlockKeys, BlocksWithoutNumbers) {
  for (const Index queries : {1, 40}) {
    Q8Call call(1, queries, 100, 1, 1, 64, 64, 9);
    call.use_blocks();
    std::vector<std::uint8_t> visible(100, 1);
    visible[7] = 0;
    call.args.mask.key_visible = tensor(std::as_const(visible).data(), {1, 100});
    call.spoil(1, 7), call.spoil(2, 7);
    EXPECT_EQ(wrong_of_blocks(call), "");
    EXPECT_EQ(call.wrong_backward(), "");
    visible[7] = 1;
    for (const double x : of_attend(call.args).out) EXPECT_TRUE(std::isnan(x));
  }
}

TEST(BlockKeys, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Index queries : {1, 100}) {
    Q8Call call(2, queries, queries == 1 ? 5000 : 300, 4, 2, 32, 32, 10);
    call.use_blocks();
    expect_same_bits(call.args);
  }
}

std::string says_of_blocks(const std::function<void(Q8Call&, AttentionGradients&)>& change) {
  Q8Call call(1, 3, 5, 2, 1, 64, 32, 11);
  call.use_blocks();
  AttentionGradients g;
  change(call, g);
  std::vector<float> out(3 * 2 * 32, 7);
  const AttentionResult r{heads(out.data(), 3, 2, 32), {}};
  const std::string text = test::refusal([&] {
    if (g.k.data == nullptr && g.v.data == nullptr)
      attend(call.args, r);
    else
      attend_backward(call.args, r, r, g);
  });
  for (const float x : out) EXPECT_EQ(x, 7);
  return text;
}

TEST(BlockKeys, Refusals) {
  const auto call_says = [](const std::function<void(AttentionArgs&)>& change) {
    return says_of_blocks([&](Q8Call& c, AttentionGradients&) { change(c.args); });
  };
  EXPECT_THAT(
      call_says([](AttentionArgs& a) { a.k.dim = 67; }),
      HasSubstr("[attention] k in q8_0 blocks must have head size / 32 * 34 bytes, got 67"));
  EXPECT_THAT(call_says([](AttentionArgs& a) { a.k.dim = 34; }),
              HasSubstr("k must have the head size of q, 64, got 32"));
  EXPECT_THAT(call_says([](AttentionArgs& a) { a.q.dim = 60; }),
              HasSubstr("q must have a head size that is a multiple of 32 where k has q8_0 blocks, "
                        "got 60"));
  EXPECT_THAT(call_says([](AttentionArgs& a) { a.v.dim = 33; }),
              HasSubstr("v in q8_0 blocks must have head size / 32 * 34 bytes, got 33"));
  EXPECT_THAT(
      call_says([](AttentionArgs& a) { a.v.dim_stride = 2; }),
      HasSubstr("v in q8_0 blocks must have the bytes of a head side by side, stride, got 2"));
  EXPECT_THAT(call_says([](AttentionArgs& a) { a.q.dtype = DType::u8; }),
              HasSubstr("q must be f64, f32, f16 or bf16, got \"u8\""));
  std::vector<float> d(5 * 64);
  EXPECT_THAT(
      says_of_blocks([&](Q8Call&, AttentionGradients& g) { g.k = heads(d.data(), 5, 1, 64); }),
      HasSubstr("gradient of k must not be given: q8_0 blocks have no gradient"));
  EXPECT_THAT(
      says_of_blocks([&](Q8Call&, AttentionGradients& g) { g.v = heads(d.data(), 5, 1, 32); }),
      HasSubstr("gradient of v must not be given: q8_0 blocks have no gradient"));
}

TEST(BlockKeys, SchemesThatReadKeysWantNumbers) {
  Q8Call call(1, 5, 5, 2, 2, 32, 32, 12);
  call.use_blocks();
  std::vector<float> out(5 * 2 * 32);
  const AttentionResult r{heads(out.data(), 5, 2, 32), {}};
  call.args.scale.reset();
  const AttentionPlan alibi("alibi", {.heads = 2, .head_dim = 32});
  const LoweredAttention lowered = alibi.lower({}, distance_ranges(call.query_at, call.key_at));
  lowered.forward(call.args, {}, r);
  AttentionArgs plain = call.plain();
  const std::vector<float> got = out;
  std::vector<double> want(out.size());
  plain.scale.reset();
  lowered.forward(plain, {}, {heads(want.data(), 5, 2, 32), {}});
  for (std::size_t n = 0; n < got.size(); ++n)
    EXPECT_NEAR(static_cast<double>(got[n]), want[n], kFloatError);
  const std::vector<double> table(8 * 32, 0.1);
  const AttentionPlan cope("cope gates=values positions=8", {.heads = 2, .head_dim = 32});
  const NamedArray parameters[] = {{"pos_emb", tensor(table.data(), {1, 32, 8})}};
  EXPECT_THAT(test::refusal([&] { cope.lower(parameters).forward(call.args, {}, r); }),
              HasSubstr("v must not be in q8_0 blocks: cope reads it"));
  EXPECT_EQ(out, got);
}

}  // namespace
}  // namespace posenc
