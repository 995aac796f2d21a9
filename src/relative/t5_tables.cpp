// SPDX-License-Identifier: Apache-2.0
#include "relative/t5_tables.h"
#include "relative/learned.h"

#include "relative/lowering.h"

namespace posenc::inline v0::detail {

std::vector<Parameter> t5_tables_parameters(std::string_view who, const ScoreShape& s,
                                            std::span<const T5Table> tables) {
  check_score_shape(s, who);
  std::vector<Parameter> all;
  for (const T5Table& t : tables) {
    t5_thresholds(t.rule.side(), t.rule.max_distance);  // refuses what has no buckets
    Parameter one = t.rule.parameters(s)[0];
    one.name = t.name;
    all.push_back(std::move(one));
  }
  return all;
}

void lower_t5_tables(std::string_view who, const ScoreShape& s, std::span<const T5Table> tables,
                     std::span<const ConstTensorView> p, LoweredTerms& out) {
  const LearnedValues value(who, t5_tables_parameters(who, s, tables), p);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const T5& rule = tables[i].rule;
    std::vector<double> v = value[tables[i].name];
    if (!rule.heads_first) v = transposed_list(v, rule.num_buckets, s.heads);
    out.add(number_term(out.table(std::move(v), s.heads, rule.num_buckets, 1), rule.line(s, out),
                        rule.bias_scale));
  }
}

void pull_back_t5_tables(std::string_view who, const ScoreShape& s, std::span<const T5Table> tables,
                         std::size_t parameters, const LoweredGradient& g,
                         std::span<const TensorView> dp) {
  const std::vector<Parameter> needed = t5_tables_parameters(who, s, tables);
  check_parameter_count(who, needed.size(), parameters);
  std::vector<std::vector<double>> d;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const T5& rule = tables[i].rule;
    d.push_back(gradient_values(who, gradient_of(who, g.terms, i).table,
                                {1, s.heads, rule.num_buckets, 1}));
    if (!rule.heads_first) d.back() = transposed_list(d.back(), s.heads, rule.num_buckets);
  }
  accumulate(who, needed, dp, d);
}

}  // namespace posenc::v0::detail
