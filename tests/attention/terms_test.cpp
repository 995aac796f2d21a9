// SPDX-License-Identifier: Apache-2.0
// Every kind of term of the reference against a program that computes it, forward and backward.
#include <gtest/gtest.h>

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

std::vector<std::int32_t> iota(std::int32_t n, std::int32_t first = 0, std::int32_t step = 1) {
  std::vector<std::int32_t> v;
  for (std::int32_t i = 0; i < n; ++i) v.push_back(first + i * step);
  return v;
}
// [1, n, d] from a shared table [n, d].
TensorView shared(TensorView v) {
  TensorView r = v;
  r.rank = 3;
  r.shape = {1, v.shape[v.rank == 3 ? 1 : 0], v.shape[v.rank == 3 ? 2 : 1], 0, 0};
  r.stride = {0, r.shape[2], 1, 0, 0};
  return r;
}
Term rows_term(TermKind kind, double scale, const IndexLine& line, const TensorView& table) {
  Term t;
  t.kind = kind;
  t.scale = scale;
  t.lines[0] = line;
  t.table = table;
  return t;
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
  const TensorView table = c.view("table");
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
      TensorView v = c.view(what);  // [1, H, 2S, D]
      TensorView t = v;
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
  const TensorView r = shared(c.view("R"));  // row 6 + n is R of n, n = -6 .. 5
  Term queries = rows_term(TermKind::query_rows, 1, c.lowered.line(iota(11, 11, -1), -5), r);
  queries.query_bias = c.view("v_bias");
  const Term keys = rows_term(TermKind::key_rows, 1, c.lowered.line(iota(11, 1), -5), r);
  c.lowered.terms = {u, queries, keys};
  c.run();
  c.expect_core();
  c.expect("grad_u", c.terms[0].query_bias);
  c.expect("grad_v_bias", c.terms[1].query_bias);
}

// multiply_line: KERPLE's weighted power kernel.
TEST(AttentionTerms, MultiplyLineIsKerplesWeight) {
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
      weight.push_back(std::exp(-wa[h] * std::pow(d, wp[h])));
    }
  const IndexLine line = c.lowered.line(iota(7), 0);
  c.lowered.terms.push_back(rows_term(TermKind::line, 1, line, c.lowered.table(bias, {2, 7})));
  c.lowered.terms.push_back(
      rows_term(TermKind::multiply_line, 1, line, c.lowered.table(weight, {2, 7})));
  c.run();
  c.expect_core();
  std::vector<double> d_wa(2), d_a(2);
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t d = 0; d < 7; ++d) {
      const auto delta = static_cast<double>(d);
      d_a[h] -=
          static_cast<const double*>(c.terms[0].table.data)[h * 7 + d] * std::pow(delta, p[h]);
      d_wa[h] -= static_cast<const double*>(c.terms[1].table.data)[h * 7 + d] * weight[h * 7 + d] *
                 std::pow(delta, wp[h]);
    }
  c.expect("grad_bias_a", d_a.data(), 2);
  c.expect("grad_wei_a", d_wa.data(), 2);
}

// fire: the DAPE authors' FIRE, past its threshold too.
TEST(AttentionTerms, FireOfItsAuthors) {
  for (const char* name : {"fire_dape", "fire_dape_past_threshold", "fire_dape_megatron_half_L"}) {
    AttentionCase c(bias_suite(), name);
    c.tolerance = 1e-11;
    c.args.mask.visible = c.flags("mask");
    c.args.scale = 0.5;
    const double threshold = std::string(name) == "fire_dape"                   ? 512
                             : std::string(name) == "fire_dape_megatron_half_L" ? 5
                                                                                : 4;
    const double multiplier = c.array("L_multiplier").value[0];
    const std::vector<double> w1 = c.array("mlp_0_weight").value, b1 = c.array("mlp_0_bias").value;
    const std::vector<double> w2 = c.array("mlp_2_weight").value, b2 = c.array("mlp_2_bias").value;
    const Index width = static_cast<Index>(w1.size()), h = c.args.qk.q.heads;
    std::vector<double> first = w1, second;
    first.insert(first.end(), b1.begin(), b1.end());
    for (Index i = 0; i < h; ++i) {
      second.insert(second.end(), w2.begin() + i * width, w2.begin() + (i + 1) * width);
      second.push_back(b2[static_cast<std::size_t>(i)]);
    }
    Term t;
    t.kind = TermKind::fire;
    t.table = c.lowered.table(first, {2, width});
    t.table2 = c.lowered.table(second, {h, width + 1});
    t.table3 = c.lowered.table({c.array("c").value[0], std::fabs(multiplier * threshold)}, {2});
    c.lowered.terms.push_back(t);
    c.run();
    c.expect_core();
    const auto* d = static_cast<const double*>(c.terms[0].table.data);
    c.expect("grad_mlp_0_weight", d, width);
    c.expect("grad_mlp_0_bias", d + width, width);
    const auto* d3 = static_cast<const double*>(c.terms[0].table3.data);
    c.expect("grad_c", d3, 1);
    const double by_multiplier = d3[1] * threshold * (multiplier < 0 ? -1 : 1);
    c.expect("grad_L_multiplier", &by_multiplier, 1);
  }
}

// cope: the authors' two forms and a gate key of its own; x-transformers'.
TEST(AttentionTerms, CopeOfItsAuthors) {
  for (const char* name : {"cope_ram_default", "cope_ram_nodiv", "cope_ram_sep_key"}) {
    AttentionCase c(content_suite(), name);
    c.args.mask.visible = c.flags("visible");
    Term t;
    t.kind = TermKind::cope;
    t.gate_scale = c.args.scale;
    t.scale = std::string(name) == "cope_ram_nodiv" ? 1 : c.args.scale;
    const TensorView e = c.view("pos_emb");  // [1, D, n]
    t.table = e;
    t.table.shape = {1, e.shape[2], e.shape[1], 0, 0};
    t.table.stride = {0, 1, e.shape[2], 0, 0};
    if (std::string(name) == "cope_ram_sep_key") t.gate_key = c.heads_of("key_cope");
    c.lowered.terms.push_back(t);
    c.run();
    c.expect_core();
    std::vector<double> d;  // [n, D] of ours -> [D, n]
    for (Index x = 0; x < e.shape[1]; ++x)
      for (Index m = 0; m < e.shape[2]; ++m)
        d.push_back(static_cast<const double*>(c.terms[0].table.data)[m * e.shape[1] + x]);
    c.expect("grad_pos_emb", d.data(), static_cast<Index>(d.size()));
    if (t.gate_key.data != nullptr) c.expect("grad_key_cope", c.d_gate);
  }
  AttentionCase c(content_suite(), "cope_xt_square");
  c.args.mask.visible = c.flags("visible");
  Term t;
  t.kind = TermKind::cope;
  t.gate_scale = c.args.scale;
  t.table = shared(c.view("pos_emb"));
  c.lowered.terms.push_back(t);
  c.run();
  c.expect_core();
  c.expect("grad_pos_emb", c.terms[0].table);
}

// dape: both versions, with ALiBi under it and with nothing.
TEST(AttentionTerms, DapeOfItsAuthors) {
  for (const char* name : {"dape_v1_nope", "dape_v1_alibi", "dape_v2_alibi"}) {
    AttentionCase c(bias_suite(), name);
    c.args.mask.visible = c.flags("mask");
    c.args.scale = 0.5;
    const Index h = c.args.qk.q.heads;
    if (std::string(name) != "dape_v1_nope")
      Alibi{}.lower({h, c.args.qk.q.dim, 0, 8}, {}, c.lowered);
    const auto conv = [&](const char* what) {  // [out, in(, 1, K)] -> [out, in, K]
      TensorView v = c.view(what);
      const Index k = v.rank == 4 ? v.shape[3] : 1;
      v.rank = 3;
      v.shape[2] = k;
      v.stride = {v.shape[1] * k, k, 1, 0, 0};
      return v;
    };
    Term t;
    t.kind = TermKind::dape;
    t.slope = 0.01;
    t.table = conv("mlp2_0_weight");
    t.table2 = conv("mlp2_2_weight");
    std::vector<double> b = c.array("mlp2_0_bias").value;
    const std::vector<double> b2 = c.array("mlp2_2_bias").value;
    const Index width = static_cast<Index>(b.size());
    b.insert(b.end(), b2.begin(), b2.end());
    t.table3 = c.lowered.table(b, {width + h});
    c.lowered.terms.push_back(t);
    c.run();
    c.expect_core();
    const TermGradient& g = c.terms.back();
    c.expect("grad_mlp2_0_weight", g.table);
    c.expect("grad_mlp2_2_weight", g.table2);
    c.expect("grad_mlp2_0_bias", static_cast<const double*>(g.table3.data), width);
    c.expect("grad_mlp2_2_bias", static_cast<const double*>(g.table3.data) + width, h);
  }
}

// extra_channels say what a dense bias of their products says.
TEST(AttentionTerms, ExtraChannelsAreADenseBiasOfTheirProducts) {
  AttentionCase channels(bias_suite(), "swin_attn_timm_2x3"),
      dense(bias_suite(), "swin_attn_timm_2x3");
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
  Term t;
  t.kind = TermKind::extra_channels;
  t.scale = 0.4;
  t.table = channels.lowered.table(a, {2, 6, 3, 2});
  t.table2 = channels.lowered.table(b, {2, 6, 3, 2});
  channels.lowered.terms.push_back(t);
  dense.args.mask.bias = dense.lowered.table(bias, {2, 3, 6, 6});
  channels.run();
  dense.run();
  const auto same = [](const TensorView& x, const TensorView& y) {
    for (Index i = 0; i < x.count(); ++i)
      EXPECT_NEAR(static_cast<const double*>(x.data)[i], static_cast<const double*>(y.data)[i],
                  1e-13);
  };
  same(channels.out, dense.out);
  same(channels.d_q, dense.d_q);
  same(channels.d_k, dense.d_k);
}

}  // namespace
}  // namespace posenc
