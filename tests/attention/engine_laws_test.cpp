// SPDX-License-Identifier: Apache-2.0
// What holds for the engine whatever the numbers are.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <thread>

#include "attention/engine_compare.h"
#include "attention/gradient_world.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using Vector = std::vector<double>;

Vector random_values(Index n, std::uint64_t seed) {
  return test::Random(seed).normals(static_cast<std::size_t>(n));
}

// One head group of q, k and v with a T5-like term, `tokens` of everything.
struct LawCall {
  LawCall(Index queries, Index keys, Index heads_of_q = 2, Index heads_of_k = 1)
      : tq(queries),
        tk(keys),
        h(heads_of_q),
        g(heads_of_k),
        q(random_values(tq * h * d, 1)),
        k(random_values(tk * g * d, 2)),
        v(random_values(tk * g * d, 3)),
        table(random_values(h * 5, 4)),
        query_position(arange(tk - tq, tq)),
        key_position(arange(0, tk)) {
    ProductTerm numbers;
    numbers.lines[0] = {row, 5, -1};
    numbers.table = tensor(std::as_const(table).data(), {1, h, 5, 1});
    term = numbers;
    a.q = heads(std::as_const(q).data(), tq, h, d);
    a.k = heads(std::as_const(k).data(), tk, g, d);
    a.v = heads(std::as_const(v).data(), tk, g, d);
    a.query_positions = query_position;
    a.key_positions = key_position;
    a.scale = 0.5;
    a.terms = std::span(&term, 1);
    a.mask.causal = true;
    a.mask.query_offset = tk - tq;
  }
  LawCall(const LawCall&) = delete;
  static constexpr Index d = 4;
  Index tq, tk, h, g;
  Vector q, k, v, table;
  const std::int32_t row[5] = {4, 0, 1, 2, 3};
  Term term;
  OwnedPositions query_position, key_position;
  AttentionArgs a;
};

void run_threads(void*, Index n, void (*task)(void*, Index), void* arg) {
  std::vector<std::thread> all;
  for (Index i = n; i-- > 0;) all.emplace_back(task, arg, i);
  for (std::thread& t : all) t.join();
}

TEST(AttentionEngineLaws, AnyNumberOfThreadsGivesTheSameBits) {
  LawCall call(65, 65, 8, 4);
  Vector bias = random_values(65 * 65, 9);
  for (const bool with_bias : {false, true}) {
    if (with_bias) call.a.mask.bias = tensor(std::as_const(bias).data(), {65, 65});
    const CallResult one = of_engine(call.a, inline_executor());
    for (const Index n : {2, 5}) {
      Executor e;
      e.concurrency = n, e.run = run_threads;
      const CallResult many = of_engine(call.a, e);
      EXPECT_EQ(one.out, many.out);
      EXPECT_EQ(one.log_sum_exp, many.log_sum_exp);
      EXPECT_EQ(one.gradients, many.gradients);
    }
  }
}

// sum_j dS_ij = 0: what is the same for all keys of a row has no gradient.
TEST(AttentionEngineLaws, WhatIsConstantInARowHasNoGradient) {
  LawCall call(7, 9);
  Vector x = random_values(7 * 2, 5);
  DecayTerm row;
  row.query.given = heads(std::as_const(x).data(), 7, 2, 1);
  const Term terms[] = {row};
  call.a.terms = terms;
  const EngineUpstream up(call.a);
  ResultArrays to(call.a, DType::f64);
  Vector d_x(14);
  const TermGradient d{.query = heads(d_x.data(), 7, 2, 1)};
  AttentionGradients g;
  g.terms = std::span(&d, 1);
  attend_backward(call.a, to.r, {up.d_out, {}}, g);
  for (const double value : d_x) EXPECT_NEAR(value, 0, 1e-15);
}

TEST(AttentionEngineLaws, DecodeRowsAreRowsOfThePrefill) {
  LawCall whole(33, 33), last(1, 33);
  const CallResult all = of_engine(whole.a);
  last.q.assign(whole.q.end() - 8, whole.q.end());
  last.a.q = heads(std::as_const(last.q).data(), 1, 2, 4);
  EXPECT_EQ(of_engine(last.a).out, Vector(all.out.end() - 8, all.out.end()));
}

// Two sequences in one row; a kernel over the keys does not see the other one.
TEST(AttentionEngineLaws, PackingIsSeparateRuns) {
  LawCall packed(9, 12);
  Vector in = random_values(2 * 2 * 3, 11), in_bias = random_values(2, 12),
         out = random_values(2 * 2 * 3, 13), out_bias = random_values(2, 14);
  ScoreMlpTerm net;
  net.mlp = {tensor(std::as_const(in).data(), {2, 2, 3}),
             tensor(std::as_const(in_bias).data(), {2}),
             tensor(std::as_const(out).data(), {2, 2, 3}),
             tensor(std::as_const(out_bias).data(), {2}), 0.1};
  const Term terms[] = {packed.term, net};
  const Index query_cu[] = {0, 4, 9}, key_cu[] = {0, 5, 12};
  const Index query_position[] = {1, 2, 3, 4, 2, 3, 4, 5, 6};
  const Index key_position[] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6};
  for (const Normalisation n : {Normalisation::softmax, Normalisation::stick_breaking_own}) {
    AttentionArgs& a = packed.a;
    a.terms = terms;
    a.normalisation = n;
    a.query_positions = positions(std::span(query_position));
    a.key_positions = positions(std::span(key_position));
    a.mask.query_offset = 0;
    a.mask.query_cu_seqlens = tensor(query_cu, {3});
    a.mask.key_cu_seqlens = tensor(key_cu, {3});
    const CallResult got = of_engine(a);
    for (int s = 0; s < 2; ++s) {
      const Index q0 = query_cu[s], nq = query_cu[s + 1] - q0, k0 = key_cu[s],
                  nk = key_cu[s + 1] - k0;
      LawCall one(nq, nk);
      one.a.terms = terms;
      one.a.normalisation = n;
      one.a.q = heads(packed.q.data() + q0 * 8, nq, 2, 4);
      one.a.k = heads(packed.k.data() + k0 * 4, nk, 1, 4);
      one.a.v = heads(packed.v.data() + k0 * 4, nk, 1, 4);
      const CallResult want = of_engine(one.a);
      EXPECT_LE(
          difference(want.out, Vector(got.out.begin() + q0 * 8, got.out.begin() + (q0 + nq) * 8)),
          1e-14);
    }
  }
}

// Pages hold the keys in another place; rows of pages serve the sequences of a packed batch.
TEST(AttentionEngineLaws, PagesAreContiguousKeys) {
  LawCall plain(6, 8);
  const CallResult want = of_engine(plain.a);
  Vector k(6 * 2 * 4, std::nan("")), v = k;
  const Index table[] = {4, 0, 3, 1, 5, 5}, length[] = {8};  // the last two pages are not read
  for (Index j = 0; j < 8; ++j)
    for (Index c = 0; c < 4; ++c) {
      const auto to = static_cast<std::size_t>((table[j / 2] * 2 + j % 2) * 4 + c);
      const auto from = static_cast<std::size_t>(j * 4 + c);
      k[to] = plain.k[from], v[to] = plain.v[from];
    }
  AttentionArgs a = plain.a;
  a.k = heads(tensor(std::as_const(k).data(), {6, 2, 1, 4}), HeadsLayout::bthd);
  a.v = heads(tensor(std::as_const(v).data(), {6, 2, 1, 4}), HeadsLayout::bthd);
  a.block_table = tensor(table, {1, 6});
  a.mask.key_length = tensor(length, {1});
  const OwnedPositions keys = arange(0, 12);
  a.key_positions = keys;
  const CallResult got = of_engine(a);
  EXPECT_EQ(got.out, want.out);
  EXPECT_EQ(got.log_sum_exp, want.log_sum_exp);
  const Index cu[] = {0, 6};
  a.mask.query_cu_seqlens = tensor(cu, {2});
  a.mask.query_offset = 0;
  const CallResult packed = of_engine(a);
  EXPECT_EQ(packed.out, want.out);
  EXPECT_EQ(packed.gradients, got.gradients);
}

// Keys [0, 5) and [5, 9) by themselves, then together.
TEST(AttentionEngineLaws, HalvesMergeToTheWholeWithGradients) {
  for (const Normalisation n : {Normalisation::softmax, Normalisation::stick_breaking}) {
    LawCall whole(6, 9);
    whole.a.normalisation = n;
    const CallResult want = of_engine(whole.a);
    const EngineUpstream up(whole.a);
    AttentionArgs part[2] = {whole.a, whole.a};  // the last keys first
    const OwnedPositions early = arange(0, 5), late = arange(5, 4);
    const Index from[2] = {5, 0};
    std::vector<std::unique_ptr<ResultArrays>> to, d_to;
    std::vector<ConstAttentionResult> parts;
    std::vector<AttentionResult> d_parts;
    for (int s = 0; s < 2; ++s) {
      AttentionArgs& a = part[s];
      a.k = heads(std::as_const(whole.k).data() + from[s] * 4, s == 0 ? 4 : 5, 1, 4);
      a.v = heads(std::as_const(whole.v).data() + from[s] * 4, s == 0 ? 4 : 5, 1, 4);
      a.key_positions = s == 0 ? Positions(late) : Positions(early);
      a.mask.query_offset = 3 - from[s];
      for (auto* list : {&to, &d_to})
        list->push_back(std::make_unique<ResultArrays>(whole.a, DType::f64));
      attend(a, to.back()->r);
      parts.push_back(to.back()->r);
      d_parts.push_back(d_to.back()->r);
    }
    ResultArrays all(whole.a, DType::f64);
    merge(parts, all.r, n);
    EXPECT_LE(difference(widened(all.r.out), want.out), 1e-14);
    EXPECT_LE(difference(all.lse, want.log_sum_exp), 1e-14);
    merge_backward(parts, all.r, {up.d_out, up.d_lse}, d_parts, n);
    Vector d_q(6 * 8, 0.5);
    for (int s = 0; s < 2; ++s) {
      AttentionGradients g;
      g.q = heads(d_q.data(), 6, 2, 4);
      attend_backward(part[s], to[static_cast<std::size_t>(s)]->r,
                      d_parts[static_cast<std::size_t>(s)], g);
    }
    const auto at = std::find(want.names.begin(), want.names.end(), "q") - want.names.begin();
    EXPECT_LE(difference(d_q, want.gradients[static_cast<std::size_t>(at)]), 1e-13);
  }
}

// Key 8 is beyond what anybody sees; key 4 is seen by the queries from 4 on.
TEST(AttentionEngineLaws, NaNsReachOnlyRowsThatSeeThem) {
  LawCall call(8, 9);
  call.a.mask.query_offset = 0;
  const CallResult want = of_engine(call.a);
  std::fill(call.k.end() - 4, call.k.end(), std::nan(""));
  std::fill(call.v.end() - 4, call.v.end(), std::nan(""));
  const CallResult unseen = of_engine(call.a);
  EXPECT_EQ(unseen.out, want.out);
  EXPECT_EQ(unseen.gradients, want.gradients);
  call.k[16] = std::nan("");
  const CallResult seen = of_engine(call.a);
  for (std::size_t i = 0; i < seen.out.size(); ++i) EXPECT_EQ(std::isnan(seen.out[i]), i >= 4 * 8);
}

// Head 1 does not see key 2, which is NaN: its row of the mix has a gradient all the same.
TEST(AttentionEngineLaws, MixedHeadsReadWhatTheySee) {
  LawCall call(3, 3);
  call.k[8] = std::nan("");
  const std::uint8_t seen[2 * 9] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0};
  const Vector mix = {0.5, 0.25, -0.25, 0.75};
  call.a.mask.visible = tensor(seen, {1, 2, 3, 3});
  call.a.mask.causal = false;
  call.a.mix_before = tensor(mix.data(), {2, 2});
  const CallResult r = of_engine(call.a);
  const auto at = std::find(r.names.begin(), r.names.end(), "mix_before") - r.names.begin();
  const Vector& d = r.gradients[static_cast<std::size_t>(at)];
  EXPECT_TRUE(std::isnan(d[0]) && std::isnan(d[1]));
  EXPECT_FALSE(std::isnan(d[2]) || std::isnan(d[3]));
}

TEST(AttentionEngineLaws, RowsWithoutKeys) {
  LawCall call(3, 4);
  const std::uint8_t none[12] = {};
  call.a.mask.visible = tensor(none, {3, 4});
  const CallResult r = of_engine(call.a);
  EXPECT_EQ(r.out, Vector(24, 0.0));
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(r.log_sum_exp[i], -HUGE_VAL);
  for (const Vector& g : r.gradients) EXPECT_EQ(g, Vector(g.size(), 0.5));
  const Vector sink = {0.25, -3};
  call.a.sink = tensor(sink.data(), {2});
  const CallResult with = of_engine(call.a);
  EXPECT_EQ(with.out, r.out);
  EXPECT_EQ(Vector(with.log_sum_exp.begin(), with.log_sum_exp.begin() + 6),
            (Vector{0.25, 0.25, 0.25, -3, -3, -3}));
}

// Positions that doubles do not tell apart, distances beyond 32 bits.
TEST(AttentionEngineLaws, DistancesAreTakenIn64Bits) {
  for (const Index base : {Index{0}, Index{1} << 40, (Index{1} << 60) + 1}) {
    LawCall near(5, 5), far(5, 5);
    far.query_position = arange(base, 5);
    far.key_position = arange(base, 5);
    far.a.query_positions = far.query_position;
    far.a.key_positions = far.key_position;
    EXPECT_EQ(of_engine(far.a).out, of_engine(near.a).out);
  }
  LawCall beyond(5, 5), clipped(5, 5);
  beyond.query_position = arange(Index{1} << 33, 5);
  clipped.query_position = arange(100, 5);
  beyond.a.query_positions = beyond.query_position;
  clipped.a.query_positions = clipped.query_position;
  EXPECT_EQ(of_engine(beyond.a).out, of_engine(clipped.a).out);
}

TEST(AttentionEngineLaws, LogSigmoidGatesHaveNoTable) {
  LawCall call(3, 3);
  GatesTerm t;
  t.gate = Gate::log_sigmoid;
  t.query = t.key = kContent;
  const Vector table(2 * 3 * 4);
  t.table = tensor(table.data(), {1, 2, 3, 4});
  const Term terms[] = {t};
  call.a.terms = terms;
  EXPECT_EQ(test::refusal([&] { of_engine(call.a); }),
            "[attention] term gates with a table must have the gate sigmoid, got \"log_sigmoid\"");
}

// A batch of nothing has positions of no row.
TEST(AttentionEngineLaws, NoBatch) {
  LawCall call(2, 2);
  call.a.q.batch = call.a.k.batch = call.a.v.batch = 0;
  Heads out;
  out.heads = call.h, out.tokens = 2, out.dim = LawCall::d, out.batch = 0, out.dtype = DType::f64;
  call.a.query_positions.batch = call.a.key_positions.batch = 0;
  const std::string says = test::refusal([&] { attend(call.a, {out, {}}); });
  EXPECT_EQ(says, "accepted");
}

TEST(AttentionEngineLaws, ASinkOfNothingIsNoSink) {
  LawCall call(2, 2);
  const double sink[] = {-HUGE_VAL, -HUGE_VAL};
  const std::int64_t none[] = {0};
  call.a.sink = tensor(sink, {2});
  call.a.mask.key_length = tensor(none, {1});
  Vector out(2 * 2 * LawCall::d, 7), lse(4, 7);
  attend(call.a, {heads(out.data(), 2, 2, LawCall::d), tensor(lse.data(), {1, 2, 2})});
  EXPECT_EQ(out, Vector(out.size(), 0.0));
  EXPECT_EQ(lse, Vector(4, -HUGE_VAL));
}

// What is left is a product of all parts, also of one that counts no more.
TEST(AttentionEngineLaws, TheRemainderOfEveryPartHasItsGradient) {
  Vector out(2, 1.0), lse{-800, -1}, whole(1), sum(1), d_out(1, 0.0), d_sum(1, 1.0), d(2), d_l(2);
  const auto one = [](double* x) { return heads(x, 1, 1, 1); };
  const auto row = [](double* x) { return tensor(x, {1, 1, 1}); };
  const ConstAttentionResult parts[] = {AttentionResult{one(&out[0]), row(&lse[0])},
                                        AttentionResult{one(&out[1]), row(&lse[1])}};
  const AttentionResult all{one(whole.data()), row(sum.data())};
  merge(parts, all, Normalisation::stick_breaking);
  EXPECT_EQ(sum[0], -801);
  const AttentionResult up{one(d_out.data()), row(d_sum.data())};
  const AttentionResult to[] = {{one(&d[0]), row(&d_l[0])}, {one(&d[1]), row(&d_l[1])}};
  merge_backward(parts, all, up, to, Normalisation::stick_breaking);
  EXPECT_EQ(d_l, (Vector{1, 1}));
}

TEST(AttentionEngineLaws, RegionsOfPositionsBeyondDoubles) {
  LawCall call(1, 1, 1, 1);
  call.a.terms = {};
  const Vector far_q(LawCall::d, 1.0), far_k(LawCall::d, 5.0);
  call.query_position = arange((Index{1} << 60) + 1, 1);
  call.key_position = arange(Index{1} << 60, 1);
  call.a.query_positions = call.query_position, call.a.key_positions = call.key_position;
  ScoreRegion region;
  region.qk = {heads(far_q.data(), 1, 1, LawCall::d), heads(far_k.data(), 1, 1, LawCall::d)};
  region.low = 1;
  call.a.regions = std::span(&region, 1);
  Vector out(LawCall::d), lse(1);
  attend(call.a, {heads(out.data(), 1, 1, LawCall::d), tensor(lse.data(), {1, 1, 1})});
  EXPECT_EQ(lse[0], 10);
}

}  // namespace
}  // namespace posenc
