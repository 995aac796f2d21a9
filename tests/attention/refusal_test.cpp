// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/attention/attention.h"
#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"
#include "posenc/relative/scheme.h"
#include "posenc/rotary/rope.h"
#include "support/attention_reference.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;

// Two heads of four channels, three tokens.
struct Good {
  std::vector<double> q = std::vector<double>(24, 0.5), k = q, v = q, out = q, table = {1, 2, 3, 4};
  OwnedPositions p = arange(0, 3);
  LoweredTerms low;
  AttentionArgs a;
  AttentionResult r;
  Good() {
    a.q = heads(std::as_const(q).data(), 3, 2, 4);
    a.k = heads(std::as_const(k).data(), 3, 2, 4);
    a.v = heads(std::as_const(v).data(), 3, 2, 4);
    r.out = heads(out.data(), 3, 2, 4);
    a.scale = 0.5;
    a.query_positions = a.key_positions = p;
  }
  ProductTerm line() {
    ProductTerm t;
    t.lines[0] = low.line({0, 1}, 0);
    t.table = tensor(table.data(), {1, 2, 2, 1});
    return t;
  }
};
template <class F>
std::string says(const F& change) {
  Good g;
  change(g);
  return test::refusal([&] {
    try {
      check_attention(g.a, g.r);
      check_attention_indices(g.a);
    } catch (const ArgumentError& e) {
      EXPECT_FALSE(e.field().empty()) << e.what() << " names no argument";
      throw;
    }
  });
}

const Index kOrder[] = {0, 1, 2, 0, 1, 2};
const std::uint8_t kFlags[18] = {};
const double kReal[24] = {};

TEST(AttentionCheck, TensorsAndNumbersThatDoNotFit) {
  EXPECT_EQ(says([](Good&) {}), "accepted");
  EXPECT_THAT(says([](Good& g) { g.a.scale.reset(); }),
              HasSubstr("[attention] scale must be given"));
  EXPECT_THAT(says([](Good& g) { g.a.scale = NAN; }), HasSubstr("scale must be finite"));
  EXPECT_THAT(says([](Good& g) { g.a.dropout = 0.1; }), HasSubstr("dropout"));
  EXPECT_THAT(says([](Good& g) { g.a.softcap = -1; }), HasSubstr("softcap must be"));
  EXPECT_THAT(says([](Good& g) { g.a.softcap_after_terms = true; }), HasSubstr("needs a softcap"));
  EXPECT_THAT(says([](Good& g) { g.a.k.heads = g.a.v.heads = 3; }), HasSubstr("multiple"));
  EXPECT_THAT(says([](Good& g) { g.a.k.dim = 2; }), HasSubstr("head size of q"));
  EXPECT_THAT(says([](Good& g) { g.a.v.tokens = 2; }), HasSubstr("tokens of k"));
  EXPECT_THAT(says([](Good& g) { g.a.k.batch = g.a.v.batch = 2; }), HasSubstr("batch of q"));
  EXPECT_THAT(says([](Good& g) { g.r.out.dim = 3; }), HasSubstr("head size of v"));
  EXPECT_THAT(says([](Good& g) { g.a.v.dtype = DType::i32; }),
              HasSubstr("v must be f64, f32, f16 or bf16, or q8_0 blocks in u8, got \"i32\""));
  EXPECT_THAT(says([](Good& g) { g.r.out.dtype = DType::f32; }),
              HasSubstr("out must have the dtype of q, got \"f32\""));
  EXPECT_THAT(says([](Good& g) { g.a.sink = tensor(kReal, {3}); }),
              HasSubstr("sink must be [2] of f64 or f32, got [3] of f64"));
  EXPECT_THAT(says([](Good& g) { g.a.head_scale = tensor(kReal, {2}); }), HasSubstr("head_scale"));
  EXPECT_THAT(says([](Good& g) { g.a.mix_after = tensor(kReal, {2, 3}); }), HasSubstr("mix_after"));
  EXPECT_THAT(says([](Good& g) {
                g.a.normalisation = Normalisation::stick_breaking;
                g.a.sink = tensor(kReal, {2});
              }),
              HasSubstr("sink needs the normalisation softmax"));
  EXPECT_THAT(says([](Good& g) { g.a.normalisation = static_cast<Normalisation>(7); }),
              HasSubstr("normalisation must be one of softmax, stick_breaking"));
  EXPECT_THAT(says([](Good& g) { g.a.key_positions.count = 2; }), HasSubstr("key_positions"));
  ScoreRegion r;
  EXPECT_THAT(says([&](Good& g) { g.a.regions = std::span(&r, 1); }), HasSubstr("region"));
}

TEST(AttentionCheck, MasksThatCannotBe) {
  EXPECT_THAT(says([](Good& g) { g.a.mask.window_left = -1; }), HasSubstr("window_left"));
  EXPECT_THAT(says([](Good& g) { g.a.mask.window_right = -2; }), HasSubstr("-1 or more"));
  EXPECT_EQ(says([](Good& g) { g.a.mask.window_right = -1; }), "accepted");
  EXPECT_THAT(says([](Good& g) { g.a.mask.chunk = -1; }), HasSubstr("chunk"));
  EXPECT_THAT(says([](Good& g) {
                g.a.mask.chunk_origin = tensor(kOrder, {1, 1});
              }),
              HasSubstr("chunk_origin needs a chunk"));
  EXPECT_THAT(says([](Good& g) { g.a.mask.prefix = tensor(kOrder, {1}); }),
              HasSubstr("prefix needs a causal mask"));
  EXPECT_THAT(says([](Good& g) {
                g.a.mask.query_order = tensor(kOrder, {1, 3});
              }),
              HasSubstr("given together"));
  EXPECT_THAT(says([](Good& g) {
                g.a.mask.query_order = g.a.mask.key_order = tensor(kOrder, {1, 3});
                g.a.mask.query_offset = 1;
              }),
              HasSubstr("query_offset excludes query_order"));
  EXPECT_THAT(says([](Good& g) {
                g.a.mask.bias = tensor(kReal, {2, 3});
              }),
              HasSubstr("bias must be [3, 3] of f64 or f32, got [2, 3] of f64"));
  EXPECT_THAT(says([](Good& g) {
                g.a.mask.bias = tensor(kReal, {2, 3, 3});
              }),
              HasSubstr("bias must have rank 2 or 4: of rank 3 some mean"));
  EXPECT_THAT(says([](Good& g) {
                g.a.mask.visible = tensor(kFlags, {1, 3, 3});
              }),
              HasSubstr("visible must have rank 2 or 4"));
  EXPECT_THAT(says([](Good& g) {
                g.a.mask.visible = tensor(kFlags, {1, 3, 3, 3});
              }),
              HasSubstr("visible must be [1, a divisor of 2, 3, 3] of u8"));
  const std::uint8_t side[] = {0, 3};
  EXPECT_THAT(says([&](Good& g) { g.a.mask.head_side = tensor(side, {2}); }),
              HasSubstr("head_side must be 0 (both)"));
}

TEST(AttentionCheck, SequencesAndPagesThatCannotBe) {
  const Index cu[] = {0, 2}, whole[] = {0, 3}, length[] = {3}, table[] = {0, 5};
  EXPECT_THAT(
      says([&](Good& g) { g.a.mask.query_cu_seqlens = g.a.mask.key_cu_seqlens = tensor(cu, {2}); }),
      HasSubstr("must end at the number of tokens"));
  EXPECT_THAT(says([&](Good& g) {
                g.a.mask.query_cu_seqlens = g.a.mask.key_cu_seqlens = tensor(whole, {2});
                g.a.mask.query_document = g.a.mask.key_document = tensor(kOrder, {1, 3});
              }),
              HasSubstr("cu_seqlens exclude documents"));
  EXPECT_THAT(says([&](Good& g) { g.a.mask.query_cu_seqlens = tensor(whole, {2}); }),
              HasSubstr("given together"));
  // k and v as one page of three slots.
  const auto paged = [&](Good& g) {
    g.a.block_table = tensor(table, {1, 1});
    g.a.mask.key_length = tensor(length, {1});
  };
  EXPECT_EQ(says(paged), "accepted");
  EXPECT_THAT(says([&](Good& g) { paged(g), g.a.mask.key_length = {}; }),
              HasSubstr("block_table needs key_length"));
  EXPECT_THAT(says([&](Good& g) { paged(g), g.a.mask.key_cu_seqlens = tensor(whole, {2}); }),
              HasSubstr("key_cu_seqlens and block_table exclude each other"));
  EXPECT_THAT(says([&](Good& g) {
                g.a.block_table = tensor(table, {2, 1});
                g.a.mask.key_length = tensor(kOrder, {2});
              }),
              HasSubstr("a row for each batch entry"));
  const Index wrong[] = {1}, long_[] = {4};
  EXPECT_THAT(says([&](Good& g) {
                paged(g), g.a.block_table = tensor(wrong, {1, 1});
              }),
              HasSubstr("a page of block_table must lie between 0 and 0, got 1"));
  EXPECT_THAT(says([&](Good& g) { paged(g), g.a.mask.key_length = tensor(long_, {1}); }),
              HasSubstr("key_length must lie between 0 and the keys"));
}

template <class F>
std::string stage_says(Stage s, const F& change) {
  return says([&](Good& g) {
    g.a.prepare = std::span(&s, 1);
    change(g);
  });
}

TEST(AttentionCheck, StagesThatCannotBe) {
  const auto nothing = [](Good&) {};
  const RotarySpec rope = resolve(Rope{.head_dim = 4, .pairing = Pairing::half_split});
  EXPECT_EQ(stage_says({.kind = StageKind::rotate, .rotary = &rope}, nothing), "accepted");
  EXPECT_THAT(stage_says({.kind = StageKind::rotate}, nothing), HasSubstr("needs a rotary spec"));
  EXPECT_THAT(stage_says({.kind = StageKind::l2, .rotary = &rope}, nothing),
              HasSubstr("must not have a rotary spec"));
  EXPECT_THAT(stage_says({.kind = StageKind::rotate, .rotary = &rope},
                         [](Good& g) { g.a.key_positions = {}; }),
              HasSubstr("needs query_positions and key_positions"));
  EXPECT_THAT(stage_says({.kind = StageKind::l2, .q = tensor(kReal, {1, 4})}, nothing),
              HasSubstr("must not have arrays"));
  EXPECT_THAT(stage_says({.kind = StageKind::add}, nothing), HasSubstr("bias of q or of k"));
  EXPECT_THAT(stage_says({.kind = StageKind::rms, .q = tensor(kReal, {4})}, nothing),
              HasSubstr("array of q must be [a divisor of 2, 4]"));
  EXPECT_THAT(stage_says({.kind = StageKind::rms, .epsilon = -1}, nothing), HasSubstr("epsilon"));
  EXPECT_THAT(stage_says({.kind = StageKind::rms, .value = true}, nothing), HasSubstr("value"));
}

template <class F>
std::string term_says(const F& change) {
  return says([&](Good& g) {
    static Term term;
    ProductTerm t = g.line();
    change(g, t);
    term = t;
    g.a.terms = std::span(&term, 1);
  });
}

TEST(AttentionCheck, ProductsMustFitTheirTablesAndPositions) {
  EXPECT_EQ(term_says([](Good&, ProductTerm&) {}), "accepted");
  EXPECT_THAT(term_says([](Good&, ProductTerm& t) { t.lines[0] = {}; }),
              HasSubstr("line or a pair"));
  EXPECT_THAT(term_says([](Good&, ProductTerm& t) { t.lines[0].axis = 1; }), HasSubstr("axis"));
  EXPECT_THAT(term_says([](Good&, ProductTerm& t) { t.scale = INFINITY; }), HasSubstr("scale"));
  EXPECT_THAT(term_says([](Good& g, ProductTerm&) { g.a.key_positions = {}; }),
              HasSubstr("positions"));
  EXPECT_THAT(term_says([](Good&, ProductTerm& t) { t.table = {}; }),
              HasSubstr("must have a table"));
  EXPECT_THAT(term_says([](Good&, ProductTerm& t) { t.query = kContent; }),
              HasSubstr("term product table must be [1, a divisor of 2, n, 4]"));
  EXPECT_THAT(term_says([](Good&, ProductTerm& t) {
                t.query = t.key = kContent;
                t.table = tensor(kReal, {1, 2, 2, 4});
              }),
              HasSubstr("one channel where query and key are multiplied too, got 4"));
  EXPECT_THAT(term_says([](Good&, ProductTerm& t) {
                t.query = kContent;
                t.key.given = heads(kReal, 3, 2, 2);
              }),
              HasSubstr("key must have the channels of query"));
  EXPECT_THAT(term_says([](Good&, ProductTerm& t) { t.query.given = heads(kReal, 2, 2, 1); }),
              HasSubstr("query must be [1, 1 or 3, a divisor of 2, n]"));
  EXPECT_THAT(term_says([](Good&, ProductTerm& t) {
                t.query = {true, heads(kReal, 3, 2, 4)};
              }),
              HasSubstr("the call's own array or vectors of the term, not both"));
  EXPECT_THAT(term_says([](Good& g, ProductTerm& t) { t.pair = g.low.pair({0}, 1, 1); }),
              HasSubstr("classes of queries and keys"));
  EXPECT_THAT(term_says([](Good& g, ProductTerm& t) {
                t.pair = g.low.pair({0, 0}, 1, 2);
                t.pair.query_class = t.pair.key_class = tensor(kOrder, {1, 3});
              }),
              HasSubstr("a class of a pair must lie between 0 and 0, got 1"));
}

std::string kind_says(const Term& t) {
  return says([&](Good& g) { g.a.terms = std::span(&t, 1); });
}

TEST(AttentionCheck, OtherKindsMustHaveWhatTheyRead) {
  EXPECT_THAT(kind_says(LinearTerm{}), HasSubstr("linear table must be given"));
  EXPECT_THAT(kind_says(DecayTerm{}), HasSubstr("decay must have a query or a key"));
  EXPECT_THAT(kind_says(DecayTerm{.query = kContent}),
              HasSubstr("query must have one channel, got 4"));
  EXPECT_THAT(kind_says(DecayTerm{.scale = NAN}), HasSubstr("term decay scale must be finite"));
  EXPECT_THAT(kind_says(GatesTerm{.query = kContent}), HasSubstr("must have a query and a key"));
  EXPECT_THAT(kind_says(GatesTerm{.query = kContent, .key = kContent, .spread = 1}),
              HasSubstr("term gates with a spread must have a table, got 1"));
  EXPECT_THAT(kind_says(ValueRowsTerm{}), HasSubstr("value_rows table must be given"));
  EXPECT_THAT(kind_says(DistanceMlpTerm{}), HasSubstr("distance_mlp table must be given"));
  EXPECT_THAT(kind_says(ScoreMlpTerm{}), HasSubstr("score_mlp mlp in must be given"));
  ScoreMlpTerm net;
  net.mlp.in = tensor(kReal, {1, 3, 1});
  EXPECT_THAT(kind_says(net), HasSubstr("must have 2 or 4 channels, got 3"));
  net.mlp.in = tensor(kReal, {1, 2, 2});
  EXPECT_THAT(kind_says(net), HasSubstr("kernel must be odd, got 2"));
  EXPECT_THAT(says([](Good& g) {
                static const Term two[2] = {ScoreMlpTerm{}, ScoreMlpTerm{}};
                g.a.terms = two;
              }),
              HasSubstr("must be the last term, at most one, number, got 0"));
}

TEST(AttentionCheck, NumbersInsideTablesAreCheckedWhenLowered) {
  Good g;
  const auto add_says = [&](const auto& change) {
    ProductTerm t = g.line();
    change(t);
    return test::refusal([&] { g.low.add(t); });
  };
  EXPECT_EQ(add_says([](ProductTerm&) {}), "accepted");
  EXPECT_THAT(add_says([&](ProductTerm& t) {
                t.lines[0] = g.low.line({0, 2}, 0);
              }),
              HasSubstr("rows must lie inside its table, the sum of the largest of its lines and "
                        "its pair, got 2"));
  EXPECT_THAT(add_says([&](ProductTerm& t) { t.lines[1] = t.lines[0]; }), HasSubstr("got 2"));
  EXPECT_EQ(add_says([&](ProductTerm& t) {
              t.lines[0] = g.low.line({7}, 0);
              t.pair = g.low.pair({-1}, 1, 1);
            }),
            "accepted");  // disabled for every pair
  EXPECT_THAT(test::refusal([&] {
                g.low.line({0, 1, 2}, {1.0, 0.5}, 0);
              }),
              HasSubstr("[lowered] edges must be numbers that do not decrease, got 0.5"));
  EXPECT_THAT(test::refusal([&] {
                g.low.line({0, 1}, {1.0, 2.0}, 0);
              }),
              HasSubstr("one row more than edges"));
  EXPECT_THAT(test::refusal([&] { g.low.pair({0, 1}, 2, 2); }), HasSubstr("every two classes"));
  EXPECT_THAT(test::refusal([&] { g.low.table({1, 2}, 1, 3, 1); }), HasSubstr("fill its shape"));
}

TEST(AttentionCheck, GradientsMustFitTheirCall) {
  Good g;
  const auto gradient_says = [&](const auto& change) {
    AttentionGradients d;
    change(d);
    return test::refusal([&] { check_attention(g.a, d); });
  };
  std::vector<double> x(24);
  EXPECT_EQ(gradient_says([](AttentionGradients&) {}), "accepted");
  EXPECT_THAT(gradient_says([&](AttentionGradients& d) { d.q = heads(x.data(), 3, 4, 2); }),
              HasSubstr("gradient of q must have its shape"));
  EXPECT_THAT(gradient_says([&](AttentionGradients& d) { d.sink = tensor(x.data(), {2}); }),
              HasSubstr("the call has no such tensor"));
  const TermGradient t;
  EXPECT_THAT(gradient_says([&](AttentionGradients& d) { d.terms = std::span(&t, 1); }),
              HasSubstr("a gradient for each term, or none"));
}

TEST(AttentionReference, RowsOfLinesByDistanceAndByEdges) {
  LoweredTerms low;
  const IndexLine whole = low.line({5, 6, 7}, -1), real = low.line({5, 6, 7}, {-0.5, 2}, 0);
  EXPECT_EQ(row_of(whole, -9), 5);
  EXPECT_EQ(row_of(whole, 0), 6);
  EXPECT_EQ(row_of(whole, 0.9), 6);
  EXPECT_EQ(row_of(whole, -0.1), 5);
  EXPECT_EQ(row_of(whole, 1e300), 7);
  EXPECT_EQ(row_of(real, -0.6), 5);
  EXPECT_EQ(row_of(real, -0.5), 6);
  EXPECT_EQ(row_of(real, 2), 7);
}

TEST(AttentionReference, RowsWithoutKeysAndNoTokens) {
  Good g;
  std::vector<double> lse(6, 1);
  g.r.log_sum_exp = tensor(lse.data(), {1, 2, 3});
  const std::vector<Index> none{0};
  g.a.mask.key_length = tensor(none.data(), {1});
  support::attention_forward(g.a, g.r);
  for (const double x : g.out) EXPECT_EQ(x, 0);
  for (const double x : lse) EXPECT_EQ(x, -HUGE_VAL);
  std::vector<double> d(24, 0), up(24, 1);
  AttentionGradients gradients;
  gradients.q = heads(d.data(), 3, 2, 4);
  support::attention_backward(g.a, heads(up.data(), 3, 2, 4), {}, gradients);
  for (const double x : d) EXPECT_EQ(x, 0);

  Good empty;
  for (ConstHeads* h : {&empty.a.q, &empty.a.k, &empty.a.v}) h->tokens = 0;
  empty.r.out.tokens = 0;
  empty.a.query_positions = empty.a.key_positions = {};
  support::attention_forward(empty.a, empty.r);
}

// What no query sees may be anything; what some rows see spoils those rows and no others.
TEST(AttentionReference, NotANumberStaysWhereItIsSeen) {
  Good g;
  for (std::vector<double>* x : {&g.k, &g.v})
    for (std::size_t i = 16; i < 24; ++i) (*x)[i] = NAN;  // the last key
  const Stage norm{.kind = StageKind::rms, .epsilon = 1e-6};
  g.a.prepare = std::span(&norm, 1);
  g.a.mask.causal = true;
  support::attention_forward(g.a, g.r);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_FALSE(std::isnan(g.out[i])) << i;
  for (std::size_t i = 16; i < 24; ++i) EXPECT_TRUE(std::isnan(g.out[i])) << i;
  g.a.mask.window_right = -1;
  support::attention_forward(g.a, g.r);
  std::vector<double> d(24, 0), up(24, 1);
  AttentionGradients gradients;
  gradients.k = heads(d.data(), 3, 2, 4);
  support::attention_backward(g.a, heads(up.data(), 3, 2, 4), {}, gradients);
  for (const double x : g.out) EXPECT_FALSE(std::isnan(x));
  for (const double x : d) EXPECT_FALSE(std::isnan(x));
}

}  // namespace
}  // namespace posenc
