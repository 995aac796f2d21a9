// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/local_window.h"

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

std::vector<Parameter> LocalWindow::parameters(const ScoreShape& s) const {
  check_score_shape(s, "local_window");
  check_fields();
  return {{"near", {s.heads, 2 * window + 1}, {}, {}}, {"far", {s.heads}, {}, {}}};
}

void LocalWindow::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count("local_window", needed.size(), p.size());
  const std::vector<double> near = parameter_values("local_window", needed[0], p[0]);
  const std::vector<double> far = parameter_values("local_window", needed[1], p[1]);
  const Index n = 2 * window + 1;
  std::vector<double> table;
  for (Index h = 0; h < s.heads; ++h)
    for (Index r = 0; r < 2 * n + 2; ++r)
      table.push_back(r < n ? near[static_cast<std::size_t>(h * n + r)]
                            : far[static_cast<std::size_t>(h)]);
  std::vector<std::int32_t> row;
  for (Index delta = -window - 1; delta <= window + 1; ++delta)
    row.push_back(static_cast<std::int32_t>(std::abs(delta) <= window ? delta + window : n));
  std::vector<std::int32_t> pair;
  for (Index i = 0; i < sentences; ++i)
    for (Index j = 0; j < sentences; ++j)
      pair.push_back(static_cast<std::int32_t>(i == j ? 0 : n + 1));
  Term t;
  t.kind = TermKind::line;
  t.lines[0] = out.line(std::move(row), -window - 1);
  t.pair = out.pair(std::move(pair), sentences, sentences);
  t.table = out.table(std::move(table), {s.heads, 2 * n + 2});
  out.terms.push_back(t);
}

void LocalWindow::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            std::span<const TermGradient> g, std::span<const TensorView> dp) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count("local_window", needed.size(), p.size());
  const Index n = 2 * window + 1;
  const std::vector<double> d = gradient_values(
      "local_window", gradient_of("local_window", g, 0).table, {s.heads, 2 * n + 2});
  std::vector<double> near, far(static_cast<std::size_t>(s.heads), 0.0);
  for (Index h = 0; h < s.heads; ++h)
    for (Index r = 0; r < 2 * n + 2; ++r) {
      const double x = d[static_cast<std::size_t>(h * (2 * n + 2) + r)];
      if (r < n)
        near.push_back(x);
      else
        far[static_cast<std::size_t>(h)] += x;
    }
  accumulate("local_window", needed, dp, std::vector<std::vector<double>>{near, far});
}

void LocalWindow::check_fields() const {
  if (window < 0 || window > 1000000)
    refuse("local_window", "window must lie between 0 and 10^6", window);
  if (sentences < 1 || sentences > 4096)
    refuse("local_window", "sentences must lie between 1 and 4096", sentences);
}

}  // namespace posenc::v0
