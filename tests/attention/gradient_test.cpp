// SPDX-License-Identifier: Apache-2.0
// The reference's gradients against finite differences: every kind of term at once, with regions,
// scales, soft cap, sink, dense bias, grouped heads and a window.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "posenc/positions/sequence.h"
#include "support/attention_reference.h"

namespace posenc {
namespace {

constexpr Index B = 2, H = 4, Hkv = 2, Tq = 4, Tk = 5, D = 4, V = 3;

struct World {
  std::vector<std::vector<double>*> learned;  // all that has a gradient
  std::vector<double> q, k, v, region_q, region_k, bias, sink, head_scale, factor;
  std::vector<double> slopes, line, key_vector, query_vector, extra_q, extra_k, u, rows, rows_bias,
      key_rows, value_rows, times, fire1, fire2, fire3, cope, gate, dape1, dape2, dape3;
  LoweredTerms rows_of;
  OwnedPositions pq = arange(1, Tq), pk = arange(0, Tk);
  bool after_terms = false, with_dape = true;

  World() {
    const auto add = [&](std::vector<double>& x, Index n, double size, double middle = 0) {
      for (Index i = 0; i < n; ++i)
        x.push_back(middle +
                    size * std::sin(static_cast<double>(37 * learned.size() +
                                                        static_cast<std::size_t>(i) * 11 + 5)));
      learned.push_back(&x);
    };
    add(q, B * H * Tq * D, 1);
    add(k, B * Hkv * Tk * D, 1);
    add(v, B * Hkv * Tk * V, 1);
    add(region_q, B * H * Tq * D, 1);
    add(region_k, B * Hkv * Tk * D, 1);
    add(bias, H * Tq * Tk, 0.5);
    add(sink, H, 1);
    add(head_scale, H, 0.3, 1);
    add(factor, B * Tq, 0.3, 1);
    add(slopes, H * 2, 0.3);
    add(line, H * 4, 1);
    add(key_vector, B * H * Tk, 0.5);
    add(query_vector, B * H * Tq, 0.5);
    add(extra_q, B * Tq * H * 2, 0.5);
    add(extra_k, B * Tk * 2, 0.5);
    add(u, H * D, 0.5);
    add(rows, H * 4 * D, 0.5);
    add(rows_bias, H * D, 0.5);
    add(key_rows, 4 * D, 0.5);
    add(value_rows, H * 4 * V, 0.5);
    add(times, H * 4, 0.3, 1);
    add(fire1, 2 * 3, 1);
    add(fire2, H * 4, 0.7);
    add(fire3, 2, 0.1, 2.4);
    add(cope, H * 3 * D, 0.5);
    add(gate, B * Hkv * Tk * D, 1);
    add(dape1, 2 * 2 * H * 3, 0.4);
    add(dape2, H * 2 * 3, 0.4);
    add(dape3, 2 + H, 0.3);
  }

  TensorView view(std::vector<double>& x, std::initializer_list<Index> shape) const {
    return tensor(x.data(), shape);
  }
  Heads heads_of(std::vector<double>& x, Index n, Index t, Index d) const {
    return heads(tensor(x.data(), {B, n, t, d}), HeadsLayout::bhtd);
  }

  // fn(args, terms) with everything pointing into `at` (the values, or their gradients).
  template <class F>
  void with(const F& fn) {
    const IndexLine line4 = rows_of.line({3, 0, 1, -1, 2}, -1);
    const auto term = [&](TermKind kind, double scale) {
      Term t;
      t.kind = kind;
      t.scale = scale;
      t.lines[0] = line4;
      return t;
    };
    std::vector<Term> t(12);
    t[0] = term(TermKind::linear, 0.7);
    t[0].table = view(slopes, {H, 2});
    t[1] = term(TermKind::line, 1.1);
    t[1].table = view(line, {H, 4});
    t[2] = term(TermKind::vectors, 0.8);
    t[2].table = view(key_vector, {B, H, Tk});
    t[2].table2 = view(query_vector, {B, H, Tq});
    t[3] = term(TermKind::extra_channels, 0.6);
    t[3].table = view(extra_q, {B, Tq, H, 2});
    t[3].table2 = view(extra_k, {B, Tk, 1, 2});
    t[4] = term(TermKind::query_bias, 0.5);
    t[4].query_bias = view(u, {H, D});
    t[5] = term(TermKind::query_rows, 0.9);
    t[5].table = view(rows, {H, 4, D});
    t[5].query_bias = view(rows_bias, {H, D});
    t[6] = term(TermKind::key_rows, 0.4);
    t[6].table = view(key_rows, {1, 4, D});
    t[7] = term(TermKind::value_rows, 1.2);
    t[7].table = view(value_rows, {H, 4, V});
    t[8] = term(TermKind::multiply_line, 0.9);
    t[8].table = view(times, {H, 4});
    t[9] = term(TermKind::fire, 0.7);
    t[9].table = view(fire1, {2, 3});
    t[9].table2 = view(fire2, {H, 4});
    t[9].table3 = view(fire3, {2});
    t[9].slope = 0.1;
    t[9].sign = true;
    t[10] = term(TermKind::cope, 0.6);
    t[10].table = view(cope, {H, 3, D});
    t[10].gate_key = heads_of(gate, Hkv, Tk, D);
    t[10].gate_scale = 0.5;
    t[11] = term(TermKind::dape, 0.8);
    t[11].table = view(dape1, {2, 2 * H, 3});
    t[11].table2 = view(dape2, {H, 2, 3});
    t[11].table3 = view(dape3, {2 + H});
    t[11].slope = 0.2;
    if (!with_dape) t.pop_back();
    ScoreRegion far;
    far.low = 2;
    far.qk = {heads_of(region_q, H, Tq, D), heads_of(region_k, Hkv, Tk, D)};
    AttentionArgs a;
    a.qk = {heads_of(q, H, Tq, D), heads_of(k, Hkv, Tk, D)};
    a.v = heads_of(v, Hkv, Tk, V);
    a.query_positions = pq;
    a.key_positions = pk;
    a.scale = 0.6;
    a.softcap = 3;
    a.softcap_after_terms = after_terms;
    a.head_scale = view(head_scale, {H});
    a.query_factor = view(factor, {B, Tq});
    a.sink = view(sink, {H});
    a.mask.bias = view(bias, {H, Tq, Tk});
    a.mask.query_offset = 1;
    a.mask.causal = true;
    a.mask.window_left = 3;
    a.terms = t;
    a.regions = std::span(&far, 1);
    fn(a);
  }
};

double loss(World& w, const std::vector<double>& up, const std::vector<double>& up_lse) {
  std::vector<double> out(B * H * Tq * V), lse(B * H * Tq);
  w.with([&](AttentionArgs& a) {
    a.out = w.heads_of(out, H, Tq, V);
    a.log_sum_exp = w.view(lse, {B, H, Tq});
    support::attention_forward(a);
  });
  double s = 0;
  for (std::size_t i = 0; i < out.size(); ++i) s += up[i] * out[i];
  for (std::size_t i = 0; i < lse.size(); ++i) s += up_lse[i] * lse[i];
  return s;
}

// The views of a World that holds gradients are of vectors that may be written.
TensorView writable(const ConstTensorView& v) {
  return {const_cast<void*>(v.data), v.dtype, v.device, v.device_id, v.rank, v.shape, v.stride};
}
Heads writable(const ConstHeads& h) {
  return {const_cast<void*>(h.data),
          h.batch,
          h.tokens,
          h.heads,
          h.dim,
          h.batch_stride,
          h.token_stride,
          h.head_stride,
          h.dim_stride,
          h.dtype};
}
QK writable(const ConstQK& x) {
  return {writable(x.q), writable(x.k)};
}

void check_all(bool after_terms, bool with_dape) {
  World w, g;  // g: the same shapes, holding gradients
  w.after_terms = g.after_terms = after_terms;
  w.with_dape = g.with_dape = with_dape;
  for (std::vector<double>* x : g.learned) std::fill(x->begin(), x->end(), 0.0);
  std::vector<double> up, up_lse, out(B * H * Tq * V);
  for (Index i = 0; i < B * H * Tq * V; ++i) up.push_back(std::cos(static_cast<double>(3 * i + 1)));
  for (Index i = 0; i < B * H * Tq; ++i) up_lse.push_back(0.3 * std::cos(static_cast<double>(i)));
  w.with([&](AttentionArgs& a) {
    a.out = w.heads_of(out, H, Tq, V);
    g.with([&](AttentionArgs& d) {
      std::vector<TermGradient> terms;
      for (const Term& t : d.terms)
        terms.push_back({writable(t.table), writable(t.table2), writable(t.table3),
                         writable(t.query_bias), writable(t.gate_key)});
      AttentionGradients gradients;
      gradients.qk = writable(d.qk);
      gradients.v = writable(d.v);
      const QK far = writable(d.regions[0].qk);
      gradients.regions = std::span(&far, 1);
      gradients.terms = terms;
      gradients.sink = writable(d.sink);
      gradients.head_scale = writable(d.head_scale);
      gradients.query_factor = writable(d.query_factor);
      gradients.bias = writable(d.mask.bias);
      support::attention_backward(a, w.heads_of(up, H, Tq, V), w.view(up_lse, {B, H, Tq}),
                                  gradients);
    });
  });
  for (std::size_t n = 0; n < w.learned.size(); ++n) {
    std::vector<double>& x = *w.learned[n];
    const std::size_t step = std::max<std::size_t>(1, x.size() / 7);
    for (std::size_t i = 0; i < x.size(); i += step) {
      const double kept = x[i], e = 1e-5;
      x[i] = kept + e;
      const double above = loss(w, up, up_lse);
      x[i] = kept - e;
      const double below = loss(w, up, up_lse);
      x[i] = kept;
      EXPECT_NEAR((*g.learned[n])[i], (above - below) / (2 * e), 2e-8)
          << "array " << n << " element " << i;
    }
  }
}

TEST(AttentionGradient, EveryTermAtOnce) {
  check_all(false, false);
}
TEST(AttentionGradient, WithTheCapAfterTheTerms) {
  check_all(true, false);
}
TEST(AttentionGradient, WithDape) {
  check_all(false, true);
}

}  // namespace
}  // namespace posenc
