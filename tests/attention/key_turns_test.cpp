// SPDX-License-Identifier: Apache-2.0
// Few queries whose call rotates keys: keys are rotated while they are read, and give what keys give that this test turns
// by hand in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "attention/q8_call.h"
#include "core/convert.h"
#include "posenc/core/isa.h"
#include "posenc/rotary/mrope.h"
#include "posenc/rotary/rope.h"
#include "support/refusal.h"

namespace posenc {
namespace {

// Positions of queries and keys on one axis.
struct TurnCall : Q8Call {
  TurnCall(const RotarySpec& rotary, Index queries, Index keys, Index h, Index g,
           std::uint64_t seed)
      : Q8Call(1, queries, keys, h, g, rotary.head_dim, 48, seed), spec(rotary) {
    for (Index i = 0; i < queries; ++i) q_at.push_back(static_cast<double>(keys - queries + i));
    for (Index j = 0; j < keys; ++j) k_at.push_back(static_cast<double>(j));
    args.prepare = std::span(&stage, 1);
  }
  // real: of f64, others of i64.
  void place(bool real = false) {
    if (real) {
      args.query_positions = {q_at.data(), DType::f64, 1, Tq};
      args.key_positions = {k_at.data(), DType::f64, 1, Tk};
      return;
    }
    q_whole.assign(q_at.begin(), q_at.end()), k_whole.assign(k_at.begin(), k_at.end());
    args.query_positions = positions(std::span<const std::int64_t>(q_whole));
    args.key_positions = positions(std::span<const std::int64_t>(k_whole));
  }
  std::vector<double> turned(std::vector<double> x, Index tokens, Index count,
                             const std::vector<double>& at) const {
    const RotaryBlock& b = spec.blocks[0];
    const bool side_by_side = b.pairing == Pairing::interleaved;
    for (Index n = 0; n < tokens * count; ++n)
      for (Index i = 0; i < b.pairs(); ++i) {
        const double angle = at[static_cast<std::size_t>(n / count)] *
                             b.spectrum.frequency[static_cast<std::size_t>(i)] * b.direction;
        const Index first = n * D + b.offset + (side_by_side ? 2 * i : i);
        double &y = x[static_cast<std::size_t>(first)],
               &z = x[static_cast<std::size_t>(first + (side_by_side ? 1 : b.pairs()))];
        const double before = y, gain = b.spectrum.gain;
        y = gain * (before * std::cos(angle) - z * std::sin(angle));
        z = gain * (before * std::sin(angle) + z * std::cos(angle));
      }
    return x;
  }
  AttentionArgs plain() const override {
    AttentionArgs a = FloatCall::plain();
    copies[0] = turned(wide[0], Tq, H, q_at), copies[1] = turned(wide[1], Tk, G, k_at);
    a.q = view(copies[0], Tq, H, D), a.k = view(copies[1], Tk, G, D);
    a.prepare = {};
    return a;
  }
  // Without a copy of the keys.
  std::string wrong_in_place() const {
    AttentionArgs still = args;
    still.prepare = {};
    const std::size_t rows = 0x18000;
    EXPECT_GT(Tk * G * D * 4, static_cast<Index>(rows));
    EXPECT_LT(workspace_bytes(args, inline_executor()),
              workspace_bytes(still, inline_executor()) + rows);
    return wrong();
  }
  RotarySpec spec;
  Stage stage{.kind = StageKind::rotate, .rotary = &spec};
  std::vector<double> q_at, k_at;
  std::vector<std::int64_t> q_whole, k_whole;
  mutable std::vector<double> copies[2];
};

std::vector<RotarySpec> turned_specs() {
  std::vector<RotarySpec> all;
  for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved})
    for (const Index direction : {1, -1}) {
      all.push_back(
          resolve(Rope{.head_dim = 64, .base = 100, .pairing = pairing, .direction = direction}));
      all.push_back(resolve(Rope{.head_dim = 128,
                                 .rotary_dim = 64,
                                 .offset = 32,
                                 .base = 1000,
                                 .pairing = pairing,
                                 .direction = direction}));
      all.back().blocks[0].spectrum.gain = 1.25;
    }
  return all;
}

TEST(KeyTurns, RotationsAndRows) {
  for (const RotarySpec& spec : turned_specs())
    for (const Index queries : {1, 3})
      for (const Isa isa : supported_isas()) {
        TurnCall call(spec, queries, 450, 4, 2, 3);
        call.place();
        force_isa(isa);
        EXPECT_EQ(call.wrong_in_place(), "") << isa_name(isa) << queries;
        reset_isa();
      }
}

TEST(KeyTurns, PositionsThatDoNotCountUp) {
  bool long_one = true;  // several slices of keys
  for (const RotarySpec& spec : turned_specs()) {
    for (const Index kind : {0, 1, 2, 3}) {
      TurnCall call(spec, 2, kind == 0 && long_one ? 4200 : 450, 2, 2, 4);
      for (std::size_t j = 0; j < call.k_at.size(); ++j) {
        double& at = call.k_at[j];
        if (kind == 0) at = at < 700 ? at : at + 31;                 // one jump
        if (kind == 1) at = 5000 - at;                               // downwards
        if (kind == 2) at = static_cast<double>(j * 7919 % 4201);    // at random
        if (kind == 3) at = static_cast<double>(j / 5 * 2) - 100.0;  // some alike
      }
      call.place();
      EXPECT_EQ(call.wrong_in_place(), "") << kind;
      for (double& at : call.k_at) at += 0.25;
      call.place(true);
      EXPECT_EQ(call.wrong_in_place(), "") << kind;
    }
    long_one = false;
  }
}

TEST(KeyTurns, BadPositions) {
  TurnCall call(turned_specs()[0], 1, 450, 2, 2, 4);
  call.k_at[77] = std::nan("");
  call.place(true);
  EXPECT_THAT(test::refusal([&] { of_attend(call.args); }), ::testing::HasSubstr("positions"));
}

TEST(KeyTurns, MasksAndHiddenKeysThatAreNone) {
  for (const RotarySpec& spec : turned_specs()) {
    TurnCall call(spec, 2, 700, 4, 1, 5);
    call.place();
    std::vector<std::uint8_t> there(700, 1);
    for (std::size_t j = 0; j < there.size(); j += 7) there[j] = 0;
    call.args.mask.key_visible = tensor(std::as_const(there).data(), {1, 700});
    for (Index c = 0; c < call.D; ++c) {
      call.narrow[1][static_cast<std::size_t>(70 * call.D + c)] = std::nanf("");
      call.wide[1][static_cast<std::size_t>(70 * call.D + c)] = 0;
    }
    EXPECT_EQ(call.wrong_in_place(), "");
    call.args.mask.causal = true, call.args.mask.window_left = 300;
    EXPECT_EQ(call.wrong_in_place(), "");
    std::vector<std::uint8_t> pairs(1400, 1);
    for (std::size_t n = 0; n < pairs.size(); ++n) pairs[n] = n % 11 == 3 || n % 700 == 70 ? 0 : 1;
    call.args.mask = {};
    call.args.mask.visible = tensor(std::as_const(pairs).data(), {2, 700});
    EXPECT_EQ(call.wrong_in_place(), "");
  }
}

// A hidden key may have any position, the largest number of the type too.
TEST(KeyTurns, HiddenKeysWithoutAPosition) {
  TurnCall call(turned_specs()[0], 2, 700, 4, 1, 5);
  call.place();
  std::vector<std::uint8_t> there(700, 1);
  for (std::size_t j = 600; j < there.size(); ++j)
    there[j] = 0, call.k_whole[j] = std::numeric_limits<std::int64_t>::max();
  call.args.mask.key_visible = tensor(std::as_const(there).data(), {1, 700});
  EXPECT_EQ(call.wrong_in_place(), "");
}

// Terms read keys after their rotation: gates of q.k, a row of a table times k, and q times k once more.
TEST(KeyTurns, TermsThatReadKeys) {
  test::Random r(9);
  std::vector<double> levels = r.normals(12 * 64), rows = r.normals(2 * 3 * 64);
  for (double& x : levels) x /= 8;
  const std::vector<std::int32_t> row{0, 1, 2, 1};
  GatesTerm gates;
  gates.table = tensor(levels.data(), {1, 1, 12, 64});
  gates.query.content = gates.key.content = true;
  GatesTerm own = gates;  // gates of vectors of the query and k
  const std::vector<float> vectors(2 * 2 * 64, 0.3f);
  own.query.content = false;
  ProductTerm by_row, again;
  by_row.key.content = again.query.content = again.key.content = true;
  by_row.lines[0] = {.row = row.data(), .count = 4, .lo = -1};
  by_row.table = tensor(rows.data(), {1, 2, 3, 64}), again.scale = 0.1;
  for (const Index queries : {1, 2}) {
    own.query.given = heads(vectors.data(), queries, 2, 64);
    for (const Term& term : {Term(gates), Term(own), Term(by_row), Term(again)}) {
      TurnCall call(turned_specs()[0], queries, 200, 2, 2, 10);
      call.place();
      call.args.terms = std::span(&term, 1);
      AttentionArgs exact = call.args;
      exact.exact = true;
      EXPECT_TRUE(is_fast(call.args));
      EXPECT_EQ(differences(of_attend(call.args), of_attend(exact), kFloatError, kFloatError), "")
          << queries;
    }
  }
}

TEST(KeyTurns, OtherTypesOfKeys) {
  for (const RotarySpec& spec : turned_specs()) {
    for (const Index queries : {1, 2, 4}) {
      TurnCall blocks(spec, queries, 300, 4, 2, 6);
      blocks.place();
      blocks.use_blocks(Q8Call::Which::k);
      EXPECT_EQ(blocks.wrong(), "") << queries;
    }
    TurnCall call(spec, 1, 300, 4, 2, 7);
    call.place();
    std::vector<std::uint16_t> half;
    for (double& x : call.wide[1]) {
      half.push_back(f16_from(x));
      x = static_cast<double>(f32_from_f16(half.back()));
    }
    call.args.k =
        heads(tensor(static_cast<const void*>(half.data()), DType::f16, {1, 300, 2, call.D}),
              HeadsLayout::bthd);
    EXPECT_EQ(call.wrong(), "");
  }
}

TEST(KeyTurns, SeveralAxes) {
  const RotarySpec spec = resolve(Mrope{.head_dim = 64,
                                        .pairing = Pairing::half_split,
                                        .sections = {8, 12, 12},
                                        .layout = MropeLayout::chunked});
  const RotarySpec* const rotary = &spec;
  FloatCall call(1, 1, 500, 4, 2, 64, 64, 8);
  std::vector<std::int64_t> at;
  for (Index axis = 0; axis < 3; ++axis)
    for (Index j = 0; j < 500; ++j) at.push_back(j < 200 ? j * (axis + 1) / 2 : j + 60 - axis);
  call.args.key_positions = {at.data(), DType::i64, 3, 500};
  call.args.key_positions.axis_stride = 500;
  const std::int64_t query[] = {560, 559, 558};
  call.args.query_positions = {query, DType::i64, 3, 1};
  call.args.query_positions.axis_stride = 1;
  const Stage stage{.kind = StageKind::rotate, .rotary = rotary};
  call.args.prepare = std::span(&stage, 1);
  ASSERT_TRUE(is_fast(call.args));
  AttentionArgs exact = call.args;
  exact.exact = true;
  EXPECT_EQ(differences(of_attend(call.args), of_attend(exact), 1e-6, 1e-6), "");
}

}  // namespace
}  // namespace posenc
