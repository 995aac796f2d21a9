// SPDX-License-Identifier: Apache-2.0
// Terms that are functions (of distance, of the score, of other terms) and gates, against the
// programs that compute them.
#include <gtest/gtest.h>

#include <numeric>

#include "attention/term_tools.h"
#include "posenc/relative/alibi.h"
#include "support/attention_case.h"

namespace posenc {
namespace {

using support::AttentionCase;
using support::Suite;

const Suite& functions_of_bias() {
  static const Suite s("relative_bias");
  return s;
}
const Suite& functions_of_content() {
  static const Suite s("relative_content");
  return s;
}

// The array of a case in another shape, kept by the case.
ConstTensorView shaped(AttentionCase& c, const std::string& what, std::vector<Index> shape) {
  return c.lowered.array(c.array(what).value, shape);
}

// distance_mlp: the DAPE authors' FIRE, past its threshold too, and flashT5's with a sign.
TEST(AttentionTerms, DistanceMlpIsFire) {
  struct Setting {
    const char* name;
    double threshold;
    bool keep_sign;
  };
  for (const Setting& s :
       {Setting{"fire_dape", 512, false}, Setting{"fire_dape_past_threshold", 4, false},
        Setting{"fire_dape_megatron_half_L", 5, false}, Setting{"fire_flasht5_signed", 3, true}}) {
    AttentionCase c(functions_of_bias(), s.name);
    c.tolerance = 1e-11;
    if (c.has("mask")) c.args.mask.visible = c.flags("mask");
    c.args.scale = 0.5;
    const double multiplier = c.array("L_multiplier").value[0];
    const Index width = c.array("mlp_0_bias").dim(0), h = c.args.q.heads;
    DistanceMlpTerm t;
    t.keep_sign = s.keep_sign;
    t.table =
        c.lowered.table({c.array("c").value[0], std::fabs(multiplier * s.threshold)}, 1, 1, 2);
    t.mlp = {shaped(c, "mlp_0_weight", {width, 1, 1}), shaped(c, "mlp_0_bias", {width}),
             shaped(c, "mlp_2_weight", {h, width, 1}), shaped(c, "mlp_2_bias", {h}), 0};
    c.lowered.add(t);
    c.run();
    c.expect_core();
    const TermGradient& g = c.terms[0];
    c.expect("grad_mlp_0_weight", g.mlp.in);
    c.expect("grad_mlp_0_bias", g.mlp.in_bias);
    c.expect("grad_mlp_2_weight", g.mlp.out);
    // A sum of gradients of scores over whole rows, 0 in exact arithmetic.
    c.expect("grad_mlp_2_bias", g.mlp.out_bias);
    const double* d = data_of<double>(g.table);
    c.expect("grad_c", d, 1);
    const double by_multiplier = d[1] * s.threshold * (multiplier < 0 ? -1 : 1);
    c.expect("grad_L_multiplier", &by_multiplier, 1);
  }
}

// gates with a table: CoPE's authors' two scalings, gate keys of its own, gates from values.
TEST(AttentionTerms, GatesAreCope) {
  for (const char* name :
       {"cope_ram_default", "cope_ram_nodiv", "cope_ram_sep_key", "cope_ram_val_gates"}) {
    AttentionCase c(functions_of_content(), name);
    const std::string n = name;
    c.args.mask.visible = c.flags("visible");
    GatesTerm t;
    t.gate_scale = *c.args.scale;
    t.scale = n == "cope_ram_nodiv" || n == "cope_ram_val_gates" ? 1 : *c.args.scale;
    t.query = t.key = kContent;
    if (n == "cope_ram_sep_key") t.key = {false, c.heads_of("key_cope")};
    if (n == "cope_ram_val_gates") t.key = {false, c.args.v};
    const Index d = c.array("pos_emb").dim(1), positions = c.array("pos_emb").dim(2);
    t.table = c.lowered.table(transposed(c.array("pos_emb").value, d, positions), 1, positions, d);
    c.lowered.add(t);
    c.run();
    if (n == "cope_ram_val_gates") {
      // The gates are the call's own values: their gradient joins that of v. [B, T, H, D] here.
      const Heads& from = c.terms[0].key;
      double* to = data_of<double>(c.d_v);
      for (Index i = 0; i < from.tokens; ++i)
        for (Index h = 0; h < from.heads; ++h)
          for (Index x = 0; x < from.dim; ++x)
            to[(h * from.tokens + i) * from.dim + x] += static_cast<const double*>(
                from.data)[i * from.token_stride + h * from.head_stride + x];
    }
    c.expect_core();
    c.expect("grad_pos_emb", transposed(dense(c.terms[0].table), positions, d));
    if (n != "cope_ram_sep_key") continue;
    const Heads& g = c.terms[0].key;  // [B, T, H, D], the case's [B, H, T, D]
    std::vector<double> by_head;
    for (Index b = 0; b < g.batch; ++b)
      for (Index h = 0; h < g.heads; ++h)
        for (Index i = 0; i < g.tokens; ++i)
          for (Index x = 0; x < g.dim; ++x)
            by_head.push_back(static_cast<const double*>(
                g.data)[b * g.batch_stride + i * g.token_stride + h * g.head_stride + x]);
    c.expect("grad_key_cope", by_head);
  }
  AttentionCase c(functions_of_content(), "cope_xt_square");
  c.args.mask.visible = c.flags("visible");
  GatesTerm t;
  t.gate_scale = *c.args.scale;
  t.query = t.key = kContent;
  t.table = rows(c.view("pos_emb"));
  c.lowered.add(t);
  c.run();
  c.expect_core();
  c.expect("grad_pos_emb", c.terms[0].table);
}

// gates without a table that leave out the own key: a forgetting gate for every pair.
TEST(AttentionTerms, GatesOfEveryPairForget) {
  AttentionCase c(functions_of_content(), "fox_xt_per_row");
  c.args.mask.visible = c.flags("visible");
  c.args.mask.causal = true;
  // hidden w_f^T [2, 6, 12]: the gates' queries, then their keys, [2 heads, 3] each.
  const std::vector<double> w = c.array("w_f").value, hidden = c.array("hidden").value;
  std::vector<double> query, key;
  for (std::size_t token = 0; token < 12; ++token)
    for (std::size_t o = 0; o < 12; ++o) {
      double sum = 0;
      for (std::size_t x = 0; x < 6; ++x) sum += hidden[token * 6 + x] * w[o * 6 + x];
      (o < 6 ? query : key).push_back(sum);
    }
  GatesTerm t;
  t.gate = Gate::log_sigmoid;
  t.gate_own = false;
  t.gate_scale = 1 / std::sqrt(3.0);
  t.query.given = c.lowered.vectors(query, 2, 6, 2, 3);
  t.key.given = c.lowered.vectors(key, 2, 6, 2, 3);
  c.lowered.add(t);
  c.run();
  c.expect_core();
  c.expect_pairs("score_position", c.detail.terms);
  const auto* dq = static_cast<const double*>(c.terms[0].query.data);
  const auto* dk = static_cast<const double*>(c.terms[0].key.data);
  std::vector<double> d_w(72), d_hidden(72);
  for (std::size_t token = 0; token < 12; ++token)
    for (std::size_t o = 0; o < 12; ++o) {
      const double d = o < 6 ? dq[token * 6 + o] : dk[token * 6 + o - 6];
      for (std::size_t x = 0; x < 6; ++x) {
        d_w[o * 6 + x] += d * hidden[token * 6 + x];
        d_hidden[token * 6 + x] += d * w[o * 6 + x];
      }
    }
  c.expect("grad_w_f", d_w);
  c.expect("grad_hidden", d_hidden);
}

// The running sums of gates [2, H, T] as [2, T, H], a factor's order; and back to gates.
std::vector<double> running_sums(const std::vector<double>& gate, std::size_t heads,
                                 std::size_t tokens, std::size_t first, std::size_t all) {
  std::vector<double> sums(2 * tokens * heads);
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t h = 0; h < heads; ++h) {
      double total = 0;
      for (std::size_t t = 0; t < tokens; ++t)
        sums[(b * tokens + t) * heads + h] = total += gate[(b * all + first + h) * tokens + t];
    }
  return sums;
}
// d of the query's and the key's views of one sum -> d of the gates [2, H, T].
void add_gate_gradient(const TermGradient& g, std::size_t heads, std::size_t tokens,
                       std::size_t first, std::size_t all, std::vector<double>& d) {
  const auto* query = static_cast<const double*>(g.query.data);
  const auto* key = static_cast<const double*>(g.key.data);
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t h = 0; h < heads; ++h) {
      double total = 0;
      for (std::size_t t = tokens; t-- > 0;) {
        total += query[(b * tokens + t) * heads + h] + key[(b * tokens + t) * heads + h];
        d[(b * all + first + h) * tokens + t] += total;
      }
    }
}

// decay: forgetting gates, c_i - c_j, two views of one running sum.
TEST(AttentionTerms, DecayIsForgettingGates) {
  AttentionCase c(functions_of_bias(), "forgetting_fla");
  c.args.mask.causal = true;
  const std::vector<double> gate = c.array("log_gate").value;  // [2, 4, 8]
  DecayTerm t;
  t.query.given = t.key.given = c.lowered.vectors(running_sums(gate, 4, 8, 0, 4), 2, 8, 4, 1);
  c.lowered.add(t);
  c.run();
  c.expect_core();
  std::vector<double> d(gate.size());
  add_gate_gradient(c.terms[0], 4, 8, 0, 4, d);
  c.expect("grad_log_gate", d);
}

// decay with sides: gates of its own for keys in the future, without a causal mask.
TEST(AttentionTerms, DecayHasSides) {
  AttentionCase c(functions_of_content(), "fox_xt_bidirectional");
  const std::vector<double> gate = c.array("log_gates").value;  // [2, 2 + 2, 7]
  for (const bool future : {false, true}) {
    DecayTerm t;
    t.side = future ? Side::future : Side::past;
    t.scale = future ? -1 : 1;
    t.query.given = t.key.given =
        c.lowered.vectors(running_sums(gate, 2, 7, future ? 2 : 0, 4), 2, 7, 2, 1);
    c.lowered.add(t);
  }
  c.run();
  c.expect_core();
  c.expect_pairs("score_position", c.detail.terms);
  std::vector<double> d(gate.size()), d_bias(4);
  add_gate_gradient(c.terms[0], 2, 7, 0, 4, d);
  add_gate_gradient(c.terms[1], 2, 7, 2, 4, d);
  // The gate is log sigmoid(hidden w + b).
  for (std::size_t i = 0; i < d.size(); ++i) d_bias[i / 7 % 4] += d[i] * (1 - std::exp(gate[i]));
  c.expect("grad_b_f", d_bias);
}

// score_mlp: both versions of DAPE, with ALiBi under it and with nothing.
TEST(AttentionTerms, ScoreMlpIsDape) {
  for (const char* name : {"dape_v1_nope", "dape_v1_alibi", "dape_v2_alibi"}) {
    AttentionCase c(functions_of_bias(), name);
    c.args.mask.visible = c.flags("mask");
    c.args.scale = 0.5;
    const Index h = c.args.q.heads;
    if (std::string(name) != "dape_v1_nope")
      Alibi{}.lower({.heads = h, .head_dim = c.args.q.dim}, {}, c.lowered);
    const support::SuiteArray first = c.array("mlp2_0_weight");  // [out, in(, 1, K)]
    const Index width = first.dim(0), kernel = first.shape.size() == 4 ? first.dim(3) : 1;
    ScoreMlpTerm t;
    t.mlp = {shaped(c, "mlp2_0_weight", {width, first.dim(1), kernel}),
             shaped(c, "mlp2_0_bias", {width}), shaped(c, "mlp2_2_weight", {h, width, kernel}),
             shaped(c, "mlp2_2_bias", {h}), 0.01};
    c.lowered.add(t);
    c.run();
    c.expect_core();
    const MlpGradient& g = c.terms.back().mlp;
    c.expect("grad_mlp2_0_weight", g.in);
    c.expect("grad_mlp2_2_weight", g.out);
    c.expect("grad_mlp2_0_bias", g.in_bias);
    c.expect("grad_mlp2_2_bias", g.out_bias);
  }
}

}  // namespace
}  // namespace posenc
