// SPDX-License-Identifier: Apache-2.0
// Outputs that overlap what a call reads, each other or themselves are refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/attention/attend.h"
#include "posenc/attention/path.h"
#include "posenc/attention/selective.h"
#include "posenc/positions/sequence.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;
constexpr const char* kAccepted = "accepted";

// Two heads of four channels, three tokens; everything in one array, so that views can be moved.
struct OverlapCall {
  static constexpr Index kTokens = 3, kHeads = 2, kDim = 4, kSize = kTokens * kHeads * kDim;
  std::vector<double> memory = std::vector<double>(20 * kSize, 0.5);
  std::vector<std::int32_t> row = {0, 1};
  std::vector<Index> place = std::vector<Index>(64);
  Positions where;
  Term term;
  AttentionArgs a;
  AttentionResult r;
  TermGradient term_gradient;
  AttentionGradients g;
  ConstAttentionResult d;

  Heads part(Index n, Index beside = 0) {
    return heads(memory.data() + n * kSize + beside, kTokens, kHeads, kDim);
  }
  TensorView pairs(Index n) {
    return tensor(memory.data() + n * kSize, {1, kHeads, kTokens, kTokens});
  }
  OverlapCall() {
    for (Index t = 0; t < kTokens; ++t) place[static_cast<std::size_t>(t)] = t;
    where = positions(std::span<const Index>(place.data(), kTokens));
    a.q = part(0), a.k = part(1), a.v = part(2), a.scale = 0.5;
    a.query_positions = a.key_positions = where;
    ProductTerm numbers;
    numbers.lines[0] = {row.data(), 2, 0};
    numbers.table = tensor(memory.data() + 3 * kSize, {1, kHeads, 2, 1});
    term = numbers;
    a.terms = std::span(&term, 1);
    r.out = part(4);
    r.log_sum_exp = tensor(memory.data() + 5 * kSize, {1, kHeads, kTokens});
    g.q = part(6), g.k = part(7), g.v = part(8);
    term_gradient.table = tensor(memory.data() + 9 * kSize, {1, kHeads, 2, 1});
    g.terms = std::span(&term_gradient, 1);
    d = {part(10), tensor(memory.data() + 11 * kSize, {1, kHeads, kTokens})};
  }
  OverlapCall(const OverlapCall&) = delete;
};
template <class F>
std::string forward_says(const F& change) {
  OverlapCall c;
  change(c);
  return test::refusal([&] { attend(c.a, c.r); });
}
template <class F>
std::string backward_says(const F& change) {
  OverlapCall c;
  change(c);
  return test::refusal([&] { attend_backward(c.a, c.r, c.d, c.g); });
}

TEST(AttentionOverlap, OfTheOutputWithWhatIsRead) {
  EXPECT_EQ(forward_says([](OverlapCall&) {}), kAccepted);
  EXPECT_EQ(forward_says([](OverlapCall& c) { c.r.out = c.part(0); }),
            "[attention] out must not overlap q");
  EXPECT_EQ(forward_says([](OverlapCall& c) { c.r.out = c.part(1, 5); }),
            "[attention] out must not overlap k");
  EXPECT_EQ(forward_says([](OverlapCall& c) { c.r.out = c.part(1, 23); }),
            "[attention] out must not overlap k");
  EXPECT_EQ(forward_says([](OverlapCall& c) { c.a.v = c.part(4, -1); }),
            "[attention] out must not overlap v");
  EXPECT_EQ(forward_says([](OverlapCall& c) {
              std::get<ProductTerm>(c.term).table.data = c.part(4, 2).data;
            }),
            "[attention] out must not overlap the table of a term");
  EXPECT_EQ(forward_says([](OverlapCall& c) {
              c.r.log_sum_exp.data = const_cast<double*>(c.memory.data()) + 23;
            }),
            "[attention] log_sum_exp must not overlap q");
  EXPECT_EQ(forward_says([](OverlapCall& c) { c.r.log_sum_exp.data = c.place.data(); }),
            "[attention] log_sum_exp must not overlap query_positions");
  EXPECT_EQ(forward_says([](OverlapCall& c) {
              c.a.mask.bias = tensor(std::as_const(c.memory).data() + 4 * c.kSize, {3, 3});
            }),
            "[attention] out must not overlap bias");
  EXPECT_EQ(forward_says([](OverlapCall& c) {
              c.a.sink = tensor(std::as_const(c.memory).data() + 5 * c.kSize, {2});
            }),
            "[attention] log_sum_exp must not overlap sink");
}

// Views that lie between each other's elements share nothing.
TEST(AttentionOverlap, NotOfViewsThatInterlock) {
  const auto woven = [](OverlapCall& c, Index first) {
    Heads h = c.part(12);
    h.data = c.memory.data() + 12 * c.kSize + first;
    h.token_stride *= 2, h.head_stride *= 2, h.dim_stride = 2;
    return h;
  };
  EXPECT_EQ(forward_says([&](OverlapCall& c) { c.a.q = woven(c, 0), c.r.out = woven(c, 1); }),
            kAccepted);
  EXPECT_EQ(forward_says([&](OverlapCall& c) { c.a.q = woven(c, 0), c.r.out = woven(c, 2); }),
            "[attention] out must not overlap q");
}

TEST(AttentionOverlap, OfOutputsWithEachOtherAndThemselves) {
  EXPECT_EQ(forward_says([](OverlapCall& c) { c.r.log_sum_exp.data = c.part(4, 3).data; }),
            "[attention] log_sum_exp must not overlap out");
  EXPECT_THAT(forward_says([](OverlapCall& c) { c.r.out.head_stride = 3; }),
              HasSubstr("[attention] elements of out must not share memory"));
  EXPECT_THAT(forward_says([](OverlapCall& c) { c.r.log_sum_exp.stride[1] = 0; }),
              HasSubstr("[attention] elements of log_sum_exp must not share memory"));
}

TEST(AttentionOverlap, OfGradients) {
  EXPECT_EQ(backward_says([](OverlapCall&) {}), kAccepted);
  EXPECT_EQ(backward_says([](OverlapCall& c) { c.g.q = c.part(0); }),
            "[attention] gradient of q must not overlap q");
  EXPECT_EQ(backward_says([](OverlapCall& c) { c.g.k = c.part(2, 1); }),
            "[attention] gradient of k must not overlap v");
  EXPECT_EQ(backward_says([](OverlapCall& c) { c.term_gradient.table.data = c.memory.data(); }),
            "[attention] gradient of the table of a term must not overlap q");
  EXPECT_EQ(backward_says([](OverlapCall& c) { c.g.v = c.part(10); }),
            "[attention] gradient of v must not overlap the gradient of out");
  EXPECT_EQ(backward_says([](OverlapCall& c) { c.g.v = c.part(11); }),
            "[attention] gradient of v must not overlap the gradient of log_sum_exp");
  EXPECT_EQ(backward_says([](OverlapCall& c) { c.g.k = c.part(6, 1); }),
            "[attention] gradient of q and gradient of k must be the same view or not overlap at "
            "all");
  EXPECT_THAT(backward_says([](OverlapCall& c) { c.g.q.token_stride = 0; }),
              HasSubstr("elements of gradient of q must not share memory"));
}

// Terms that share a table share its gradient: both are added.
TEST(AttentionOverlap, NotOfGradientsOfOneTable) {
  OverlapCall one, two;
  attend_backward(one.a, one.r, one.d, one.g);
  const TermGradient gradients[] = {two.term_gradient, two.term_gradient};
  std::get<ProductTerm>(two.term).scale = 0.5;
  const Term halves[] = {two.term, two.term};
  two.a.terms = halves;
  two.g.terms = gradients;
  attend_backward(two.a, two.r, two.d, two.g);
  const std::size_t at = 9 * OverlapCall::kSize;
  for (std::size_t n = at; n < at + 4; ++n) EXPECT_NEAR(two.memory[n], one.memory[n], 1e-15);
}

TEST(AttentionOverlap, OfScores) {
  OverlapCall c;
  AttentionScores s;
  s.scores = c.pairs(12), s.content = c.pairs(14);
  EXPECT_EQ(test::refusal([&] { attend_scores(c.a, s); }), kAccepted);
  s.content.data = c.memory.data() + 12 * c.kSize + 17;
  EXPECT_EQ(test::refusal([&] { attend_scores(c.a, s); }),
            "[attention] scores must not overlap content");
  s.content.data = c.memory.data() + c.kSize;
  EXPECT_EQ(test::refusal([&] { attend_scores(c.a, s); }),
            "[attention] content must not overlap k");
}

TEST(AttentionOverlap, OfMerge) {
  OverlapCall c;
  attend(c.a, c.r);
  const ConstAttentionResult parts[] = {c.r, c.r};
  AttentionResult whole{c.part(12), tensor(c.memory.data() + 13 * c.kSize, {1, 2, 3})};
  EXPECT_EQ(test::refusal([&] { merge(parts, whole); }), kAccepted);
  const std::vector<double> want(c.memory.begin() + 12 * c.kSize, c.memory.begin() + 14 * c.kSize);
  EXPECT_EQ(test::refusal([&] { merge(parts, c.r); }), kAccepted);  // a part itself
  EXPECT_TRUE(std::equal(want.begin(), want.begin() + c.kSize, c.memory.begin() + 4 * c.kSize));
  whole.out = c.part(4, 1);
  EXPECT_EQ(test::refusal([&] { merge(parts, whole); }),
            "[attention] a part and the whole must be the same view or not overlap at all");
  whole.out = c.part(5);
  EXPECT_EQ(test::refusal([&] { merge(parts, whole); }),
            "[attention] the whole must not overlap log_sum_exp of a part");
  whole.out = c.part(12);
  const AttentionResult d_parts[] = {{c.part(14), {}}, {c.part(15), {}}};
  const AttentionResult d_wrong[] = {{c.part(14), {}}, {c.part(12), {}}};
  const ConstAttentionResult d_whole(c.part(16), {});
  EXPECT_EQ(test::refusal([&] { merge_backward(parts, whole, d_whole, d_parts); }), kAccepted);
  EXPECT_EQ(test::refusal([&] { merge_backward(parts, whole, d_whole, d_wrong); }),
            "[attention] the gradient of a part must not overlap the whole");
}

TEST(AttentionOverlap, OfWhatIsNoSumOfTerms) {
  OverlapCall c;
  PathArgs p;
  p.q = c.part(0), p.k = c.part(1), p.v = c.part(2), p.w = c.part(3);
  p.beta = heads(std::as_const(c.memory).data() + 10 * c.kSize, 3, 2, 1);
  AttentionResult r{c.part(12), {}};
  EXPECT_EQ(test::refusal([&] { attend_path(p, r); }), kAccepted);
  r.out = c.part(3);
  EXPECT_EQ(test::refusal([&] { attend_path(p, r); }), "[path] out must not overlap w");
  PathGradients g{.q = c.part(13), .k = c.part(13, 2)};
  const ConstAttentionResult d(c.part(12), {});
  EXPECT_EQ(test::refusal([&] { attend_path_backward(p, d, g); }),
            "[path] the gradient of k must not overlap the gradient of q");
  g.k = c.part(12);
  EXPECT_EQ(test::refusal([&] { attend_path_backward(p, d, g); }),
            "[path] the gradient of k must not overlap the gradient of out");
  AttentionArgs plain = c.a;
  plain.terms = {};
  EXPECT_EQ(test::refusal([&] {
              attend_selective(plain, {c.part(1), {}});
            }),
            "[attention] out must not overlap k");
}

}  // namespace
}  // namespace posenc
