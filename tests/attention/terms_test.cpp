// SPDX-License-Identifier: Apache-2.0
// Products, linear terms and value rows of the reference against programs that compute them,
// forward and backward.
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
// [B, Tq, Tk] -> [B, 1, Tq, Tk]
ConstTensorView for_all_heads(ConstTensorView v) {
  v.rank = 4;
  v.shape = {v.shape[0], 1, v.shape[1], v.shape[2], 0};
  v.stride = {v.stride[0], 0, v.stride[1], v.stride[2], 0};
  return v;
}

// linear: BLOOM's layer; its key-only form has the same output and gradients.
TEST(AttentionTerms, LinearIsAlibi) {
  for (const char* name : {"alibi_attn_bloom", "alibi_attn_bloom_5_heads", "alibi_attn_bloom_chunk",
                           "alibi_attn_bloom_decode"}) {
    AttentionCase c(bias_suite(), name);
    c.args.mask.visible = for_all_heads(c.flags("mask"));
    c.args.query_positions = positions(c.integers("q_pos"));
    c.args.key_positions = positions(c.integers("k_pos"));
    Alibi{}.lower({.heads = c.args.q.heads, .head_dim = c.args.q.dim}, {}, c.lowered);
    c.run();
    c.expect_core();
  }
}

// t of two axes: Swin's window.
TEST(AttentionTerms, RowsOfTwoAxesAreSwin) {
  AttentionCase c(bias_suite(), "swin_attn_timm_2x3");
  const OwnedPositions p = grid({2, 3});
  c.args.query_positions = c.args.key_positions = p;
  ProductTerm t;
  t.lines[0] = c.lowered.line(iota(3, 0, 5), -1, 0);
  t.lines[1] = c.lowered.line(iota(5), -2, 1);
  t.table = c.lowered.table(transposed(c.array("table").value, 15, 3), 3, 15, 1);
  c.lowered.add(t);
  c.args.scale = 0.5;
  c.run();
  c.expect_core();
  c.expect("grad_table", transposed(dense(c.terms[0].table), 3, 15));
}

// t by distance and by segments: CPM-Ant. Rows by distance inside a segment, rows by segment pair
// across: two terms of one table, each void where the other serves.
TEST(AttentionTerms, RowsOfPairsAreCpmAnt) {
  AttentionCase c(bias_suite(), "cpmant_bias");
  c.args.scale = 0.5;
  const T5 rule{.bidirectional = true, .num_buckets = 12, .max_distance = 6};
  std::vector<std::int32_t> by_distance;
  for (Index delta = -8; delta <= 8; ++delta)
    by_distance.push_back(static_cast<std::int32_t>(rule.bucket(delta)));
  ProductTerm near, across;
  near.lines[0] = c.lowered.line(by_distance, -8);
  near.pair = c.lowered.pair({0, -1, -1, 0}, 2, 2);
  across.pair = c.lowered.pair({-1, 13, 14, -1}, 2, 2);
  for (ProductTerm* t : {&near, &across}) {
    t->pair.query_class = t->pair.key_class = c.integers("segment");
    t->table = c.lowered.table(transposed(c.array("table").value, 16, 3), 3, 16, 1);
    c.lowered.add(*t);
  }
  c.run();
  c.expect_core();
  std::vector<double> d = dense(c.terms[0].table);
  const std::vector<double> other = dense(c.terms[1].table);
  for (std::size_t i = 0; i < d.size(); ++i) d[i] += other[i];
  c.expect("grad_table", transposed(d, 3, 16));
}

// Rows of real distances by thresholds: UDOP's boxes, bucketed at trunc(100 |delta|). On the far
// side a bucket begins just above its distance.
IndexLine box_line(AttentionCase& c, const T5& rule, std::int32_t axis) {
  const Index side = rule.side();
  std::vector<Index> first(static_cast<std::size_t>(side), -1);  // distance of each bucket
  for (Index n = rule.max_distance; n >= 0; --n)
    first[static_cast<std::size_t>(rule.bucket(n))] = n;
  std::vector<std::int32_t> row;
  std::vector<double> edges;
  for (Index b = side - 1; b > 0; --b) {
    row.push_back(static_cast<std::int32_t>(side + b));
    edges.push_back(
        std::nextafter(-static_cast<double>(first[static_cast<std::size_t>(b)]) / 100, HUGE_VAL));
  }
  row.push_back(0);
  for (Index b = 1; b < side; ++b) {
    row.push_back(static_cast<std::int32_t>(b));
    edges.push_back(static_cast<double>(first[static_cast<std::size_t>(b)]) / 100);
  }
  return c.lowered.line(std::move(row), std::move(edges), axis);
}
TEST(AttentionTerms, RowsByThresholdsAreUdopsBoxes) {
  AttentionCase c(bias_suite(), "udop_bias");
  const std::vector<double> box = c.array("bbox").value;  // [B, T, 4]
  const Index b = c.args.q.batch, tokens = c.args.q.tokens, heads = c.args.q.heads;
  std::vector<double> place;  // axes: the token, the middle of its box across, and down
  for (Index i = 0; i < b * tokens; ++i) place.push_back(static_cast<double>(i % tokens));
  for (const std::size_t axis : {0u, 1u})
    for (std::size_t i = axis; i < box.size(); i += 4)
      place.push_back((static_cast<float>(box[i]) + static_cast<float>(box[i + 2])) / 2);
  const OwnedPositions p = explicit_positions(place, b, 3);
  c.args.query_positions = c.args.key_positions = p;
  c.args.scale = 1;
  if (c.has("mask")) c.args.mask.visible = c.flags("mask");
  const T5 rule{.num_buckets = 32, .max_distance = 128},
      box_rule{.num_buckets = 32, .max_distance = 100};
  const auto table = [&](const char* what) {
    return c.lowered.table(transposed(c.array(what).value, 32, heads), heads, 32, 1);
  };
  std::vector<std::int32_t> by_token;
  for (Index d = -tokens; d <= tokens; ++d)
    by_token.push_back(static_cast<std::int32_t>(rule.bucket(d)));
  c.lowered.add(numbers_term(table("table_1d"), c.lowered.line(by_token, -tokens, 0)));
  c.lowered.add(numbers_term(table("table_horizontal"), box_line(c, box_rule, 1)));
  c.lowered.add(numbers_term(table("table_vertical"), box_line(c, box_rule, 2)));
  c.run();
  c.expect_core();
  c.expect_pairs("bias", c.detail.terms);
  const char* names[] = {"grad_table_1d", "grad_table_horizontal", "grad_table_vertical"};
  for (std::size_t t = 0; t < 3; ++t)
    c.expect(names[t], transposed(dense(c.terms[t].table), heads, 32));
}

// q t and value_rows: Shaw's two tables, clipped; rows by key - query.
TEST(AttentionTerms, QueryAndValueRowsAreShaw) {
  for (const char* name : {"t2t_shaw", "t2t_shaw_decode"}) {
    AttentionCase c(content_suite(), name);
    c.args.scale = 1;
    const IndexLine line = c.lowered.line(iota(7, 6, -1), -3);
    c.lowered.add(query_rows(rows(c.view("relative_positions_keys")), line, 1));
    c.lowered.add(value_rows(rows(c.view("relative_positions_values")), line));
    c.run();
    c.expect_core();
    c.expect("grad_relative_positions_keys", c.terms[0].table);
    c.expect("grad_relative_positions_values", c.terms[1].table);
  }
}

// A row of -1 is no row: VITS has none outside its window, Music Transformer beyond its table.
TEST(AttentionTerms, RowsMayEnd) {
  std::vector<std::int32_t> row = iota(7, 6, -1);
  row.insert(row.begin(), -1);
  row.push_back(-1);
  {
    AttentionCase c(content_suite(), "vits_window");
    const IndexLine line = c.lowered.line(row, -4);
    c.lowered.add(query_rows(rows(c.view("table_k")), line, *c.args.scale));
    c.lowered.add(value_rows(rows(c.view("table_v")), line));
    c.run();
    c.expect_core();
    c.expect("grad_table_k", c.terms[0].table);
    c.expect("grad_table_v", c.terms[1].table);
  }
  {
    AttentionCase c(content_suite(), "t2t_unmasked_v2");  // a table a head
    c.args.scale = 1;
    const IndexLine line = c.lowered.line(row, -4);
    c.lowered.add(query_rows(rows(c.view("key_relative_embeddings")), line, 1));
    c.lowered.add(value_rows(rows(c.view("value_relative_embeddings")), line));
    c.run();
    c.expect_core();
    c.expect("grad_key_relative_embeddings", c.terms[0].table);
    c.expect("grad_value_relative_embeddings", c.terms[1].table);
  }
}

// q t by position axes, from the unscaled query: SAM.
TEST(AttentionTerms, DecomposedRowsAreSam) {
  AttentionCase c(bias_suite(), "decomposed_attn_sam");
  const OwnedPositions p = grid({3, 3});
  c.args.query_positions = c.args.key_positions = p;
  c.lowered.add(query_rows(rows(c.view("rel_pos_h")), c.lowered.line(iota(5), -2, 0), 1));
  c.lowered.add(query_rows(rows(c.view("rel_pos_w")), c.lowered.line(iota(5), -2, 1), 1));
  c.run();
  c.expect_core();
  c.expect("grad_rel_pos_h", c.terms[0].table);
  c.expect("grad_rel_pos_w", c.terms[1].table);
}

// u.k, q t and v t by distance, q t and s t by segments: XLNet, both directions.
TEST(AttentionTerms, XlnetWithSegments) {
  AttentionCase c(content_suite(), "xlnet_padding_segments");
  c.args.mask.visible = c.flags("visible");
  const double s = *c.args.scale;
  // R_projected [batch, head, row, channel] is the same for every batch entry here.
  const std::vector<double>& r = c.array("R_projected").value;
  const ConstTensorView table = c.lowered.table({r.begin(), r.begin() + 120}, 3, 10, 4);
  const IndexLine line = c.lowered.line(iota(10, 9, -1), -4);
  const std::vector<double>& e = c.array("seg_embed").value;  // [2, 3, 4]
  std::vector<double> by_head;
  for (std::size_t h = 0; h < 3; ++h)
    for (std::size_t n = 0; n < 2; ++n)
      for (std::size_t x = 0; x < 4; ++x) by_head.push_back(e[(n * 3 + h) * 4 + x]);
  const ConstTensorView segments = c.lowered.table(by_head, 3, 2, 4);
  ProductTerm segment = query_rows(segments, {}, s),
              segment_bias = vector_rows(c.view("s_bias"), segments, {}, s);
  segment.pair = c.lowered.pair({0, 1, 1, 0}, 2, 2);
  // Segment of a token: whether it differs from token 0's.
  const std::vector<double>& differs = c.array("segment_differs").value;  // [3, 5, 5]
  std::vector<Index> class_of;
  for (std::size_t b = 0; b < 3; ++b)
    for (std::size_t t = 0; t < 5; ++t) class_of.push_back(static_cast<Index>(differs[b * 25 + t]));
  segment.pair.query_class = segment.pair.key_class = c.integers(class_of, {3, 5});
  segment_bias.pair = segment.pair;
  c.lowered.terms = {vector_key(c.view("u"), s), query_rows(table, line, s),
                     vector_rows(c.view("v_bias"), table, line, s), segment, segment_bias};
  c.run();
  c.expect_core();
  c.expect("grad_u", c.terms[0].query);
  c.expect("grad_v_bias", c.terms[2].query);
  c.expect("grad_s_bias", c.terms[4].query);
}

// q t and k t with one line: DeBERTa as released.
TEST(AttentionTerms, KeyRowsAreDeberta) {
  for (const char* name : {"deberta_v2_buckets", "deberta_v2_module_share_att_key"}) {
    AttentionCase c(content_suite(), name);
    c.args.scale = 1 / std::sqrt(3.0 * static_cast<double>(c.args.q.dim));
    const Index n = c.args.q.tokens;
    const std::vector<Index> of_pair = c.array("row_c2p").integers();
    std::vector<std::int32_t> row;  // by delta, from the peer's own index
    for (Index delta = -(n - 1); delta < n; ++delta)
      row.push_back(static_cast<std::int32_t>(
          of_pair[static_cast<std::size_t>(delta >= 0 ? delta * n : -delta)]));
    const IndexLine line = c.lowered.line(row, -(n - 1));
    c.lowered.add(query_rows(rows(c.view("pos_key")), line, *c.args.scale));  // [1, H, 2S, D]
    c.lowered.add(key_rows(rows(c.view("pos_query")), line, *c.args.scale));
    c.run();
    c.expect_core();
    c.expect_pairs("scores", c.detail.scores);
    c.expect("grad_pos_key", c.terms[0].table);
    c.expect("grad_pos_query", c.terms[1].table);
  }
}

// TENER's terms: u.k, q.R and v.R of j - i, k.R of i - j.
TEST(AttentionTerms, TenerHasFiveTerms) {
  AttentionCase c(content_suite(), "tener_square");
  c.args.scale = 1;
  const ConstTensorView r = rows(c.view("R"));  // row 6 + n is R of n, n = -6 .. 5
  const IndexLine line = c.lowered.line(iota(11, 11, -1), -5);
  c.lowered.terms = {vector_key(c.view("u"), 1), query_rows(r, line, 1),
                     vector_rows(c.view("v_bias"), r, line, 1),
                     key_rows(r, c.lowered.line(iota(11, 1), -5), 1)};
  c.run();
  c.expect_core();
  c.expect("grad_u", c.terms[0].query);
  c.expect("grad_v_bias", c.terms[2].query);
}

// q k t: KERPLE's weighted power kernel; the content is multiplied by w, so t is w - 1.
TEST(AttentionTerms, QueryKeyRowsAreKerplesWeight) {
  AttentionCase c(bias_suite(), "kerple_power_weighted");
  c.args.mask.visible = c.flags("mask");
  c.args.scale = 0.5;
  const auto value = [&](const char* what) { return c.array(what).value; };
  const std::vector<double> a = value("bias_a"), p = value("bias_p"), wa = value("wei_a"),
                            wp = value("wei_p");
  std::vector<double> bias, weight;
  for (std::size_t h = 0; h < 2; ++h)
    for (int d = 0; d < 7; ++d) {
      bias.push_back(-a[h] * std::pow(d, p[h]));
      weight.push_back(std::expm1(-wa[h] * std::pow(d, wp[h])));
    }
  const IndexLine line = c.lowered.line(iota(7), 0);
  c.lowered.add(numbers_term(c.lowered.table(bias, 2, 7, 1), line));
  ProductTerm times = query_rows(c.lowered.table(weight, 2, 7, 1), line, *c.args.scale);
  times.key = kContent;
  c.lowered.add(times);
  c.run();
  c.expect_core();
  const std::vector<double> d_bias = dense(c.terms[0].table), d_weight = dense(c.terms[1].table);
  std::vector<double> d_wa(2), d_a(2);
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t d = 0; d < 7; ++d) {
      const auto delta = static_cast<double>(d);
      d_a[h] -= d_bias[h * 7 + d] * std::pow(delta, p[h]);
      d_wa[h] -= d_weight[h * 7 + d] * (weight[h * 7 + d] + 1) * std::pow(delta, wp[h]);
    }
  c.expect("grad_bias_a", d_a);
  c.expect("grad_wei_a", d_wa);
}

// x y of given vectors say what a dense bias of their products says.
TEST(AttentionTerms, GivenVectorsAreADenseBiasOfTheirProducts) {
  AttentionCase channels(bias_suite(), "swin_attn_timm_2x3"),
      other(bias_suite(), "swin_attn_timm_2x3");
  std::vector<double> a, b, bias;
  for (int i = 0; i < 2 * 6 * 3 * 2; ++i) {
    a.push_back(std::sin(0.7 * i));
    b.push_back(std::cos(1.3 * i));
  }
  for (Index n = 0; n < 2; ++n)
    for (Index h = 0; h < 3; ++h)
      for (Index i = 0; i < 6; ++i)
        for (Index j = 0; j < 6; ++j) {
          double s = 0;
          for (Index x = 0; x < 2; ++x)
            s += a[static_cast<std::size_t>(((n * 6 + i) * 3 + h) * 2 + x)] *
                 b[static_cast<std::size_t>(((n * 6 + j) * 3 + h) * 2 + x)];
          bias.push_back(0.4 * s);
        }
  ProductTerm t;
  t.scale = 0.4;
  t.query.given = channels.lowered.vectors(a, 2, 6, 3, 2);
  t.key.given = channels.lowered.vectors(b, 2, 6, 3, 2);
  channels.lowered.add(t);
  other.args.mask.bias = other.lowered.table(bias, 3, 6, 6, 2);
  channels.run();
  other.run();
  const auto same = [](const ConstTensorView& x, const ConstTensorView& y) {
    for (Index i = 0; i < x.count(); ++i)
      EXPECT_NEAR(data_of<double>(x)[i], data_of<double>(y)[i], 1e-13);
  };
  same(channels.out, other.out);
  same(channels.d_q, other.d_q);
  same(channels.d_k, other.d_k);
}

}  // namespace
}  // namespace posenc
