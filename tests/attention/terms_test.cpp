// SPDX-License-Identifier: Apache-2.0
// Every kind of term of the reference against a program that computes it, forward and backward.
#include <gtest/gtest.h>

#include "attention/term_tools.h"
#include "posenc/positions/grid.h"
#include "posenc/relative/alibi.h"
#include "posenc/relative/t5.h"
#include "support/attention_case.h"

namespace posenc {
namespace {

using support::AttentionCase;
using support::Suite;

const Suite& bias_suite() {
  static const Suite s("relative_bias");
  return s;
}
const Suite& content_suite() {
  static const Suite s("relative_content");
  return s;
}

// linear: BLOOM's layer; its key-only form has the same output and gradients.
TEST(AttentionTerms, LinearIsAlibi) {
  for (const char* name : {"alibi_attn_bloom", "alibi_attn_bloom_5_heads", "alibi_attn_bloom_chunk",
                           "alibi_attn_bloom_decode"}) {
    AttentionCase c(bias_suite(), name);
    c.args.mask.visible = c.flags("mask");
    c.args.mask.visible.rank = 4;  // [B, Tq, Tk] -> [B, 1, Tq, Tk]
    const Index tq = c.args.qk.q.tokens, tk = c.args.qk.k.tokens;
    c.args.mask.visible.shape = {c.args.qk.q.batch, 1, tq, tk, 0};
    c.args.mask.visible.stride = {tq * tk, 0, tk, 1, 0};
    c.args.query_positions = positions(c.integers("q_pos"));
    c.args.key_positions = positions(c.integers("k_pos"));
    Alibi{}.lower({c.args.qk.q.heads, c.args.qk.q.dim, 0, tk}, {}, c.lowered);
    c.run();
    c.expect_core();
  }
}

// line of two axes: Swin's window.
TEST(AttentionTerms, LineOfTwoAxesIsSwin) {
  AttentionCase c(bias_suite(), "swin_attn_timm_2x3");
  const OwnedPositions p = grid({2, 3});
  c.args.query_positions = c.args.key_positions = p;
  Term t;
  t.kind = TermKind::line;
  t.lines[0] = c.lowered.line(iota(3, 0, 5), -1, 0);
  t.lines[1] = c.lowered.line(iota(5), -2, 1);
  const ConstTensorView table = c.view("table");
  t.table = c.lowered.table(c.transposed(table), {3, 15});
  c.lowered.terms.push_back(t);
  c.args.scale = 0.5;
  c.run();
  c.expect_core();
  const std::vector<double> d = c.transposed(c.terms[0].table);
  c.expect("grad_table", d.data(), 45);
}

// line by distance and by segments: CPM-Ant.
TEST(AttentionTerms, LineOfPairsIsCpmAnt) {
  AttentionCase c(bias_suite(), "cpmant_bias");
  c.args.scale = 0.5;
  // Rows by distance inside a segment, rows by segment pair across: two terms, each silent where
  // the other speaks.
  const T5 rule{.bidirectional = true, .num_buckets = 12, .max_distance = 6};
  std::vector<std::int32_t> by_distance;
  for (Index delta = -8; delta <= 8; ++delta)
    by_distance.push_back(static_cast<std::int32_t>(rule.bucket(delta)));
  Term near, across;
  near.kind = across.kind = TermKind::line;
  near.lines[0] = c.lowered.line(by_distance, -8);
  near.pair = c.lowered.pair({0, -1, -1, 0}, 2, 2);
  across.pair = c.lowered.pair({-1, 13, 14, -1}, 2, 2);
  for (Term* t : {&near, &across}) {
    t->pair.query_class = t->pair.key_class = c.integers("segment");
    t->table = c.lowered.table(c.transposed(c.view("table")), {3, 16});
  }
  c.lowered.terms = {near, across};
  c.run();
  c.expect_core();
  std::vector<double> d = c.transposed(c.terms[0].table);
  const std::vector<double> other = c.transposed(c.terms[1].table);
  for (std::size_t i = 0; i < d.size(); ++i) d[i] += other[i];
  c.expect("grad_table", d.data(), 48);
}

// vectors: forgetting gates, c_i - c_j.
TEST(AttentionTerms, VectorsAreForgettingGates) {
  AttentionCase c(bias_suite(), "forgetting_fla");
  c.args.mask.causal = true;
  const std::vector<double> gate = c.array("log_gate").value;  // [2, 4, 8]
  std::vector<double> query(gate.size()), key(gate.size());
  for (std::size_t row = 0; row < 8; ++row) {
    double total = 0;
    for (std::size_t t = 0; t < 8; ++t) {
      total += gate[row * 8 + t];
      query[row * 8 + t] = total;
      key[row * 8 + t] = -total;
    }
  }
  Term t;
  t.kind = TermKind::vectors;
  t.table = c.lowered.table(key, {2, 4, 8});
  t.table2 = c.lowered.table(query, {2, 4, 8});
  c.lowered.terms.push_back(t);
  c.run();
  c.expect_core();
  std::vector<double> d(gate.size());
  for (std::size_t row = 0; row < 8; ++row) {
    double total = 0;
    for (std::size_t s = 8; s-- > 0;) {
      total += static_cast<const double*>(c.terms[0].table2.data)[row * 8 + s] -
               static_cast<const double*>(c.terms[0].table.data)[row * 8 + s];
      d[row * 8 + s] = total;
    }
  }
  c.expect("grad_log_gate", d.data(), 64);
}

// query_rows and value_rows: Shaw's two tables, clipped; rows by key - query.
TEST(AttentionTerms, QueryAndValueRowsAreShaw) {
  for (const char* name : {"t2t_shaw", "t2t_shaw_decode"}) {
    AttentionCase c(content_suite(), name);
    c.args.scale = 1;
    const IndexLine line = c.lowered.line(iota(7, 6, -1), -3);
    c.lowered.terms.push_back(
        rows_term(TermKind::query_rows, 1, line, shared(c.view("relative_positions_keys"))));
    c.lowered.terms.push_back(
        rows_term(TermKind::value_rows, 1, line, shared(c.view("relative_positions_values"))));
    c.run();
    c.expect_core();
    c.expect("grad_relative_positions_keys", c.terms[0].table);
    c.expect("grad_relative_positions_values", c.terms[1].table);
  }
}

// A row of -1 is no row: VITS has none outside its window, Music Transformer beyond its table.
TEST(AttentionTerms, RowsMayEnd) {
  {
    AttentionCase c(content_suite(), "vits_window");
    std::vector<std::int32_t> row = iota(7, 6, -1);
    row.insert(row.begin(), -1);
    row.push_back(-1);
    const IndexLine line = c.lowered.line(row, -4);
    c.lowered.terms.push_back(
        rows_term(TermKind::query_rows, c.args.scale, line, shared(c.view("table_k"))));
    c.lowered.terms.push_back(rows_term(TermKind::value_rows, 1, line, shared(c.view("table_v"))));
    c.run();
    c.expect_core();
    c.expect("grad_table_k", c.terms[0].table);
    c.expect("grad_table_v", c.terms[1].table);
  }
  {
    AttentionCase c(content_suite(), "t2t_unmasked_v2");  // a table a head
    c.args.scale = 1;
    std::vector<std::int32_t> row = iota(7, 6, -1);
    row.insert(row.begin(), -1);
    row.push_back(-1);
    const IndexLine line = c.lowered.line(row, -4);
    c.lowered.terms.push_back(
        rows_term(TermKind::query_rows, 1, line, c.view("key_relative_embeddings")));
    c.lowered.terms.push_back(
        rows_term(TermKind::value_rows, 1, line, c.view("value_relative_embeddings")));
    c.run();
    c.expect_core();
    c.expect("grad_key_relative_embeddings", c.terms[0].table);
    c.expect("grad_value_relative_embeddings", c.terms[1].table);
  }
}

// query_rows by position axes, from the unscaled query: SAM.
TEST(AttentionTerms, DecomposedRowsAreSam) {
  AttentionCase c(bias_suite(), "decomposed_attn_sam");
  const OwnedPositions p = grid({3, 3});
  c.args.query_positions = c.args.key_positions = p;
  c.lowered.terms.push_back(rows_term(TermKind::query_rows, 1, c.lowered.line(iota(5), -2, 0),
                                      shared(c.view("rel_pos_h"))));
  c.lowered.terms.push_back(rows_term(TermKind::query_rows, 1, c.lowered.line(iota(5), -2, 1),
                                      shared(c.view("rel_pos_w"))));
  c.run();
  c.expect_core();
  c.expect("grad_rel_pos_h", c.terms[0].table);
  c.expect("grad_rel_pos_w", c.terms[1].table);
}

// query_bias, query_rows by distance and by segments: XLNet, both directions.
TEST(AttentionTerms, XlnetWithSegments) {
  AttentionCase c(content_suite(), "xlnet_padding_segments");
  c.args.mask.visible = c.flags("visible");
  const double s = c.args.scale;
  Term u, distance, segment;
  u.kind = TermKind::query_bias;
  u.scale = s;
  u.query_bias = c.view("u");
  // R_projected [batch, head, row, channel] is the same for every batch entry here.
  const std::vector<double>& r = c.array("R_projected").value;
  distance = rows_term(TermKind::query_rows, s, c.lowered.line(iota(10, 9, -1), -4),
                       c.lowered.table({r.begin(), r.begin() + 120}, {3, 10, 4}));
  distance.query_bias = c.view("v_bias");
  const std::vector<double>& e = c.array("seg_embed").value;  // [2, 3, 4]
  std::vector<double> by_head;
  for (std::size_t h = 0; h < 3; ++h)
    for (std::size_t n = 0; n < 2; ++n)
      for (std::size_t x = 0; x < 4; ++x) by_head.push_back(e[(n * 3 + h) * 4 + x]);
  segment.kind = TermKind::query_rows;
  segment.scale = s;
  segment.pair = c.lowered.pair({0, 1, 1, 0}, 2, 2);
  segment.table = c.lowered.table(by_head, {3, 2, 4});
  segment.query_bias = c.view("s_bias");
  // Segment of a token: whether it differs from token 0's.
  const std::vector<double>& differs = c.array("segment_differs").value;  // [3, 5, 5]
  std::vector<Index> class_of;
  for (std::size_t b = 0; b < 3; ++b)
    for (std::size_t t = 0; t < 5; ++t) class_of.push_back(static_cast<Index>(differs[b * 25 + t]));
  segment.pair.query_class = segment.pair.key_class =
      tensor(static_cast<void*>(class_of.data()), DType::i64, std::vector<Index>{3, 5});
  c.lowered.terms = {u, distance, segment};
  c.run();
  c.expect_core();
  c.expect("grad_u", c.terms[0].query_bias);
  c.expect("grad_v_bias", c.terms[1].query_bias);
  c.expect("grad_s_bias", c.terms[2].query_bias);
}

// query_rows and key_rows with one index: DeBERTa as released.
TEST(AttentionTerms, KeyRowsAreDeberta) {
  for (const char* name : {"deberta_v2_buckets", "deberta_v2_module_share_att_key"}) {
    AttentionCase c(content_suite(), name);
    c.args.scale = 1 / std::sqrt(3.0 * static_cast<double>(c.args.qk.q.dim));
    const Index n = c.args.qk.q.tokens;
    const std::vector<Index> rows = c.array("row_c2p").integers();
    std::vector<std::int32_t> row;  // by delta, from the peer's own index
    for (Index delta = -(n - 1); delta < n; ++delta)
      row.push_back(static_cast<std::int32_t>(delta >= 0 ? rows[static_cast<std::size_t>(delta * n)]
                                                         : rows[static_cast<std::size_t>(-delta)]));
    const IndexLine line = c.lowered.line(row, -(n - 1));
    const auto table = [&](const char* what) {
      ConstTensorView v = c.view(what);  // [1, H, 2S, D]
      ConstTensorView t = v;
      t.rank = 3;
      t.shape = {v.shape[1], v.shape[2], v.shape[3], 0, 0};
      t.stride = {v.stride[1], v.stride[2], v.stride[3], 0, 0};
      return t;
    };
    c.lowered.terms.push_back(
        rows_term(TermKind::query_rows, c.args.scale, line, table("pos_key")));
    c.lowered.terms.push_back(
        rows_term(TermKind::key_rows, c.args.scale, line, table("pos_query")));
    c.run();
    c.expect_core();
    c.expect_pairs("scores", c.detail.scores);
    c.expect("grad_pos_key", c.terms[0].table);
    c.expect("grad_pos_query", c.terms[1].table);
  }
}

// TENER's five terms: u.k, (q + v).R[j - i], k.R[i - j].
TEST(AttentionTerms, TenerHasFiveTerms) {
  AttentionCase c(content_suite(), "tener_square");
  c.args.scale = 1;
  Term u;
  u.kind = TermKind::query_bias;
  u.query_bias = c.view("u");
  const ConstTensorView r = shared(c.view("R"));  // row 6 + n is R of n, n = -6 .. 5
  Term queries = rows_term(TermKind::query_rows, 1, c.lowered.line(iota(11, 11, -1), -5), r);
  queries.query_bias = c.view("v_bias");
  const Term keys = rows_term(TermKind::key_rows, 1, c.lowered.line(iota(11, 1), -5), r);
  c.lowered.terms = {u, queries, keys};
  c.run();
  c.expect_core();
  c.expect("grad_u", c.terms[0].query_bias);
  c.expect("grad_v_bias", c.terms[1].query_bias);
}

}  // namespace
}  // namespace posenc
