// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/attention/attention.h"
#include "posenc/positions/sequence.h"
#include "posenc/relative/t5.h"
#include "support/attention_reference.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;

struct Good {
  std::vector<double> q = std::vector<double>(24, 0.5), k = q, v = q, out = q, table = {1, 2, 3, 4};
  OwnedPositions p = arange(0, 3);
  LoweredTerms low;
  AttentionArgs a;
  Good() {
    a.qk = {heads(q.data(), 3, 2, 4), heads(k.data(), 3, 2, 4)};
    a.v = heads(v.data(), 3, 2, 4);
    a.out = heads(out.data(), 3, 2, 4);
    a.scale = 0.5;
    a.query_positions = a.key_positions = p;
  }
  Term line() {
    Term t;
    t.kind = TermKind::line;
    t.lines[0] = low.line({0, 1}, 0);
    t.table = tensor(table.data(), {2, 2});
    return t;
  }
};
template <class F>
std::string says(const F& change) {
  Good g;
  change(g);
  try {
    check_attention(g.a);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

TEST(AttentionCheck, WhatDoesNotFitIsRefusedByName) {
  EXPECT_EQ(says([](Good&) {}), "accepted");
  EXPECT_THAT(says([](Good& g) { g.a.scale = 0; }), HasSubstr("[attention] scale must be set"));
  EXPECT_THAT(says([](Good& g) { g.a.scale = NAN; }), HasSubstr("scale must be set"));
  EXPECT_THAT(says([](Good& g) { g.a.dropout = 0.1; }), HasSubstr("dropout"));
  EXPECT_THAT(says([](Good& g) { g.a.softcap = -1; }), HasSubstr("softcap must be"));
  EXPECT_THAT(says([](Good& g) { g.a.softcap_after_terms = true; }), HasSubstr("needs a softcap"));
  EXPECT_THAT(says([](Good& g) { g.a.qk.k.heads = 3; }), HasSubstr("multiple"));
  EXPECT_THAT(says([](Good& g) { g.a.qk.k.dim = 2; }), HasSubstr("head size of q"));
  EXPECT_THAT(says([](Good& g) { g.a.v.tokens = 2; }), HasSubstr("tokens of k"));
  EXPECT_THAT(says([](Good& g) { g.a.out.dim = 3; }), HasSubstr("head size of v"));
  EXPECT_THAT(says([](Good& g) { g.a.v.dtype = DType::f32; }), HasSubstr("dtype of q"));
  EXPECT_THAT(says([](Good& g) { g.a.sink = tensor(g.table.data(), {3}); }), HasSubstr("sink"));
  EXPECT_THAT(says([](Good& g) { g.a.mask.window_left = -1; }), HasSubstr("window_left"));
  EXPECT_THAT(says([](Good& g) { g.a.mask.chunk = -1; }), HasSubstr("chunk"));
  const Index order[] = {0, 1, 2};
  EXPECT_THAT(says([&](Good& g) {
                g.a.mask.query_order = tensor(order, {1, 3});
              }),
              HasSubstr("given together"));
  const Index cu[] = {0, 2};
  EXPECT_THAT(
      says([&](Good& g) { g.a.mask.query_cu_seqlens = g.a.mask.key_cu_seqlens = tensor(cu, {2}); }),
      HasSubstr("must end at the number of tokens"));
  EXPECT_THAT(says([&](Good& g) {
                g.a.mask.bias = tensor(g.q.data(), {2, 3});
              }),
              HasSubstr("bias must fit"));
  ScoreRegion r;
  EXPECT_THAT(says([&](Good& g) { g.a.regions = std::span(&r, 1); }), HasSubstr("region"));
}

TEST(AttentionCheck, TermsMustFitTheirTablesAndPositions) {
  const auto term_says = [](const auto& change) {
    return says([&](Good& g) {
      static Term t;
      t = g.line();
      change(g, t);
      g.a.terms = std::span(&t, 1);
    });
  };
  EXPECT_EQ(term_says([](Good&, Term&) {}), "accepted");
  EXPECT_THAT(term_says([](Good& g, Term& t) {
                t.lines[0] = g.low.line({0, 2}, 0);
              }),
              HasSubstr("rows must lie inside its table, row, got 2"));
  EXPECT_THAT(term_says([](Good&, Term& t) { t.lines[0] = {}; }), HasSubstr("line or a pair"));
  EXPECT_THAT(term_says([](Good&, Term& t) { t.lines[0].axis = 1; }), HasSubstr("axis"));
  EXPECT_THAT(term_says([](Good&, Term& t) { t.scale = INFINITY; }), HasSubstr("scale"));
  EXPECT_THAT(term_says([](Good& g, Term&) { g.a.key_positions = {}; }), HasSubstr("positions"));
  EXPECT_THAT(term_says([](Good& g, Term&) {
                static const double real[] = {0, 0.5, 1};
                g.a.query_positions = positions(std::span<const double>(real));
              }),
              HasSubstr("integer positions"));
  EXPECT_THAT(term_says([](Good&, Term& t) { t.table = {}; }), HasSubstr("must be given"));
  EXPECT_THAT(term_says([](Good&, Term& t) { t.kind = TermKind::query_rows; }), HasSubstr("table"));
  EXPECT_THAT(term_says([](Good&, Term& t) { t.kind = TermKind::dape; }), HasSubstr("dape"));
  EXPECT_THAT(term_says([](Good&, Term& t) { t.kind = TermKind::fire; }), HasSubstr("fire"));
}

TEST(AttentionReference, RowsWithoutKeysAndNoTokens) {
  Good g;
  std::vector<double> lse(6, 1);
  g.a.log_sum_exp = tensor(lse.data(), {1, 2, 3});
  const std::vector<Index> none{0};
  g.a.mask.key_length = tensor(none.data(), {1});
  support::attention_forward(g.a);
  for (const double x : g.out) EXPECT_EQ(x, 0);
  for (const double x : lse) EXPECT_EQ(x, -HUGE_VAL);
  std::vector<double> d(24, 0), up(24, 1);
  AttentionGradients gradients;
  gradients.qk = {heads(d.data(), 3, 2, 4), {}};
  support::attention_backward(g.a, heads(up.data(), 3, 2, 4), {}, gradients);
  for (const double x : d) EXPECT_EQ(x, 0);

  Good empty;
  for (ConstHeads* h : {&empty.a.qk.q, &empty.a.qk.k, &empty.a.v}) h->tokens = 0;
  empty.a.out.tokens = 0;
  empty.a.query_positions = empty.a.key_positions = {};
  support::attention_forward(empty.a);
}

}  // namespace
}  // namespace posenc
