// SPDX-License-Identifier: Apache-2.0
// The order of things: content, terms, cap, mixes, masks, weights, values; and all of it back.
#include "support/attention_reference.h"

#include <cmath>

#include "support/attention_parts.h"

namespace posenc::support {
namespace {

double cap(const AttentionArgs& a, double x) {
  return a.softcap == 0 ? x : a.softcap * std::tanh(x / a.softcap);
}
double cap_slope(const AttentionArgs& a, double x) {
  if (a.softcap == 0) return 1;
  const double t = std::tanh(x / a.softcap);
  return 1 - t * t;
}

double scale_of(const Term& t) {
  return std::visit([](const auto& kind) { return kind.scale; }, t);
}
const ScoreMlpTerm* score_mlp_of(const AttentionArgs& a) {
  return a.terms.empty() ? nullptr : std::get_if<ScoreMlpTerm>(&a.terms.back());
}
bool of_pairs(const Term& t) {
  return !std::holds_alternative<GatesTerm>(t) && !std::holds_alternative<ScoreMlpTerm>(t) &&
         !std::holds_alternative<ValueRowsTerm>(t);
}

// q and k of the pair, of the region that holds it or of the call.
double content_query(const Call& c, int region, Index b, Index i, Index h, Index x) {
  if (region < 0) return c.query(b, i, h, x);
  const auto n = static_cast<std::size_t>(region);
  if (c.args.regions[n].rotary != nullptr)
    return c.factor(b, i) * c.region_q[n][c.at_q(b, i, h, x)];
  return c.factor(b, i) * get(c.args.regions[static_cast<std::size_t>(region)].qk.q, b, i, h, x);
}
double content_key(const Call& c, int region, Index b, Index i, Index j, Index h, Index x) {
  if (region < 0) return c.key(b, i, j, h, x);
  const auto n = static_cast<std::size_t>(region);
  if (c.args.regions[n].rotary != nullptr) return c.region_k[n][c.at_k(c.key_row(b, i), j, h, x)];
  const ConstHeads& k = c.args.regions[static_cast<std::size_t>(region)].qk.k;
  return get(k, c.key_row(b, i), j, group(h, c.H, k.heads), x);
}

// All of [B, H, Tq, Tk], in the order they are made.
struct Forward {
  Numbers raw;      // g q.k
  Numbers content;  // scaled, and capped if the cap goes there
  Numbers terms, net, plain, scores;
  Weights weights;
  Numbers mixed;  // probabilities after mix_after
  Numbers out;    // [B, Tq, H, Dv]
};

void add_content_and_terms(const Call& c, Forward& f) {
  const AttentionArgs& a = c.args;
  c.each_visible([&](Index b, Index h, Index i, Index j) {
    const std::size_t n = c.pair(b, h, i, j);
    const int region = c.region(b, i, j);
    for (Index x = 0; x < c.D; ++x)
      f.raw[n] += content_query(c, region, b, i, h, x) * content_key(c, region, b, i, j, h, x);
    const double scaled = c.scale(b, h) * f.raw[n];
    f.content[n] = a.softcap_after_terms ? scaled : cap(a, scaled);
    for (const Term& t : a.terms)
      if (of_pairs(t)) f.terms[n] += scale_of(t) * pair_value(c, t, b, h, i, j);
  });
  for (const Term& t : a.terms)
    if (const auto* gates = std::get_if<GatesTerm>(&t))
      c.each_row([&](Index b, Index h, Index i) { add_gates(c, *gates, b, h, i, f.terms); });
  const ScoreMlpTerm* net = score_mlp_of(a);
  if (net == nullptr) return;
  for (Index b = 0; b < c.B; ++b)
    for (Index i = 0; i < c.Tq; ++i) add_score_mlp(c, *net, b, i, f.content, f.terms, f.net);
}

// x_h = sum over heads g of mix[h, g] x_g; x itself without a mix.
Numbers mixed_heads(const Call& c, const ConstTensorView& mix, const Numbers& x) {
  if (mix.empty()) return x;
  Numbers y(x.size(), 0.0);
  c.each_row([&](Index b, Index h, Index i) {
    for (Index j = 0; j < c.Tk; ++j)
      for (Index g = 0; g < c.H; ++g)
        y[c.pair(b, h, i, j)] += get(mix, {h, g}) * x[c.pair(b, g, i, j)];
  });
  return y;
}
Numbers pull_mixed(const Call& c, const ConstTensorView& mix, const Numbers& x, const Numbers& d_y,
                   const TensorView& d_mix) {
  if (mix.empty()) return d_y;
  Numbers d_x(x.size(), 0.0);
  c.each_row([&](Index b, Index h, Index i) {
    for (Index j = 0; j < c.Tk; ++j)
      for (Index g = 0; g < c.H; ++g) {
        const double d = d_y[c.pair(b, h, i, j)];
        d_x[c.pair(b, g, i, j)] += get(mix, {h, g}) * d;
        add(d_mix, {h, g}, d * x[c.pair(b, g, i, j)]);
      }
  });
  return d_x;
}

// Whether a value is read for the pair: a mix after the weights shows a head what others see.
bool value_is_read(const Call& c, Index b, Index h, Index i, Index j) {
  if (c.visible[c.pair(b, h, i, j)] || c.args.mix_after.empty())
    return c.visible[c.pair(b, h, i, j)] != 0;
  for (Index g = 0; g < c.H; ++g)
    if (c.visible[c.pair(b, g, i, j)]) return true;
  return false;
}

void add_values(const Call& c, Forward& f) {
  c.each_row([&](Index b, Index h, Index i) {
    for (Index j = 0; j < c.Tk; ++j) {
      const std::size_t n = c.pair(b, h, i, j);
      if (!value_is_read(c, b, h, i, j)) continue;
      for (Index x = 0; x < c.V; ++x)
        f.out[c.at_out(b, i, h, x)] += f.mixed[n] * value_of(c, b, h, i, j, x);
    }
    if (c.args.normalisation != Normalisation::stick_breaking_own) return;
    const Index own = c.own_key(b, i);
    for (Index x = 0; own >= 0 && x < c.V; ++x)
      f.out[c.at_out(b, i, h, x)] +=
          f.weights.remainder[c.row(b, h, i)] * c.v[c.at_v(c.key_row(b, i), own, h, x)];
  });
}

Forward forward_of(const Call& c) {
  Forward f;
  f.raw.assign(c.pairs(), 0.0);
  f.content = f.terms = f.net = f.plain = f.raw;
  f.out.assign(static_cast<std::size_t>(c.B * c.Tq * c.H * c.V), 0.0);
  add_content_and_terms(c, f);
  for (std::size_t n = 0; n < f.plain.size(); ++n) {
    const double both = f.content[n] + f.terms[n];
    f.plain[n] = (c.args.softcap_after_terms ? cap(c.args, both) : both) + f.net[n];
  }
  f.scores = mixed_heads(c, c.args.mix_before, f.plain);
  c.each_visible([&](Index b, Index h, Index i, Index j) {
    f.scores[c.pair(b, h, i, j)] += get_pair(c.args.mask.bias, c.H, b, h, i, j, 0);
  });
  f.weights = weigh(c, f.scores);
  f.mixed = mixed_heads(c, c.args.mix_after, f.weights.p);
  add_values(c, f);
  return f;
}

// Gradients of everything between the output and the scores; returns those of the scores.
Numbers pull_output(const Call& c, const Forward& f, const ConstHeads& d_out,
                    const ConstTensorView& d_lse, const AttentionGradients& g, Pulled& pulled) {
  const AttentionArgs& a = c.args;
  Numbers d_mixed(c.pairs(), 0.0), lse(f.weights.log_sum_exp.size(), 0.0), rest = lse;
  c.each_row([&](Index b, Index h, Index i) {
    const Index r = c.key_row(b, i);
    lse[c.row(b, h, i)] = get(d_lse, {b, h, i});
    for (Index j = 0; j < c.Tk; ++j) {
      const std::size_t n = c.pair(b, h, i, j);
      if (!value_is_read(c, b, h, i, j)) continue;
      for (Index x = 0; x < c.V; ++x) {
        const double d = get(d_out, b, i, h, x);
        d_mixed[n] += d * value_of(c, b, h, i, j, x);
        pulled.v[c.at_v(r, j, h, x)] += f.mixed[n] * d;
        for (std::size_t t = 0; !g.terms.empty() && t < a.terms.size(); ++t) {
          const auto* rows = std::get_if<ValueRowsTerm>(&a.terms[t]);
          if (rows == nullptr) continue;
          const Index row = table_row(c, *rows, b, i, j);
          if (row >= 0)
            add_table(c, rows->table, g.terms[t], b, h, row, x, rows->scale * f.mixed[n] * d);
        }
      }
    }
    if (a.normalisation != Normalisation::stick_breaking_own) return;
    const Index own = c.own_key(b, i);
    for (Index x = 0; own >= 0 && x < c.V; ++x) {
      const double d = get(d_out, b, i, h, x);
      rest[c.row(b, h, i)] += d * c.v[c.at_v(r, own, h, x)];
      pulled.v[c.at_v(r, own, h, x)] += f.weights.remainder[c.row(b, h, i)] * d;
    }
  });
  const Numbers d_p = pull_mixed(c, a.mix_after, f.weights.p, d_mixed, g.mix_after);
  return pull_weights(c, f.scores, f.weights, d_p, lse, rest, g.sink);
}

void pull_content(const Call& c, const Forward& f, const Numbers& d_content,
                  const AttentionGradients& g, Pulled& pulled) {
  const AttentionArgs& a = c.args;
  c.each_visible([&](Index b, Index h, Index i, Index j) {
    const std::size_t n = c.pair(b, h, i, j);
    const double slope = a.softcap_after_terms ? 1 : cap_slope(a, c.scale(b, h) * f.raw[n]);
    const double d = d_content[n] * slope;
    add(g.head_scale, {b, h}, d * *a.scale * f.raw[n]);
    const int region = c.region(b, i, j);
    const Index r = c.key_row(b, i);
    for (Index x = 0; x < c.D; ++x) {
      const double dq = d * c.scale(b, h) * content_key(c, region, b, i, j, h, x);
      const double dk = d * c.scale(b, h) * content_query(c, region, b, i, h, x);
      if (region < 0) {
        pulled.q[c.at_q(b, i, h, x)] += dq;
        pulled.k[c.at_k(r, j, h, x)] += dk;
        continue;
      }
      const auto of = static_cast<std::size_t>(region);
      if (a.regions[of].rotary != nullptr) {
        add(g.query_factor, {b, i}, dq * c.region_q[of][c.at_q(b, i, h, x)]);
        pulled.region_q[of][c.at_q(b, i, h, x)] += dq * c.factor(b, i);
        pulled.region_k[of][c.at_k(r, j, h, x)] += dk;
        continue;
      }
      const ConstQK& own = a.regions[of].qk;
      add(g.query_factor, {b, i}, dq * get(own.q, b, i, h, x));
      if (g.regions.empty()) continue;
      const QK& to = g.regions[static_cast<std::size_t>(region)];
      add(to.q, b, i, h, x, dq * c.factor(b, i));
      add(to.k, r, j, group(h, c.H, own.k.heads), x, dk);
    }
  });
}

void pull_terms(const Call& c, const Numbers& d_terms, const AttentionGradients& g,
                Pulled& pulled) {
  for (std::size_t n = 0; n < c.args.terms.size(); ++n) {
    const Term& t = c.args.terms[n];
    const TermGradient to = g.terms.empty() ? TermGradient{} : g.terms[n];
    if (const auto* gates = std::get_if<GatesTerm>(&t))
      c.each_row(
          [&](Index b, Index h, Index i) { pull_gates(c, *gates, to, pulled, b, h, i, d_terms); });
    if (of_pairs(t))
      c.each_visible([&](Index b, Index h, Index i, Index j) {
        pull_pair(c, t, to, pulled, b, h, i, j, scale_of(t) * d_terms[c.pair(b, h, i, j)]);
      });
  }
}

// The query factor, out of the gradient of g q: what is left is that of q.
void pull_factor(const Call& c, const AttentionGradients& g, Pulled& pulled) {
  for (Index b = 0; b < c.B; ++b)
    for (Index i = 0; i < c.Tq; ++i)
      for (Index h = 0; h < c.H; ++h)
        for (Index x = 0; x < c.D; ++x) {
          double& d = pulled.q[c.at_q(b, i, h, x)];
          add(g.query_factor, {b, i}, d * c.q[c.at_q(b, i, h, x)]);
          d *= c.factor(b, i);
        }
}

}  // namespace

void attention_forward(const AttentionArgs& a, const AttentionResult& result,
                       AttentionDetail* detail) {
  check_attention(a, result);
  check_attention_indices(a);
  const Call c(a);
  Forward f = forward_of(c);
  c.each_row([&](Index b, Index h, Index i) {
    put(result.log_sum_exp, {b, h, i}, f.weights.log_sum_exp[c.row(b, h, i)]);
    for (Index x = 0; x < c.V; ++x) put(result.out, b, i, h, x, f.out[c.at_out(b, i, h, x)]);
  });
  if (detail == nullptr) return;
  for (std::size_t n = 0; n < f.scores.size(); ++n)
    if (!c.visible[n]) f.scores[n] = -HUGE_VAL;
  *detail = {std::move(f.content), std::move(f.terms), std::move(f.scores), std::move(f.weights.p)};
}

void attention_backward(const AttentionArgs& a, const ConstHeads& d_out,
                        const ConstTensorView& d_lse, const AttentionGradients& g) {
  check_attention(a, g);
  check_attention_indices(a);
  const Call c(a);
  const Forward f = forward_of(c);
  Pulled pulled(c);
  const Numbers d_scores = pull_output(c, f, d_out, d_lse, g, pulled);
  c.each_visible([&](Index b, Index h, Index i, Index j) {
    add_pair(g.bias, c.H, b, h, i, j, d_scores[c.pair(b, h, i, j)]);
  });
  const Numbers d_plain = pull_mixed(c, a.mix_before, f.plain, d_scores, g.mix_before);
  Numbers d_content(c.pairs(), 0.0), d_terms = d_content;
  const ScoreMlpTerm* net = score_mlp_of(a);
  const TermGradient to = net != nullptr && !g.terms.empty() ? g.terms.back() : TermGradient{};
  for (Index b = 0; net != nullptr && b < c.B; ++b)
    for (Index i = 0; i < c.Tq; ++i)
      pull_score_mlp(c, *net, to, b, i, f.content, f.terms, d_plain, d_content, d_terms);
  for (std::size_t n = 0; n < d_plain.size(); ++n) {
    const double slope = a.softcap_after_terms ? cap_slope(a, f.content[n] + f.terms[n]) : 1;
    d_content[n] += slope * d_plain[n];
    d_terms[n] += slope * d_plain[n];
  }
  pull_terms(c, d_terms, g, pulled);
  pull_content(c, f, d_content, g, pulled);
  pull_factor(c, g, pulled);
  c.pull_prepared(std::move(pulled), g);
}

}  // namespace posenc::support
