// SPDX-License-Identifier: Apache-2.0
// A window inside the sentence. OUR OWN DEFINITION (absolute/paragraph_offset.h says why): of query
// i and key j, delta = query - key,
//   b_h(i, j) = near[h, delta + window]  where both stand in one sentence and |delta| <= window
//             = far[h]                   elsewhere
// near and far start at 0. The sentence of every query and key comes with the call, as the classes
// of the term's pair.
#pragma once
#include "posenc/core/error.h"
#include "posenc/relative/term.h"

namespace posenc {

struct LocalWindow {
  static constexpr Card card{"local_window", "window inside the sentence", "posenc",
                             "own definition"};
  Index window = 1;
  Index sentences = 1;  // sentence ids are 0 .. sentences - 1

  std::vector<Parameter> parameters(const ScoreShape& s) const {
    check_score_shape(s, "local_window");
    check_fields();
    return {{"near", {s.heads, 2 * window + 1}, {}, {}}, {"far", {s.heads}, {}, {}}};
  }

  // Rows of the table: the window, then what is far; another sentence shifts behind all of it.
  void lower(const ScoreShape& s, std::span<const TensorView> p, LoweredTerms& out) const {
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

  void pull_back(const ScoreShape& s, std::span<const TensorView> p,
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

  bool operator==(const LocalWindow&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("window", s.window,
      Field{
          .doc = "tokens to both sides", .unit = "tokens", .min = 0, .max = 1e6, .required = true});
    v("sentences", s.sentences,
      Field{.doc = "sentence ids of a call", .min = 1, .max = 4096, .required = true});
  }

 private:
  void check_fields() const {
    if (window < 0 || window > 1000000)
      refuse("local_window", "window must lie between 0 and 10^6", window);
    if (sentences < 1 || sentences > 4096)
      refuse("local_window", "sentences must lie between 1 and 4096", sentences);
  }
};
static_assert(RelativeScheme<LocalWindow>);

}  // namespace posenc
