// SPDX-License-Identifier: Apache-2.0
// Scores -> probabilities, forward and backward: softmax with its sink, stick-breaking.
#include <algorithm>
#include <cmath>

#include "support/attention_parts.h"

namespace posenc::support {
namespace {

double sigmoid(double z) {
  return z < 0 ? std::exp(z) / (1 + std::exp(z)) : 1 / (1 + std::exp(-z));
}

void softmax_row(const Call& c, const Numbers& scores, Weights& w, Index b, Index h, Index i) {
  const bool sink = !c.args.sink.empty();
  double top = get(c.args.sink, {h}, -HUGE_VAL);
  bool any = sink;
  for (Index j = 0; j < c.Tk; ++j) {
    const std::size_t n = c.pair(b, h, i, j);
    if (!c.visible[n]) continue;
    any = true;
    top = std::max(top, scores[n]);
  }
  w.log_sum_exp[c.row(b, h, i)] = -HUGE_VAL;
  if (!any) return;
  double total = sink ? std::exp(get(c.args.sink, {h}) - top) : 0;
  for (Index j = 0; j < c.Tk; ++j)
    if (const std::size_t n = c.pair(b, h, i, j); c.visible[n])
      total += w.p[n] = std::exp(scores[n] - top);
  for (Index j = 0; j < c.Tk; ++j) w.p[c.pair(b, h, i, j)] /= total;
  w.log_sum_exp[c.row(b, h, i)] = top + std::log(total);
}

void stick_row(const Call& c, const Numbers& scores, Weights& w, Index b, Index h, Index i) {
  const std::vector<Index> keys = c.keys_in_order(c.key_row(b, i));
  double rest = 1;
  for (std::size_t s = keys.size(); s-- > 0;) {
    const std::size_t n = c.pair(b, h, i, keys[s]);
    if (!c.visible[n]) continue;
    w.p[n] = sigmoid(scores[n]) * rest;
    rest *= sigmoid(-scores[n]);
  }
  w.remainder[c.row(b, h, i)] = rest;
  w.log_sum_exp[c.row(b, h, i)] = std::log(rest);
}

// d_rest: of what is left after all keys.
void pull_stick(const Call& c, const Numbers& scores, const Numbers& d_p, double d_lse,
                double d_rest, Numbers& d, Index b, Index h, Index i) {
  const std::vector<Index> keys = c.keys_in_order(c.key_row(b, i));
  Numbers before(keys.size(), 0.0);  // what is left of the stick when a key takes its part
  double rest = 1;
  for (std::size_t s = keys.size(); s-- > 0;) {
    before[s] = rest;
    const std::size_t n = c.pair(b, h, i, keys[s]);
    if (c.visible[n]) rest *= sigmoid(-scores[n]);
  }
  for (std::size_t s = 0; s < keys.size(); ++s) {
    const std::size_t n = c.pair(b, h, i, keys[s]);
    if (!c.visible[n]) continue;
    const double part = sigmoid(scores[n]);
    d[n] = (d_p[n] - d_rest) * before[s] * part * (1 - part) - d_lse * part;
    d_rest = part * d_p[n] + (1 - part) * d_rest;
  }
}

}  // namespace

Weights weigh(const Call& c, const Numbers& scores) {
  Weights w;
  w.p.assign(c.pairs(), 0.0);
  w.log_sum_exp.assign(static_cast<std::size_t>(c.B * c.H * c.Tq), 0.0);
  w.remainder = w.log_sum_exp;
  c.each_row([&](Index b, Index h, Index i) {
    if (c.args.normalisation == Normalisation::softmax)
      softmax_row(c, scores, w, b, h, i);
    else
      stick_row(c, scores, w, b, h, i);
  });
  return w;
}

Numbers pull_weights(const Call& c, const Numbers& scores, const Weights& w, const Numbers& d_p,
                     const Numbers& d_lse, const Numbers& d_remainder, const TensorView& d_sink) {
  Numbers d(scores.size(), 0.0);
  c.each_row([&](Index b, Index h, Index i) {
    const std::size_t row = c.row(b, h, i);
    if (c.args.normalisation != Normalisation::softmax)
      return pull_stick(c, scores, d_p, d_lse[row], d_remainder[row], d, b, h, i);
    double mean = 0;
    for (Index j = 0; j < c.Tk; ++j)
      if (const std::size_t n = c.pair(b, h, i, j); c.visible[n]) mean += w.p[n] * d_p[n];
    for (Index j = 0; j < c.Tk; ++j)
      if (const std::size_t n = c.pair(b, h, i, j); c.visible[n])
        d[n] = w.p[n] * (d_p[n] - mean + d_lse[row]);
    if (!c.args.sink.empty())
      add(d_sink, {h}, std::exp(get(c.args.sink, {h}) - w.log_sum_exp[row]) * (d_lse[row] - mean));
  });
  return d;
}

}  // namespace posenc::support
