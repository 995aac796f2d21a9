// SPDX-License-Identifier: Apache-2.0
// Calls that say the same in two ways: pages and plain keys, packed rows and rows of their own,
// groups and repeated heads, thresholds and whole distances, parts and the whole.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/term_tools.h"
#include "posenc/positions/sequence.h"
#include "posenc/relative/scheme.h"
#include "support/attention_reference.h"

namespace posenc {
namespace {

std::vector<double> waves(Index n, double phase) {
  std::vector<double> x;
  for (Index i = 0; i < n; ++i) x.push_back(std::sin(phase + 0.7 * static_cast<double>(i)));
  return x;
}

// Two sequences of 3 queries and 5 and 4 keys; H 4, D 2, one table by distance.
struct Sequences {
  static constexpr Index H = 4, G = 2, D = 2, Tq = 3;
  std::vector<double> q = waves(2 * Tq * H * D, 1), k = waves(9 * G * D, 2),
                      v = waves(9 * G * D, 3), up = waves(2 * Tq * H * D, 4),
                      up_lse = waves(2 * Tq * H, 5), table = waves(H * 4 * D, 6);
  LoweredTerms low;
  std::vector<Term> terms{query_rows(tensor(std::as_const(table).data(), {1, H, 4, D}),
                                     low.line({0, 1, 2, 3}, 0), 0.7)};
};

// out, log-sum-exp by head and token, and all gradients of one way to say it.
struct Answer {
  std::vector<double> out, lse, d_q, d_k, d_v, d_table;
};
void expect_same(const Answer& a, const Answer& b) {
  const auto same = [](const std::vector<double>& x, const std::vector<double>& y,
                       const char* what) {
    ASSERT_EQ(x.size(), y.size()) << what;
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-14) << what << " " << i;
  };
  same(a.out, b.out, "out");
  same(a.lse, b.lse, "log_sum_exp");
  same(a.d_q, b.d_q, "d q");
  same(a.d_k, b.d_k, "d k");
  same(a.d_v, b.d_v, "d v");
  same(a.d_table, b.d_table, "d table");
}

// Runs `a` whose outputs and gradients are dense; q begins at row `first` of the packed queries.
void run(const Sequences& s, AttentionArgs a, Index first, Answer& to, Index key_size, double* d_k,
         double* d_v) {
  const Index n = a.q.tokens, d = Sequences::D, h = Sequences::H;
  a.terms = s.terms;
  a.scale = 0.6;
  std::vector<double> lse(static_cast<std::size_t>(h * n)), up_lse;
  for (Index i = 0; i < h; ++i)
    for (Index t = 0; t < n; ++t)
      up_lse.push_back(s.up_lse[static_cast<std::size_t>((first + t) * h + i)]);
  support::attention_forward(
      a, {heads(to.out.data() + first * h * d, n, h, d), tensor(lse.data(), {1, h, n})});
  for (Index t = 0; t < n; ++t)
    for (Index i = 0; i < h; ++i)
      to.lse[static_cast<std::size_t>((first + t) * h + i)] =
          lse[static_cast<std::size_t>(i * n + t)];
  const TermGradient g{.table = tensor(to.d_table.data(), {1, h, 4, d})};
  AttentionGradients to_all;
  to_all.q = heads(to.d_q.data() + first * h * d, n, h, d);
  const std::vector<Index> shape{a.k.batch, a.k.tokens, Sequences::G, d};
  ASSERT_EQ(a.k.batch * a.k.tokens, key_size);
  to_all.k = heads(tensor(static_cast<void*>(d_k), DType::f64, shape), HeadsLayout::bthd);
  to_all.v = heads(tensor(static_cast<void*>(d_v), DType::f64, shape), HeadsLayout::bthd);
  to_all.terms = std::span(&g, 1);
  support::attention_backward(a, heads(s.up.data() + first * h * d, n, h, d),
                              tensor(std::as_const(up_lse).data(), {1, h, n}), to_all);
}
Answer empty_answer() {
  const auto n = static_cast<std::size_t>(2 * Sequences::Tq * Sequences::H);
  return {std::vector<double>(2 * n), std::vector<double>(n),  std::vector<double>(2 * n),
          std::vector<double>(36),    std::vector<double>(36), std::vector<double>(32)};
}

// Each sequence by itself: positions and orders count from 0, queries are the last tokens.
Answer by_sequence(const Sequences& s) {
  Answer r = empty_answer();
  const Index keys[] = {5, 4}, begin[] = {0, 5};
  for (const Index n : {0, 1}) {
    const Index first = n * Sequences::Tq;
    AttentionArgs a;
    a.q = heads(s.q.data() + first * Sequences::H * Sequences::D, Sequences::Tq, Sequences::H,
                Sequences::D);
    const Index at = begin[n] * Sequences::G * Sequences::D;
    a.k = heads(s.k.data() + at, keys[n], Sequences::G, Sequences::D);
    a.v = heads(s.v.data() + at, keys[n], Sequences::G, Sequences::D);
    const OwnedPositions q = arange(keys[n] - Sequences::Tq, Sequences::Tq), k = arange(0, keys[n]);
    a.query_positions = q;
    a.key_positions = k;
    a.mask.causal = true;
    a.mask.query_offset = keys[n] - Sequences::Tq;
    run(s, a, first, r, keys[n], r.d_k.data() + at, r.d_v.data() + at);
  }
  return r;
}

// Both in one row, by boundaries.
Answer packed_rows(const Sequences& s) {
  Answer r = empty_answer();
  const Index q_cu[] = {0, 3, 6}, k_cu[] = {0, 5, 9};
  const OwnedPositions q = explicit_positions(std::vector<Index>{2, 3, 4, 1, 2, 3});
  const OwnedPositions k = explicit_positions(std::vector<Index>{0, 1, 2, 3, 4, 0, 1, 2, 3});
  AttentionArgs a;
  a.q = heads(s.q.data(), 6, Sequences::H, Sequences::D);
  a.k = heads(s.k.data(), 9, Sequences::G, Sequences::D);
  a.v = heads(s.v.data(), 9, Sequences::G, Sequences::D);
  a.query_positions = q;
  a.key_positions = k;
  a.mask.causal = true;
  a.mask.query_cu_seqlens = tensor(q_cu, {3});
  a.mask.key_cu_seqlens = tensor(k_cu, {3});
  run(s, a, 0, r, 9, r.d_k.data(), r.d_v.data());
  return r;
}

// Both in one row of queries; keys in pages of 2, in no order, with a page that nobody owns.
Answer paged_rows(const Sequences& s) {
  Answer r = empty_answer();
  const Index page_of[] = {4, 0, 2, 1, 5, 0};  // of each row's pages; the last one is not used
  const Index lengths[] = {5, 4}, q_cu[] = {0, 3, 6}, begin[] = {0, 5};
  const std::size_t row = Sequences::G * Sequences::D;
  std::vector<double> k(6 * 2 * row, NAN), v = k, d_k(k.size()), d_v(k.size());
  const auto each = [&](const auto& fn) {  // fn(element of the packed keys, of the pages)
    for (std::size_t n = 0; n < 2; ++n)
      for (Index j = 0; j < lengths[n]; ++j)
        for (std::size_t x = 0; x < row; ++x)
          fn(static_cast<std::size_t>(begin[n] + j) * row + x,
             static_cast<std::size_t>(page_of[3 * static_cast<Index>(n) + j / 2] * 2 + j % 2) *
                     row +
                 x);
  };
  each([&](std::size_t from, std::size_t to) { k[to] = s.k[from], v[to] = s.v[from]; });
  const std::vector<Index> shape{6, 2, Sequences::G, Sequences::D};
  const OwnedPositions q = explicit_positions(std::vector<Index>{2, 3, 4, 1, 2, 3});
  const OwnedPositions keys = arange(0, 6);
  AttentionArgs a;
  a.q = heads(s.q.data(), 6, Sequences::H, Sequences::D);
  a.k = heads(tensor(static_cast<const void*>(k.data()), DType::f64, shape), HeadsLayout::bthd);
  a.v = heads(tensor(static_cast<const void*>(v.data()), DType::f64, shape), HeadsLayout::bthd);
  a.query_positions = q;
  a.key_positions = keys;
  a.mask.causal = true;
  a.mask.query_cu_seqlens = tensor(q_cu, {3});
  a.mask.key_length = tensor(lengths, {2});
  a.block_table = tensor(page_of, {2, 3});
  run(s, a, 0, r, 12, d_k.data(), d_v.data());
  each([&](std::size_t to, std::size_t from) { r.d_k[to] = d_k[from], r.d_v[to] = d_v[from]; });
  return r;
}

TEST(AttentionEquality, PackedAndPagedRowsAreTheirSequences) {
  const Sequences s;
  const Answer alone = by_sequence(s);
  expect_same(packed_rows(s), alone);
  expect_same(paged_rows(s), alone);
}

// A line by thresholds between whole numbers is a line by whole distances.
TEST(AttentionEquality, EdgesBetweenWholeNumbersAreWholeDistances) {
  Sequences s;
  const Answer whole = by_sequence(s);
  std::get<ProductTerm>(s.terms[0]).lines[0] = s.low.line({0, 1, 2, 3}, {0.5, 1.5, 2.5}, 0);
  expect_same(by_sequence(s), whole);
}

// One table that two heads share is the same table given twice; gradients add up.
TEST(AttentionEquality, GroupsOfHeadsShareATable) {
  Sequences grouped, repeated;
  const std::vector<double> two = waves(2 * 8, 9);
  std::vector<double> four;
  for (const std::size_t head : {0u, 0u, 1u, 1u})
    four.insert(four.end(), two.begin() + static_cast<std::ptrdiff_t>(8 * head),
                two.begin() + static_cast<std::ptrdiff_t>(8 * head + 8));
  repeated.table = four;
  std::get<ProductTerm>(repeated.terms[0]).table =
      tensor(std::as_const(repeated.table).data(), {1, 4, 4, 2});
  const Answer want = by_sequence(repeated);
  // The reference alone: `run` takes gradients of four heads.
  const std::vector<double> zero(24);
  std::vector<double> out(24);
  AttentionArgs a;
  a.q = heads(grouped.q.data(), 3, 4, 2);
  a.k = heads(grouped.k.data(), 5, 2, 2);
  a.v = heads(grouped.v.data(), 5, 2, 2);
  const OwnedPositions q = arange(2, 3), k = arange(0, 5);
  a.query_positions = q;
  a.key_positions = k;
  a.mask.causal = true;
  a.mask.query_offset = 2;
  a.scale = 0.6;
  std::get<ProductTerm>(grouped.terms[0]).table = tensor(two.data(), {1, 2, 4, 2});
  a.terms = grouped.terms;
  support::attention_forward(a, {heads(out.data(), 3, 4, 2), {}});
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], want.out[i], 1e-14);
}

}  // namespace
}  // namespace posenc
