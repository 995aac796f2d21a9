// SPDX-License-Identifier: Apache-2.0
// posenc plot --kind bias: what a scheme adds to the score by distance, a line a head.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention_call.h"
#include "extend_rows.h"
#include "rotary.h"
#include "row_axis.h"
#include "score.h"

namespace posenc::report {
namespace {

std::string bias_title(const Subject& s, const ScoreEncodings& e) {
  return s.is_model() ? fmt::format("{}: {}", s.title, fmt::join(e.texts, ", ")) : s.title;
}

const std::string& bias_parameters(const PlotOptions& o) {
  return o.call.params.empty() ? o.subject.arrays : o.call.params;
}

// What the query in the middle cell of --grid adds for the key in every cell, a map a head.
std::vector<Figure> bias_of_cells(const Subject& s, const PlotOptions& o) {
  constexpr Index kMostMaps = 4;
  if (!o.positions.empty()) throw UsageError("--grid and --positions: one of the two");
  const std::vector<Index> size = sizes("--grid", o.extend.grid);
  if (size.size() != 2) throw UsageError("--grid must be HxW, got \"" + o.extend.grid + "\"");
  if (size[0] > kMostRows || size[1] > kMostRows)
    throw UsageError(fmt::format("--grid of a bias has at most {} rows and columns", kMostRows));
  const Index middle = size[0] / 2 * size[1] + size[1] / 2;
  const PositionList keys = cells_of(o.extend.grid, first_positions(size[0] * size[1]));
  const PositionList query = cells_of(o.extend.grid, {explicit_positions({middle}), {1}});
  const ScoreEncodings e = bias_encodings(s, o.subject);
  const std::vector<double> v = plain_bias(e, o.subject, bias_parameters(o), o.call.inputs, query,
                                           keys, o.heads, o.head_dim > 0 ? o.head_dim : 64)
                                    .doubles();
  double limit = 0;
  for (const double x : v)
    if (std::isfinite(x)) limit = std::max(limit, std::abs(x));
  std::vector<Figure> figures;
  for (Index h = 0; h < std::min(o.heads, kMostMaps); ++h) {
    HeatMap map;
    map.title = fmt::format("Bias of the middle cell's query, head {}", h);
    map.subtitle = bias_title(s, e);
    map.x = {"column of the key", "cells"}, map.y = {"row of the key", "cells"};
    map.value_label = "bias";
    map.rows = static_cast<int>(size[0]), map.columns = static_cast<int>(size[1]);
    map.limit = limit > 0 ? limit : 1;
    for (Index at = 0; at < size[0] * size[1]; ++at)
      map.values.push_back(
          static_cast<float>(v[static_cast<std::size_t>(h * size[0] * size[1] + at)]));
    if (o.heads > kMostMaps) map.note = fmt::format("{} of {} heads are drawn", kMostMaps, o.heads);
    figures.push_back(Figure{std::move(map),
                             "What is added to the score of the query in the middle "
                             "cell and the key in every cell."});
  }
  return figures;
}

PositionList distances_of(const PlotOptions& o) {
  PositionList list = read_positions(o.positions.empty() ? std::string("-128:129") : o.positions);
  const auto* whole = std::get_if<std::vector<Index>>(&list.owned.value);
  if (whole == nullptr || list.owned.axes != 1 || list.owned.batch != 1)
    throw UsageError("--positions of a bias are one list of whole distances, query - key");
  if (whole->empty() || whole->size() > std::size_t{1} << 16)
    throw UsageError(fmt::format("--kind bias draws 1 to 65536 distances, got {}", whole->size()));
  return list;
}

// A scheme that adds a row of its one table, picked by the distance, and nothing else; as it is
// where the number counts and not its scale.
std::optional<Encoding> table_by_distance(const Encoding& e) {
  Encoding plain = e;
  if (auto* t5 = std::get_if<T5>(&plain.scheme)) {
    if (t5->contextual || t5->axis != 0) return std::nullopt;
    t5->bias_scale = 1;
    return plain;
  }
  if (const auto* clipped = std::get_if<Clipped>(&plain.scheme); clipped && clipped->axis == 0)
    return plain;
  return std::nullopt;
}

}  // namespace

bool draws_table_rows(const Subject& s, const PlotOptions& o) {
  return s.encoding && !o.subject.start && bias_parameters(o).empty() && o.extend.grid.empty() &&
         o.call.q.empty() && table_by_distance(*s.encoding).has_value();
}

std::vector<Figure> plot_table_rows(const Subject& s, const PlotOptions& o) {
  const PositionList list = distances_of(o);
  const Encoding e = *table_by_distance(*s.encoding);
  const AttentionPlan plan({relative_scheme(e)}, {.heads = 1, .head_dim = 1});
  const std::vector<Index> shape = plan.parameters().front().shape;
  std::vector<double> rows(static_cast<std::size_t>(
      std::accumulate(shape.begin(), shape.end(), Index{1}, std::multiplies<>())));
  std::iota(rows.begin(), rows.end(), 0.0);
  const NamedArray table{"table", tensor(rows.data(), DType::f64, shape)};
  const OwnedPositions key = explicit_positions({0});
  const LoweredAttention lowered = plan.lower(std::span(&table, 1), distance_ranges(list, key));
  Array row = make_array(DType::f64, {1, 1, list.owned.count(), 1});
  lowered.bias(list, key, {}, row.view());
  LineChart c;
  c.title = "Row of the learned table by distance";
  c.subtitle = s.title;
  c.x = {"distance, query - key", "tokens", false, {}, {}, true};
  c.y = {"row of the table", "index", false, {}, {}, true};
  c.note = "--start SEED draws the numbers before training, --params F those of a trained table";
  Series line{"row of the table", {}, row.doubles()};
  for (const Index d : std::get<std::vector<Index>>(list.owned.value))
    line.x.push_back(static_cast<double>(d));
  c.series = {std::move(line)};
  return {Figure{std::move(c),
                 "Which learned number a pair gets: distances that share a row share a number."}};
}

std::vector<Figure> plot_bias(const Subject& s, const PlotOptions& o) {
  if (o.heads < 1) throw UsageError("--kind bias needs --heads N");
  if (!o.extend.grid.empty()) return bias_of_cells(s, o);
  const PositionList list = distances_of(o);
  const std::vector<Index>& distances = std::get<std::vector<Index>>(list.owned.value);
  const ScoreEncodings e = bias_encodings(s, o.subject);
  const std::vector<double> v = distance_bias(e, o.subject, bias_parameters(o), list, o.heads,
                                              o.head_dim > 0 ? o.head_dim : 64, o.call.inputs)
                                    .doubles();
  LineChart c;
  c.title = "Bias of the score by distance";
  c.subtitle = bias_title(s, e);
  c.x = {"distance, query - key", "tokens", false, {}, {}, true};
  c.y = {"added to the score", ""};
  const std::vector<Index> drawn = drawn_heads(o.heads);
  for (const Index head : drawn) {
    Series line{fmt::format("head {}", head), {}, {}};
    for (std::size_t k = 0; k < distances.size(); ++k) {
      line.x.push_back(static_cast<double>(distances[k]));
      line.y.push_back(v[static_cast<std::size_t>(head) * distances.size() + k]);
    }
    c.series.push_back(std::move(line));
  }
  if (static_cast<Index>(drawn.size()) < o.heads)
    c.note = fmt::format("{} of {} heads are drawn", drawn.size(), o.heads);
  return {Figure{std::move(c),
                 "Keys of the past stand at positive distances, those of the future at "
                 "negative ones, where a causal mask hides them."}};
}

}  // namespace posenc::report
