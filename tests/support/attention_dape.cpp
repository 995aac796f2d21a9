// SPDX-License-Identifier: Apache-2.0
// DAPE: a small network over the heads (and neighbouring keys) of one row.
#include "support/attention_parts.h"

namespace posenc::support {
namespace {

double leaky(double y, double slope) {
  return y > 0 ? y : slope * y;
}

// The channel that goes in; 0 at hidden keys and outside.
double input(const Sizes& s, const RowOfHeads& content, const RowOfHeads& sum,
             const std::vector<std::vector<bool>>& hidden, Index channel, Index j) {
  if (j < 0 || j >= s.K) return 0;
  const auto h = static_cast<std::size_t>(channel % s.H);
  if (hidden[h][static_cast<std::size_t>(j)]) return 0;
  return (channel < s.H ? content : sum)[h][static_cast<std::size_t>(j)];
}

RowOfHeads first_layer(const Term& t, const Sizes& s, const RowOfHeads& content,
                       const RowOfHeads& sum, const std::vector<std::vector<bool>>& hidden) {
  const Index width = t.table.shape[0], channels = t.table.shape[1], n = t.table.shape[2];
  RowOfHeads y(static_cast<std::size_t>(width));
  for (Index u = 0; u < width; ++u)
    for (Index j = 0; j < s.K; ++j) {
      double v = get(t.table3, {u});
      for (Index c = 0; c < channels; ++c)
        for (Index x = 0; x < n; ++x)
          v += get(t.table, {u, c, x}) * input(s, content, sum, hidden, c, j + x - n / 2);
      y[static_cast<std::size_t>(u)].push_back(v);
    }
  return y;
}

}  // namespace

RowOfHeads dape(const Term& t, const Sizes& s, const RowOfHeads& content, const RowOfHeads& sum,
                const std::vector<std::vector<bool>>& hidden) {
  const Index width = t.table.shape[0], n = t.table.shape[2];
  const RowOfHeads y = first_layer(t, s, content, sum, hidden);
  RowOfHeads f(static_cast<std::size_t>(s.H));
  for (Index h = 0; h < s.H; ++h)
    for (Index j = 0; j < s.K; ++j) {
      double v = get(t.table3, {width + h});
      for (Index u = 0; u < width; ++u)
        for (Index x = 0; x < n; ++x) {
          const Index at = j + x - n / 2;
          if (at >= 0 && at < s.K)
            v += get(t.table2, {h, u, x}) *
                 leaky(y[static_cast<std::size_t>(u)][static_cast<std::size_t>(at)], t.slope);
        }
      f[static_cast<std::size_t>(h)].push_back(t.scale * v);
    }
  return f;
}

void pull_dape(const Term& t, const Sizes& s, const TermGradient* gradient,
               const RowOfHeads& content, const RowOfHeads& sum,
               const std::vector<std::vector<bool>>& hidden, const RowOfHeads& d_f,
               RowOfHeads& d_content, RowOfHeads& d_sum) {
  const TermGradient none;
  const TermGradient& g = gradient != nullptr ? *gradient : none;
  const Index width = t.table.shape[0], channels = t.table.shape[1], n = t.table.shape[2];
  const RowOfHeads y = first_layer(t, s, content, sum, hidden);
  RowOfHeads d_y(y.size(), std::vector<double>(static_cast<std::size_t>(s.K), 0));
  for (Index h = 0; h < s.H; ++h)
    for (Index j = 0; j < s.K; ++j) {
      const double d = t.scale * d_f[static_cast<std::size_t>(h)][static_cast<std::size_t>(j)];
      add(g.table3, {width + h}, d);
      for (Index u = 0; u < width; ++u)
        for (Index x = 0; x < n; ++x) {
          const Index at = j + x - n / 2;
          if (at < 0 || at >= s.K) continue;
          const double v = y[static_cast<std::size_t>(u)][static_cast<std::size_t>(at)];
          add(g.table2, {h, u, x}, d * leaky(v, t.slope));
          d_y[static_cast<std::size_t>(u)][static_cast<std::size_t>(at)] +=
              d * get(t.table2, {h, u, x}) * (v > 0 ? 1 : t.slope);
        }
    }
  for (Index u = 0; u < width; ++u)
    for (Index j = 0; j < s.K; ++j) {
      const double d = d_y[static_cast<std::size_t>(u)][static_cast<std::size_t>(j)];
      add(g.table3, {u}, d);
      for (Index c = 0; c < channels; ++c)
        for (Index x = 0; x < n; ++x) {
          const Index at = j + x - n / 2;
          add(g.table, {u, c, x}, d * input(s, content, sum, hidden, c, at));
          const auto h = static_cast<std::size_t>(c % s.H);
          if (at < 0 || at >= s.K || hidden[h][static_cast<std::size_t>(at)]) continue;
          (c < s.H ? d_content : d_sum)[h][static_cast<std::size_t>(at)] +=
              d * get(t.table, {u, c, x});
        }
    }
}

}  // namespace posenc::support
