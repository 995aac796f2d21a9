// SPDX-License-Identifier: Apache-2.0
// Gradients of a part of the keys from the result over all of them: the parts add up to the gradients of the whole call,
// which the reference computes at once.
#include <gmock/gmock.h>

#include "attention/rows_call.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;

// Keys [first, last) of a call.
struct PartCall {
  PartCall(const AttentionArgs& whole, Index first, Index last) : a(whole) {
    const auto cut = [&](ConstHeads h) {
      h.data = static_cast<const std::byte*>(h.data) + first * h.token_stride * size_of(h.dtype);
      h.tokens = last - first;
      return h;
    };
    a.k = cut(a.k), a.v = cut(a.v);
    order.reserve(1);  // not null where there is no key
    for (Index j = first; j < last; ++j) order.push_back(j);
    for (Index i = 0; i < a.q.tokens; ++i) query_order.push_back(a.mask.query_offset + i);
    a.mask.key_order = tensor(std::as_const(order).data(), {1, last - first});
    a.mask.query_order = tensor(std::as_const(query_order).data(), {1, a.q.tokens});
    a.mask.query_offset = 0;
    at = arange(first, last - first);
    a.key_positions = at;
  }
  AttentionArgs a;
  std::vector<std::int64_t> order, query_order;
  OwnedPositions at;
};

// Output and gradients of the whole from parts that end at `ends`; the first has the sink.
CallResult by_parts(const AttentionArgs& all, const std::vector<Index>& ends) {
  std::deque<PartCall> calls;
  std::deque<ResultArrays> own;
  std::vector<ConstAttentionResult> read;
  Index first = 0;
  for (const Index end : ends) {
    AttentionArgs& a = calls.emplace_back(all, first, end).a;
    if (first != 0) a.sink = {};
    attend(a, own.emplace_back(a, a.q.dtype).r);
    read.push_back(own.back().r);
    first = end;
  }
  ResultArrays whole(all, DType::f64);
  merge(read, whole.r);
  const EngineUpstream up(all);
  GradientArrays sums(all);
  ConstAttentionResult result = whole.r;
  result.whole = true;
  first = 0;
  for (std::size_t n = 0; n < ends.size(); ++n) {
    AttentionGradients g = sums.g;
    const auto cut = [&](Heads h) {
      h.data = static_cast<double*>(h.data) + first * h.token_stride;
      h.tokens = ends[n] - first;
      return h;
    };
    g.k = cut(g.k), g.v = cut(g.v);
    if (first != 0) g.sink = {};
    attend_backward(calls[n].a, result, {up.d_out, up.d_lse}, g);
    first = ends[n];
  }
  return {widened(whole.r.out), whole.lse, std::move(sums.value), std::move(sums.name)};
}

struct PartsCall : RowsCall {
  explicit PartsCall(std::uint64_t seed) : RowsCall(1, 90, 200, 4, 24, seed) {
    share_keys();
    args.mask.causal = true;
    args.sink = tensor(std::as_const(sink).data(), {4});
    LinearTerm slopes;
    slopes.table = table(1, 4, 1, 2);
    add(slopes);
    ProductTerm buckets;
    buckets.lines[0] = line(Rows::buckets, 60);
    buckets.table = table(1, 4, 30, 1);
    add(buckets);
    add(value_rows(Rows::clipped, 1, 1));
  }
  std::vector<double> sink{0.5, -1, 2, 0};
};

TEST(PartBackward, PartsAddUpInDouble) {
  PartsCall call(1);
  const AttentionArgs plain = call.plain();
  // The last keys are seen by the last queries only, and one part has no key.
  const CallResult got = by_parts(plain, {70, 70, 150, 199, 200});
  EXPECT_EQ(differences(got, of_reference(plain), 1e-12, 1e-12), "");
}

TEST(PartBackward, PartsAddUpInFloat) {
  PartsCall call(2);
  PartCall part(call.args, 0, 100);
  EXPECT_EQ(explain_plan(part.a).backward_engine, "fast");
  EXPECT_EQ(wrong_gradients(by_parts(call.args, {100, 170, 200}), of_reference(call.plain()),
                            DType::f32, gradient_tolerance(DType::f32)),
            "");
}

// Keys with an infinity that some query sees go to the exact engine, which reads the whole's result too.
TEST(PartBackward, WhatLeavesTheFastWay) {
  PartsCall call(3);
  for (std::size_t n = 0; n < call.narrow[0].size(); ++n)
    call.wide[0][n] = static_cast<double>(call.narrow[0][n] *= 3e18f);
  const CallResult got = by_parts(call.args, {100, 200}), want = of_reference(call.plain());
  EXPECT_LT(difference(got.out, want.out), 1e-5);
  EXPECT_LT(difference(got.gradients[2], want.gradients[2]), 1e-5) << got.names[2];
}

std::string answer_of_part(const AttentionArgs& a, bool narrow = false, bool with_sums = true) {
  const EngineUpstream up(a);
  ResultArrays to(a, a.q.dtype);
  GradientArrays g(a);
  attend(a, to.r);
  ConstAttentionResult result = to.r;
  result.whole = true;
  if (narrow) result.log_sum_exp.dtype = DType::f32;
  if (!with_sums) result.log_sum_exp = {};
  try {
    attend_backward(a, result, {up.d_out, up.d_lse}, g.g);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

TEST(PartBackward, RefusesWhatDoesNotMerge) {
  PartsCall call(4);
  EXPECT_EQ(answer_of_part(call.args), "accepted");
  EXPECT_THAT(answer_of_part(call.args, true),
              HasSubstr("result.log_sum_exp must be f64 where the result is the whole's, got "
                        "\"f32\""));
  EXPECT_THAT(answer_of_part(call.args, false, false), HasSubstr("got \"none\""));
  AttentionArgs a = call.args;
  a.sink = {}, a.normalisation = Normalisation::stick_breaking;
  EXPECT_THAT(answer_of_part(a), HasSubstr("result.whole must be false: results of calls with "
                                           "stick_breaking do not merge"));
  a = call.args;
  const std::vector<double> mix(16, 0.25);
  a.mix_after = tensor(mix.data(), {4, 4});
  EXPECT_THAT(answer_of_part(a), HasSubstr("with mix_after do not merge"));
  a = call.args;
  const Term gates = GatesTerm{.query = kContent, .key = kContent};
  a.terms = std::span(&gates, 1);
  EXPECT_THAT(answer_of_part(a), HasSubstr("with gates do not merge"));
}

}  // namespace
}  // namespace posenc
