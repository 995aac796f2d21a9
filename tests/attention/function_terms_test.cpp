// SPDX-License-Identifier: Apache-2.0
// Terms that are functions (of distance, of the score, of other terms) against their programs.
#include <gtest/gtest.h>

#include "attention/term_tools.h"
#include "posenc/relative/alibi.h"
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
    const ConstTensorView e = c.view("pos_emb");  // [1, D, n]
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
      ConstTensorView v = c.view(what);
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
  const auto same = [](const ConstTensorView& x, const ConstTensorView& y) {
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
