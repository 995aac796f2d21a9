// SPDX-License-Identifier: Apache-2.0
// Gradients of the fast engine against the plain reference in double: calls and schemes at random, lengths around its
// tiles, every instruction set; what float does not hold goes to the exact engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "attention/float_call.h"
#include "attention/long_call.h"
#include "attention/random_call.h"
#include "attention/scheme_run.h"
#include "posenc/core/isa.h"
#include "posenc/rotary/rope.h"

namespace posenc {
namespace {

bool is_fast_backward(const AttentionArgs& a) {
  return explain_plan(a).backward_engine == "fast";
}

std::string wrong_gradients_of(const RandomCall& call) {
  const DType type = call.args.q.dtype;
  const CallResult want = of_reference(call.plain, call.args);
  const CallResult got = gradients_of_fast(call.args, default_executor(), true,
                                           type == DType::f32 ? nullptr : &want.out);
  return wrong_gradients(got, want, type, gradient_tolerance(DType::f32));
}

TEST(FastBackward, RandomCallsAreThoseOfTheReference) {
  int ran = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    const RandomCall call(seed);
    if (!is_fast_backward(call.args)) continue;
    ASSERT_EQ(wrong_gradients_of(call), "") << "seed " << seed;
    ++ran;
  }
  EXPECT_GT(ran, 400);
}

TEST(FastBackward, RandomCallsOfManyQueries) {
  int ran = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    constexpr Index kQueries[] = {9, 13, 16, 20}, kKeys[] = {4, 16, 18, 33, 64};
    const RandomCall call(
        seed, {.queries = kQueries[seed % 4], .keys = kKeys[seed / 4 % 5], .in_float = true});
    if (!is_fast_backward(call.args)) continue;
    ASSERT_EQ(wrong_gradients_of(call), "") << "seed " << seed;
    ++ran;
  }
  EXPECT_GT(ran, 600);
}

TEST(FastBackward, SchemesAreThoseOfTheReference) {
  std::set<std::string> ran;
  for (std::uint64_t seed = 0; seed < 20 * scheme_count(); ++seed) {
    const std::size_t which = seed % scheme_count();
    try {
      SchemeRun run(seed, which);
      run.exact = false;
      const CallResult got = run.of_plan(true);
      if (run.dtype() == DType::f64) continue;
      ASSERT_EQ(wrong_gradients(got, run.of_reference(true), run.dtype(),
                                gradient_tolerance(run.dtype())),
                "")
          << "seed " << seed << " " << scheme_name(which);
      ran.insert(std::string(scheme_name(which)));
    } catch (const std::invalid_argument&) {  // a call that the scheme has not
    }
  }
  EXPECT_GT(ran.size(), scheme_count() / 2);
}

TEST(FastBackward, LengthsAndHeadSizesAroundItsTiles) {
  constexpr Index kLengths[] = {1, 7, 12, 13, 17, 47, 49, 95, 97, 100, 128, 129, 193, 200};
  constexpr Index kDims[] = {1, 3, 8, 16, 20, 33, 40};
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths)
      for (const bool causal : {false, true}) {
        const Index keys = kLengths[(seed * 7 + 3) % std::size(kLengths)];
        const Index heads = queries * keys > 10000 ? 1 : 2;
        FloatCall call(1, queries, keys, heads, seed % 3 == 0 ? 1 : heads,
                       kDims[seed % std::size(kDims)], kDims[seed * 5 % std::size(kDims)], seed);
        ++seed;
        call.args.mask.causal = causal;
        if (causal && seed % 2 == 0)
          call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
        ASSERT_EQ(call.wrong_backward(), "")
            << isa_name(isa) << " " << queries << " queries, " << keys << " keys, head of "
            << call.D << ", " << call.V << " causal " << causal;
      }
  }
  reset_isa();
}

// Sums along diagonals, and along rows where positions do not count up by one.
TEST(FastBackward, LinesByDistance) {
  for (const bool apart : {false, true})
    for (const bool causal : {false, true})
      for (const double slope : {-0.1, -3.0}) {
        FloatCall call(1, 110, 160, 2, 1, 8, 5, 5);
        std::vector<std::int64_t> at;
        for (Index i = 0; i < 110; ++i) at.push_back(50 + (apart ? i * 7 % 110 : i));
        if (apart) call.args.query_positions = Positions{at.data(), DType::i64, 1, 110};
        call.args.mask.causal = causal;
        const std::vector<double> table{slope, -1.0, slope / 2, slope},
            small{0.3, -0.2, 0.1, 0.7, 0.2, 0.4};
        std::vector<std::int32_t> rows;
        for (std::int32_t delta = -300; delta <= 300; ++delta)
          rows.push_back(delta < -100 ? -1 : delta < 0 ? 0 : delta < 60 ? 1 : 2);
        ProductTerm line;
        line.lines[0] = {rows.data(), 601, -300};
        line.table = tensor(small.data(), {1, 2, 3, 1}), line.scale = 0.7;
        const Term terms[] = {LinearTerm{.table = tensor(table.data(), {1, 2, 1, 2})}, line};
        call.args.terms = terms;
        EXPECT_EQ(call.wrong_backward(), "") << apart << causal << slope;
      }
}

// One head whose keys are cut into slices, with every array that slices share.
TEST(FastBackward, SlicesOfTheKeysAddUp) {
  for (const Index heads : {1, 2}) {
    FloatCall call(1, 30, 2500, heads, 1, 4, 3, 12);
    test::Random r(3);
    const std::vector<double> table = r.normals(2),
                              sink = r.normals(static_cast<std::size_t>(heads)),
                              scale = r.normals(static_cast<std::size_t>(heads)),
                              factor = r.normals(30), query = r.normals(30), key = r.normals(2500),
                              bias = r.normals(static_cast<std::size_t>(30 * 2500));
    DecayTerm decay;
    decay.query.given = posenc::heads(tensor(query.data(), {1, 30, 1, 1}), HeadsLayout::bthd);
    decay.key.given = posenc::heads(tensor(key.data(), {1, 2500, 1, 1}), HeadsLayout::bthd);
    decay.scale = 0.3, decay.side = Side::past;
    const std::vector<double> slopes{-0.001, 0.002};
    const Term terms[] = {LinearTerm{.table = tensor(slopes.data(), {1, 1, 1, 2})}, decay};
    call.args.terms = terms;
    call.args.sink = tensor(sink.data(), {heads});
    call.args.head_scale = tensor(scale.data(), {1, heads});
    call.args.query_factor = tensor(factor.data(), {1, 30});
    EXPECT_EQ(call.wrong_backward(), "") << heads;
    call.args.mask.bias = tensor(bias.data(), {1, 1, 30, 2500});
    EXPECT_EQ(call.wrong_backward(), "") << heads;
    call.args.mask.bias = tensor(bias.data(), {30, 2500});
    EXPECT_EQ(call.wrong_backward(), "") << heads;
  }
}

// Six heads of a bias, each for two of twelve heads, which read four heads of keys: pieces share heads of the bias.
TEST(FastBackward, BiasHeadsThatPiecesShare) {
  FloatCall call(1, 40, 60, 12, 4, 8, 8, 6);
  test::Random r(2);
  const std::vector<double> bias = r.normals(6 * 40 * 60);
  call.args.mask.bias = tensor(bias.data(), {1, 6, 40, 60});
  EXPECT_EQ(call.wrong_backward(), "");
  const CallResult one = gradients_of_fast(call.args, inline_executor());
  for (int n = 0; n < 20; ++n) EXPECT_EQ(gradients_of_fast(call.args).gradients, one.gradients);
}

TEST(FastBackward, NothingToCompute) {
  for (const auto [batch, queries, keys] : {std::array<Index, 3>{0, 5, 5}, {1, 0, 5}, {1, 5, 0}}) {
    FloatCall call(batch, queries, keys, 2, 1, 8, 8, 6);
    EXPECT_EQ(call.wrong_backward(), "") << batch << queries << keys;
  }
}

// Rotation, norms with weights, and biases of q and k come before.
TEST(FastBackward, StagesBefore) {
  const RotarySpec rope = resolve(Rope{.head_dim = 16, .pairing = Pairing::half_split});
  test::Random r(8);
  const std::vector<double> weights = r.normals(32), one = r.normals(16), bias = r.normals(32);
  Stage rotate, rms, add, l2;
  rotate.kind = StageKind::rotate, rotate.rotary = &rope;
  rms.kind = StageKind::rms, rms.epsilon = 1e-5;
  rms.q = tensor(weights.data(), {2, 16}), rms.k = tensor(one.data(), {1, 16});
  add.kind = StageKind::add, add.q = tensor(bias.data(), {2, 16}),
  add.k = tensor(one.data(), {1, 16});
  l2.kind = StageKind::l2, l2.epsilon = 1e-6;
  const std::vector<std::vector<Stage>> chains{
      {rotate}, {rms, rotate}, {add, l2}, {l2, rms, add, rotate}};
  for (const auto& chain : chains)
    for (const bool causal : {false, true}) {
      FloatCall call(2, 60, 90, 2, 1, 16, 8, 4);
      call.args.prepare = chain;
      call.args.mask.causal = causal;
      EXPECT_EQ(call.wrong_backward(), "") << chain.size() << causal;
    }
}

// Sums of the forward pass that are missing, or in float, are found again where they are too coarse.
TEST(FastBackward, SumsThatAreMissingOrCoarse) {
  for (const double by : {0.0, 3e5, -3e5}) {
    FloatCall call(1, 40, 300, 2, 1, 16, 16, 9);
    const std::vector<double> number{by};
    ProductTerm all;
    all.table = tensor(number.data(), {1, 1, 1, 1});
    const Term terms[] = {all};
    call.args.terms = terms;
    const CallResult want = of_reference(call.plain());
    EXPECT_EQ(wrong_gradients(gradients_of_fast(call.args, default_executor(), false), want,
                              DType::f32, gradient_tolerance(DType::f32)),
              "")
        << by;
    const EngineUpstream up(call.args);
    ResultArrays to(call.args, DType::f32);
    std::vector<float> sums(80);
    to.r.log_sum_exp = tensor(sums.data(), {1, 2, 40});
    attend(call.args, to.r);
    GradientArrays g(call.args);
    attend_backward(call.args, to.r, {up.d_out, up.d_lse}, g.g);
    for (std::size_t n = 0; n < g.value.size(); ++n)
      EXPECT_LE(difference(g.value[n], want.gradients[n]), gradient_tolerance(DType::f32))
          << by << g.name[n];
  }
}

// All gradients are then those of the exact engine, bit by bit.
TEST(FastBackward, LeavesWhatFloatDoesNotHold) {
  const float kBad[] = {HUGE_VALF, std::nanf(""), 1e30f};
  for (const float bad : kBad)
    for (const std::size_t array : {0u, 1u, 2u}) {
      FloatCall call(1, 100, 100, 1, 1, 8, 8, 3);
      call.args.mask.causal = true;
      call.narrow[array][50 * 8 + 2] = bad;
      AttentionArgs exact = call.args;
      exact.exact = true;
      const CallResult got = gradients_of_fast(call.args), want = gradients_of_fast(exact);
      for (std::size_t n = 0; n < want.gradients.size(); ++n)
        EXPECT_LE(difference(got.gradients[n], want.gradients[n]), 0)
            << bad << array << got.names[n];
    }
}

// The bound that docs/attention.md states: 2^-20 (8 + A) of the sum of magnitudes.
TEST(FastBackward, ErrorsAreWithinTheStatedBound) {
  for (const double scale : {0.01, 0.3, 1.0, 3.0, 10.0})
    for (const Index dim : {4, 64}) {
      FloatCall call(1, 30, 200, 1, 1, dim, 8, 11);
      call.args.scale = scale / std::sqrt(static_cast<double>(dim));
      const CallResult got = gradients_of_fast(call.args), want = of_reference(call.plain());
      const GradientMagnitudes m =
          gradient_magnitudes(call, EngineUpstream(call.args), want.log_sum_exp, false);
      for (std::size_t n = 0; n < 3; ++n)
        for (std::size_t at = 0; at < m.of[n].size(); ++at)
          ASSERT_LE(std::fabs(got.gradients[n][at] - want.gradients[n][at]),
                    0x1p-20 * (8 + m.scores) * m.of[n][at])
              << got.names[n] << " " << scale << " " << dim;
    }
}

// What no query may see may hold anything, and gets no gradient.
TEST(FastBackward, HiddenKeysMayHoldAnything) {
  HiddenKeysCall call(192, 128);
  const CallResult clean = gradients_of_fast(call.args);
  call.fill_hidden_with_nan();
  const CallResult got = gradients_of_fast(call.args);
  for (std::size_t n = 0; n < got.gradients.size(); ++n)
    EXPECT_EQ(got.gradients[n], clean.gradients[n]) << got.names[n];
}

// The same of queries that see no key, between others in memory.
TEST(FastBackward, QueriesWithoutKeysMayHoldAnything) {
  for (const Index none : {1, 5, 70}) {
    FloatCall call(2, 20 + none, 20, 2, 1, 8, 8, 5);
    call.args.mask.causal = true;
    const CallResult clean = gradients_of_fast(call.args);
    for (Index b = 0; b < 2; ++b)
      std::fill_n(call.narrow[0].begin() + b * call.Tq * 16, none * 16, std::nanf(""));
    const CallResult got = gradients_of_fast(call.args);
    EXPECT_EQ(explain_plan(call.args).backward_engine, "fast");
    for (std::size_t n = 0; n < got.gradients.size(); ++n)
      EXPECT_EQ(got.gradients[n], clean.gradients[n]) << got.names[n] << " " << none;
  }
}

// Beside inputs, outputs and gradients: 64 MiB for 16,384 tokens, 8 heads of 64, with the gradient of a T5 table.
TEST(FastBackward, MemoryGrowsWithTheTokensOnly) {
  constexpr Index H = 8, rows = 32;
  const std::vector<double> table(H * rows);
  std::vector<double> d_table = table;
  std::vector<std::int32_t> line;
  for (Index delta = -128; delta <= 128; ++delta) line.push_back(static_cast<int>(delta + 128) / 9);
  ProductTerm t5;
  t5.lines[0] = {line.data(), static_cast<Index>(line.size()), -128};
  t5.table = tensor(table.data(), {1, H, rows, 1});
  const Term term = t5;
  TermGradient d_term;
  d_term.table = tensor(d_table.data(), {1, H, rows, 1});
  test::expect_memory_of_tokens_only(term, d_term);
}

TEST(FastBackward, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Index heads : {1, 4}) {
    FloatCall call(heads == 1 ? 1 : 3, 300, 2100, heads, heads == 1 ? 1 : 2, 32, 32, 4);
    call.args.mask.causal = true;
    const std::vector<double> slopes{-0.1, 0.2};
    const Term terms[] = {LinearTerm{.table = tensor(slopes.data(), {1, 1, 1, 2})}};
    call.args.terms = terms;
    expect_same_gradient_bits(call.args);
  }
}

}  // namespace
}  // namespace posenc
