// SPDX-License-Identifier: Apache-2.0
// Terms that read a whole row of keys in their order: gates, score_mlp.
#include <algorithm>
#include <cmath>

#include "support/attention_parts.h"

namespace posenc::support {
namespace {

// Gates of one row, by place in key order.
struct GateRow {
  std::vector<Index> key;           // of each place
  std::vector<bool> seen, counted;  // visible; visible and not left out
  Numbers gate, slope, sum;         // slope: d gate / d (x.y), gate_scale included
};

GateRow gates_of(const Call& c, const GatesTerm& t, Index b, Index h, Index i) {
  GateRow g;
  g.key = c.keys_in_order(c.key_row(b, i));
  const Index n = t.query.content ? c.D : t.query.given.dim;
  for (const Index j : g.key) {
    g.seen.push_back(c.visible[c.pair(b, h, i, j)] != 0);
    const bool own = c.key_order(c.key_row(b, i), j) == c.query_order(b, i);
    g.counted.push_back(g.seen.back() && (t.gate_own || !own));
    double z = 0;
    for (Index x = 0; g.counted.back() && x < n; ++x)
      z += t.gate_scale * query_value(c, t.query, b, i, h, x) * key_value(c, t.key, b, i, j, h, x);
    const double open = 1 / (1 + std::exp(-z));
    const bool plain = t.gate == Gate::sigmoid;
    const double value = plain ? open : std::min(z, 0.0) - std::log1p(std::exp(-std::fabs(z)));
    g.gate.push_back(g.counted.back() ? value : 0);
    g.slope.push_back(t.gate_scale * (plain ? open * (1 - open) : 1 - open));
  }
  g.sum.assign(g.gate.size(), 0.0);
  double total = 0;
  for (std::size_t s = g.gate.size(); s-- > 0;) g.sum[s] = total += g.gate[s];
  return g;
}

// The rows between which p lies, and how far it is from the first.
struct Between {
  Index low, high;
  double weight;
  bool inside;
};
Between between(const GatesTerm& t, double p) {
  const double last = static_cast<double>(t.table.shape[2] - 1), at = std::min(p, last);
  return {static_cast<Index>(std::floor(at)), static_cast<Index>(std::ceil(at)),
          at - std::floor(at), p <= last};
}
double level(const Call& c, const GatesTerm& t, Index b, Index h, Index i, Index row) {
  double sum = 0;
  for (Index x = 0; x < c.D; ++x)
    sum += c.query(b, i, h, x) * table_value(c, t.table, b, h, row, x);
  return sum;
}
void pull_level(const Call& c, const GatesTerm& t, const TermGradient& to, Pulled& pulled, Index b,
                Index h, Index i, Index row, double d) {
  for (Index x = 0; x < c.D; ++x) {
    pulled.q[c.at_q(b, i, h, x)] += d * table_value(c, t.table, b, h, row, x);
    add_table(c, t.table, to, b, h, row, x, d * c.query(b, i, h, x));
  }
}

// With a spread: the weights of all rows, and their derivatives by p, one by one.
struct Spread {
  Numbers weight, slope;
};
Spread spread_of(const GatesTerm& t, double p) {
  const Index rows = t.table.shape[2];
  const double last = static_cast<double>(rows - 1), at = std::min(p, last);
  Spread s;
  double sum = 0, d_sum = 0, least = HUGE_VAL;
  for (Index m = 0; m < rows; ++m) least = std::min(least, std::fabs(at - static_cast<double>(m)));
  for (Index m = 0; m < rows; ++m) {
    const double x = at - static_cast<double>(m);
    const double e = std::exp((least - std::fabs(x)) / t.spread);  // the nearest: 1
    const double d = p > last || x == 0 ? 0 : -std::copysign(e, x) / t.spread;
    s.weight.push_back(e);
    s.slope.push_back(d);
    sum += e, d_sum += d;
  }
  for (std::size_t m = 0; m < s.weight.size(); ++m) {
    s.slope[m] = (s.slope[m] * sum - s.weight[m] * d_sum) / (sum * sum);
    s.weight[m] /= sum;
  }
  return s;
}

double activation(const Mlp& m, double y) {
  return y < 0 ? m.slope * y : y;
}

// The network of score_mlp over one row of all heads: the keys of the query's own sequence.
struct ScoreNet {
  const Call& c;
  const ScoreMlpTerm& t;
  Index b, i;
  std::vector<Index> key = c.own_sequence(b, i);
  Index places = static_cast<Index>(key.size());
  Index units = t.mlp.in.shape[0], channels = t.mlp.in.shape[1], kernel = t.mlp.in.shape[2];

  std::size_t at(Index h, Index place) const {
    return c.pair(b, h, i, key[static_cast<std::size_t>(place)]);
  }
  bool inside(Index place) const { return place >= 0 && place < places; }
  double input(const Numbers& content, const Numbers& terms, Index channel, Index place) const {
    const std::size_t n = at(channel % c.H, place);
    if (!c.visible[n]) return 0;
    return channel < c.H ? content[n] : terms[n];
  }
  // [units, places], before the activation.
  Numbers hidden(const Numbers& content, const Numbers& terms) const {
    Numbers y;
    for (Index u = 0; u < units; ++u)
      for (Index s = 0; s < places; ++s) {
        double sum = get(t.mlp.in_bias, {u});
        each_tap(s, [&](Index x, Index place) {
          for (Index n = 0; n < channels; ++n)
            sum += get(t.mlp.in, {u, n, x}) * input(content, terms, n, place);
        });
        y.push_back(sum);
      }
    return y;
  }
  // fn(tap of the kernel, place) around a place.
  template <class F>
  void each_tap(Index s, const F& fn) const {
    for (Index x = 0; x < kernel; ++x)
      if (inside(s + x - kernel / 2)) fn(x, s + x - kernel / 2);
  }
  std::size_t unit(Index u, Index place) const {
    return static_cast<std::size_t>(u * places + place);
  }
};

// d of the net's outputs -> d of its units, after the gradients of the second layer.
Numbers pull_second_layer(const ScoreNet& net, const TermGradient& to, const Numbers& hidden,
                          const Numbers& d_net) {
  const Mlp& m = net.t.mlp;
  Numbers d_hidden(hidden.size(), 0.0);
  for (Index h = 0; h < net.c.H; ++h) {
    const Index g = group(h, net.c.H, m.out.shape[0]);
    for (Index s = 0; s < net.places; ++s) {
      const std::size_t n = net.at(h, s);
      if (!net.c.visible[n]) continue;
      const double d = net.t.scale * d_net[n];
      add(to.mlp.out_bias, {group(h, net.c.H, m.out_bias.shape[0])}, d);
      net.each_tap(s, [&](Index x, Index place) {
        for (Index u = 0; u < net.units; ++u) {
          const double y = hidden[net.unit(u, place)];
          add(to.mlp.out, {g, u, x}, d * activation(m, y));
          d_hidden[net.unit(u, place)] += d * get(m.out, {g, u, x}) * (y < 0 ? m.slope : 1);
        }
      });
    }
  }
  return d_hidden;
}

}  // namespace

void add_gates(const Call& c, const GatesTerm& t, Index b, Index h, Index i, Numbers& terms) {
  const GateRow g = gates_of(c, t, b, h, i);
  for (std::size_t s = 0; s < g.key.size(); ++s) {
    if (!g.seen[s]) continue;
    double value = g.sum[s];
    if (!t.table.empty() && t.spread != 0) {
      const Spread w = spread_of(t, g.sum[s]);
      value = 0;
      for (Index m = 0; m < t.table.shape[2]; ++m)
        value += w.weight[static_cast<std::size_t>(m)] * level(c, t, b, h, i, m);
    } else if (!t.table.empty()) {
      const Between w = between(t, g.sum[s]);
      value =
          (1 - w.weight) * level(c, t, b, h, i, w.low) + w.weight * level(c, t, b, h, i, w.high);
    }
    terms[c.pair(b, h, i, g.key[s])] += t.scale * value;
  }
}

void pull_gates(const Call& c, const GatesTerm& t, const TermGradient& to, Pulled& pulled, Index b,
                Index h, Index i, const Numbers& d_terms) {
  const GateRow g = gates_of(c, t, b, h, i);
  const Index n = t.query.content ? c.D : t.query.given.dim;
  double running = 0;  // d of the gate at a place: every sum up to it holds that gate
  for (std::size_t s = 0; s < g.key.size(); ++s) {
    if (!g.seen[s]) continue;
    const Index j = g.key[s];
    const double d = t.scale * d_terms[c.pair(b, h, i, j)];
    if (t.table.empty()) {
      running += d;
    } else if (t.spread != 0) {
      const Spread w = spread_of(t, g.sum[s]);
      for (Index m = 0; m < t.table.shape[2]; ++m) {
        pull_level(c, t, to, pulled, b, h, i, m, d * w.weight[static_cast<std::size_t>(m)]);
        running += d * w.slope[static_cast<std::size_t>(m)] * level(c, t, b, h, i, m);
      }
    } else {
      const Between w = between(t, g.sum[s]);
      pull_level(c, t, to, pulled, b, h, i, w.low, d * (1 - w.weight));
      pull_level(c, t, to, pulled, b, h, i, w.high, d * w.weight);
      if (w.inside) running += d * (level(c, t, b, h, i, w.high) - level(c, t, b, h, i, w.low));
    }
    for (Index x = 0; g.counted[s] && x < n; ++x) {
      const double dz = running * g.slope[s];
      pull_query(c, t.query, to, pulled, b, i, h, x, dz * key_value(c, t.key, b, i, j, h, x));
      pull_key(c, t.key, to, pulled, b, i, j, h, x, dz * query_value(c, t.query, b, i, h, x));
    }
  }
}

void add_score_mlp(const Call& c, const ScoreMlpTerm& t, Index b, Index i, const Numbers& content,
                   const Numbers& terms, Numbers& out) {
  const ScoreNet net{c, t, b, i};
  const Mlp& m = t.mlp;
  const Numbers hidden = net.hidden(content, terms);
  for (Index h = 0; h < c.H; ++h)
    for (Index s = 0; s < net.places; ++s) {
      if (!c.visible[net.at(h, s)]) continue;
      double sum = get(m.out_bias, {group(h, c.H, m.out_bias.shape[0])});
      net.each_tap(s, [&](Index x, Index place) {
        for (Index u = 0; u < net.units; ++u)
          sum += get(m.out, {group(h, c.H, m.out.shape[0]), u, x}) *
                 activation(m, hidden[net.unit(u, place)]);
      });
      out[net.at(h, s)] += t.scale * sum;
    }
}

void pull_score_mlp(const Call& c, const ScoreMlpTerm& t, const TermGradient& to, Index b, Index i,
                    const Numbers& content, const Numbers& terms, const Numbers& d_net,
                    Numbers& d_content, Numbers& d_terms) {
  const ScoreNet net{c, t, b, i};
  const Numbers d_hidden = pull_second_layer(net, to, net.hidden(content, terms), d_net);
  for (Index u = 0; u < net.units; ++u)
    for (Index s = 0; s < net.places; ++s) {
      const double d = d_hidden[net.unit(u, s)];
      add(to.mlp.in_bias, {u}, d);
      net.each_tap(s, [&](Index x, Index place) {
        for (Index n = 0; n < net.channels; ++n) {
          add(to.mlp.in, {u, n, x}, d * net.input(content, terms, n, place));
          (n < c.H ? d_content : d_terms)[net.at(n % c.H, place)] += d * get(t.mlp.in, {u, n, x});
        }
      });
    }
}

}  // namespace posenc::support
