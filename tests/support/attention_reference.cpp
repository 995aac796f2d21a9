// SPDX-License-Identifier: Apache-2.0
#include "support/attention_reference.h"

#include <cmath>

#include "support/attention_parts.h"

namespace posenc::support {
namespace {

bool in_score(const Term& t) {
  return t.kind != TermKind::value_rows && t.kind != TermKind::multiply_line &&
         t.kind != TermKind::dape;
}
const ConstQK& turned(const AttentionArgs& a, int region) {
  return region < 0 ? a.qk : a.regions[static_cast<std::size_t>(region)].qk;
}

double cap(const AttentionArgs& a, double x) {
  return a.softcap == 0 ? x : a.softcap * std::tanh(x / a.softcap);
}
double cap_slope(const AttentionArgs& a, double x) {
  if (a.softcap == 0) return 1;
  const double t = std::tanh(x / a.softcap);
  return 1 - t * t;
}

// Row i of all heads of one batch entry.
struct Row {
  std::vector<std::vector<bool>> hidden;
  RowOfHeads raw, multiplier;    // q.k, product of the multiplying lines
  RowOfHeads uncapped, content;  // scaled, and capped if the cap goes there
  RowOfHeads sum, score, p;      // terms, what the softmax gets, probabilities
  std::vector<double> lse, p_sink;
};

RowOfHeads empty_row(const Sizes& s) {
  return RowOfHeads(static_cast<std::size_t>(s.H),
                    std::vector<double>(static_cast<std::size_t>(s.K), 0));
}

// All of scale a_h g_i.
double scale_of(const AttentionArgs& a, Index b, Index h, Index i) {
  return a.scale * get(a.head_scale, {h}, 1) * get(a.query_factor, {b, i}, 1);
}

void content_of(const AttentionArgs& a, const Sizes& s, Index b, Index h, Index i, Row& r) {
  const auto n = static_cast<std::size_t>(h);
  for (Index j = 0; j < s.K; ++j) {
    const auto m = static_cast<std::size_t>(j);
    const ConstQK& qk = turned(a, region_of(a, b, i, j));
    for (Index d = 0; d < s.D; ++d)
      r.raw[n][m] += get(qk.q, b, i, h, d) * get(qk.k, b, j, h / s.group, d);
    r.multiplier[n][m] = 1;
    for (const Term& t : a.terms) {
      if (t.kind != TermKind::multiply_line) continue;
      const Index row = row_of(a, t, b, i, j);
      r.multiplier[n][m] *= row < 0 ? 1 : t.scale * get(t.table, {h, row});
    }
    r.uncapped[n][m] = scale_of(a, b, h, i) * r.raw[n][m] * r.multiplier[n][m];
    r.content[n][m] = a.softcap_after_terms ? r.uncapped[n][m] : cap(a, r.uncapped[n][m]);
  }
}

void softmax_of(const AttentionArgs& a, const Sizes& s, Index h, Row& r) {
  const auto n = static_cast<std::size_t>(h);
  const bool sink = !a.sink.empty();
  double top = sink ? get(a.sink, {h}) : -HUGE_VAL;
  for (Index j = 0; j < s.K; ++j)
    if (!r.hidden[n][static_cast<std::size_t>(j)])
      top = std::fmax(top, r.score[n][static_cast<std::size_t>(j)]);
  double total = sink ? std::exp(get(a.sink, {h}) - top) : 0;
  for (Index j = 0; j < s.K; ++j)
    if (!r.hidden[n][static_cast<std::size_t>(j)])
      total += std::exp(r.score[n][static_cast<std::size_t>(j)] - top);
  const bool none = top == -HUGE_VAL;
  r.lse[n] = none ? -HUGE_VAL : top + std::log(total);
  r.p_sink[n] = sink ? std::exp(get(a.sink, {h}) - top) / total : 0;
  for (Index j = 0; j < s.K; ++j) {
    const auto m = static_cast<std::size_t>(j);
    r.p[n][m] = none || r.hidden[n][m] ? 0 : std::exp(r.score[n][m] - top) / total;
  }
}

Row row_forward(const AttentionArgs& a, const Sizes& s, Index b, Index i) {
  Row r;
  r.raw = r.multiplier = r.uncapped = r.content = r.sum = r.score = r.p = empty_row(s);
  r.hidden.assign(static_cast<std::size_t>(s.H), {});
  r.lse.assign(static_cast<std::size_t>(s.H), 0);
  r.p_sink = r.lse;
  for (Index h = 0; h < s.H; ++h) {
    for (Index j = 0; j < s.K; ++j)
      r.hidden[static_cast<std::size_t>(h)].push_back(!visible(a, b, h, i, j));
    content_of(a, s, b, h, i, r);
    for (const Term& t : a.terms)
      if (in_score(t)) add_term(a, t, b, h, i, r.sum[static_cast<std::size_t>(h)]);
  }
  RowOfHeads extra = empty_row(s);
  if (!a.terms.empty() && a.terms.back().kind == TermKind::dape)
    extra = dape(a.terms.back(), s, r.content, r.sum, r.hidden);
  for (Index h = 0; h < s.H; ++h) {
    const auto n = static_cast<std::size_t>(h);
    for (Index j = 0; j < s.K; ++j) {
      const auto m = static_cast<std::size_t>(j);
      const double both = r.content[n][m] + r.sum[n][m];
      r.score[n][m] = (a.softcap_after_terms ? cap(a, both) : both) + extra[n][m] +
                      get_pair(a.mask.bias, b, h, i, j, 0);
    }
    softmax_of(a, s, h, r);
  }
  return r;
}

// v_j + the value rows of the pair.
double value(const AttentionArgs& a, const Sizes& s, Index b, Index h, Index i, Index j, Index d) {
  double v = get(a.v, b, j, h / s.group, d);
  for (const Term& t : a.terms) {
    if (t.kind != TermKind::value_rows) continue;
    const Index row = row_of(a, t, b, i, j);
    if (row >= 0) v += t.scale * get(t.table, {h, row, d});
  }
  return v;
}

// Through v, the probabilities and the sink: gives d score.
std::vector<double> pull_softmax(const AttentionArgs& a, const Sizes& s, const Row& r,
                                 const ConstHeads& d_out, const ConstTensorView& d_lse,
                                 const AttentionGradients& g, Index b, Index h, Index i) {
  const auto n = static_cast<std::size_t>(h);
  std::vector<double> d(static_cast<std::size_t>(s.K), 0);
  double mean = 0;
  for (Index j = 0; j < s.K; ++j) {
    const auto m = static_cast<std::size_t>(j);
    if (r.hidden[n][m]) continue;
    for (Index x = 0; x < s.V; ++x) {
      const double dy = get(d_out, b, i, h, x);
      d[m] += dy * value(a, s, b, h, i, j, x);
      add(g.v, b, j, h / s.group, x, r.p[n][m] * dy);
      for (std::size_t t = 0; t < a.terms.size(); ++t) {
        const Term& term = a.terms[t];
        if (term.kind != TermKind::value_rows || g.terms.empty()) continue;
        const Index row = row_of(a, term, b, i, j);
        if (row >= 0) add(g.terms[t].table, {h, row, x}, term.scale * r.p[n][m] * dy);
      }
    }
    mean += r.p[n][m] * d[m];
  }
  const double dl = get(d_lse, {b, h, i});
  for (Index j = 0; j < s.K; ++j) {
    const auto m = static_cast<std::size_t>(j);
    d[m] = r.p[n][m] * (d[m] - mean + dl);
    if (!r.hidden[n][m]) add_pair(g.bias, b, h, i, j, d[m]);
  }
  add(g.sink, {h}, r.p_sink[n] * (dl - mean));
  return d;
}

// Through scale, multipliers, regions and q.k.
void pull_content(const AttentionArgs& a, const Sizes& s, const Row& r, const AttentionGradients& g,
                  Index b, Index h, Index i, const std::vector<double>& d_content) {
  const auto n = static_cast<std::size_t>(h);
  const double all = scale_of(a, b, h, i);
  for (Index j = 0; j < s.K; ++j) {
    const auto m = static_cast<std::size_t>(j);
    const double d = d_content[m] * (a.softcap_after_terms ? 1 : cap_slope(a, r.uncapped[n][m]));
    if (d == 0) continue;
    const double raw = r.raw[n][m], times = r.multiplier[n][m];
    add(g.head_scale, {h}, d * a.scale * get(a.query_factor, {b, i}, 1) * raw * times);
    add(g.query_factor, {b, i}, d * a.scale * get(a.head_scale, {h}, 1) * raw * times);
    for (std::size_t t = 0; t < a.terms.size(); ++t) {
      const Term& term = a.terms[t];
      if (term.kind != TermKind::multiply_line || g.terms.empty()) continue;
      const Index row = row_of(a, term, b, i, j);
      if (row < 0) continue;
      double others = 1;  // the product without this line
      for (std::size_t o = 0; o < a.terms.size(); ++o) {
        if (o == t || a.terms[o].kind != TermKind::multiply_line) continue;
        const Index other = row_of(a, a.terms[o], b, i, j);
        if (other >= 0) others *= a.terms[o].scale * get(a.terms[o].table, {h, other});
      }
      add(g.terms[t].table, {h, row}, d * all * raw * others * term.scale);
    }
    const int region = region_of(a, b, i, j);
    const ConstQK& from = turned(a, region);
    const QK none{};
    const QK& to = region < 0
                       ? g.qk
                       : (g.regions.empty() ? none : g.regions[static_cast<std::size_t>(region)]);
    for (Index x = 0; x < s.D; ++x) {
      add(to.q, b, i, h, x, d * all * times * get(from.k, b, j, h / s.group, x));
      add(to.k, b, j, h / s.group, x, d * all * times * get(from.q, b, i, h, x));
    }
  }
}

void row_backward(const AttentionArgs& a, const Sizes& s, const ConstHeads& d_out,
                  const ConstTensorView& d_lse, const AttentionGradients& g, Index b, Index i) {
  const Row r = row_forward(a, s, b, i);
  RowOfHeads d_score(static_cast<std::size_t>(s.H));
  for (Index h = 0; h < s.H; ++h)
    d_score[static_cast<std::size_t>(h)] = pull_softmax(a, s, r, d_out, d_lse, g, b, h, i);
  RowOfHeads d_content = empty_row(s), d_sum = empty_row(s);
  for (std::size_t h = 0; h < d_score.size(); ++h)
    for (std::size_t j = 0; j < d_score[h].size(); ++j) {
      const double slope = a.softcap_after_terms ? cap_slope(a, r.content[h][j] + r.sum[h][j]) : 1;
      d_content[h][j] = d_sum[h][j] = d_score[h][j] * slope;
    }
  if (!a.terms.empty() && a.terms.back().kind == TermKind::dape)
    pull_dape(a.terms.back(), s, g.terms.empty() ? nullptr : &g.terms.back(), r.content, r.sum,
              r.hidden, d_score, d_content, d_sum);
  for (Index h = 0; h < s.H; ++h) {
    const auto n = static_cast<std::size_t>(h);
    pull_content(a, s, r, g, b, h, i, d_content[n]);
    for (std::size_t t = 0; t < a.terms.size(); ++t)
      if (in_score(a.terms[t]))
        pull_term(a, a.terms[t], g.terms.empty() ? nullptr : &g.terms[t], g, b, h, i, d_sum[n]);
  }
}

}  // namespace

void attention_forward(const AttentionArgs& a, AttentionDetail* detail) {
  check_attention(a);
  const Sizes s(a);
  if (detail != nullptr)
    detail->scores.clear(), detail->probabilities.clear(),
        detail->scores.resize(static_cast<std::size_t>(s.B * s.H * s.Q * s.K)),
        detail->probabilities = detail->scores;
  for (Index b = 0; b < s.B; ++b)
    for (Index i = 0; i < s.Q; ++i) {
      const Row r = row_forward(a, s, b, i);
      for (Index h = 0; h < s.H; ++h) {
        const auto n = static_cast<std::size_t>(h);
        put(a.log_sum_exp, {b, h, i}, r.lse[n]);
        for (Index d = 0; d < s.V; ++d) {
          double o = 0;
          for (Index j = 0; j < s.K; ++j)
            if (!r.hidden[n][static_cast<std::size_t>(j)])
              o += r.p[n][static_cast<std::size_t>(j)] * value(a, s, b, h, i, j, d);
          put(a.out, b, i, h, d, o);
        }
        for (Index j = 0; detail != nullptr && j < s.K; ++j) {
          const auto m = static_cast<std::size_t>(j);
          detail->scores[s.pair(b, h, i, j)] = r.hidden[n][m] ? -HUGE_VAL : r.score[n][m];
          detail->probabilities[s.pair(b, h, i, j)] = r.p[n][m];
        }
      }
    }
}

void attention_backward(const AttentionArgs& a, const ConstHeads& d_out,
                        const ConstTensorView& d_lse, const AttentionGradients& g) {
  check_attention(a, g);
  const Sizes s(a);
  for (Index b = 0; b < s.B; ++b)
    for (Index i = 0; i < s.Q; ++i) row_backward(a, s, d_out, d_lse, g, b, i);
}

}  // namespace posenc::support
