// SPDX-License-Identifier: Apache-2.0
// posenc plot --kind rotation: the angle of pairs at several positions, a dial each.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "chart.h"
#include "rotary.h"
#include "svg_text.h"
#include "table_angles.h"

namespace posenc::report {
namespace {

constexpr Index kMostDialRows = 8, kMostDialColumns = 12;
constexpr double kRadius = 22, kRowStep = 60, kFirstRow = 132;

// First and last of n, and others evenly between.
std::vector<Index> spread(Index n, Index most) {
  std::vector<Index> all;
  const Index count = std::min(n, most);
  for (Index i = 0; i < count; ++i) all.push_back(count == 1 ? 0 : i * (n - 1) / (count - 1));
  return all;
}

std::string dial(double x, double y, double angle, const char* color) {
  return fmt::format(
      "<circle cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"{2:g}\" fill=\"none\" stroke=\"#bbb\"/>"
      "<path d=\"M{0:.1f} {1:.1f}h{2:g}\" stroke=\"#ccc\" stroke-dasharray=\"3 3\"/>"
      "<path class=\"hand\" d=\"M{0:.1f} {1:.1f}L{3:.2f} {4:.2f}\" stroke=\"{5}\" "
      "stroke-width=\"2.5\"/>\n",
      x, y, kRadius, x + kRadius * std::cos(angle), y - kRadius * std::sin(angle), color);
}

Dials dials_of(const RotaryBlock& block, const PositionList& list, const std::string& title) {
  const Array of_all = angles(block.spectrum, list);
  const std::vector<double> values = of_all.doubles();
  const Index pairs = block.pairs();
  Dials d;
  d.title = "How far each pair rotates";
  d.subtitle = title;
  d.row_label = "pair", d.column_label = "position";
  const Positions p = list;
  for (Index t = 0; t < p.count; ++t) d.columns.push_back(short_number(position_at(p, 0, 0, t)));
  for (const Index pair : spread(pairs, kMostDialRows)) {
    d.rows.push_back(std::to_string(pair));
    for (Index t = 0; t < p.count; ++t)
      d.angle.push_back(static_cast<double>(block.direction) *
                        values[static_cast<std::size_t>(t * pairs + pair)]);
  }
  if (pairs > kMostDialRows) d.note = fmt::format("{} of {} pairs are drawn", kMostDialRows, pairs);
  return d;
}

}  // namespace

Json data(const Dials& d) {
  Json columns = Json::array(), rows = Json::array(), angle = Json::array();
  for (const std::string& c : d.columns) columns.push(Json(c));
  std::size_t at = 0;
  for (const std::string& r : d.rows) {
    rows.push(Json(r));
    Json line = Json::array();
    for (std::size_t c = 0; c < d.columns.size(); ++c) line.push(Json(d.angle[at++]));
    angle.push(std::move(line));
  }
  Json j = Json::object({{"title", d.title},
                         {"row", d.row_label},
                         {"column", d.column_label},
                         {"row_names", std::move(rows)},
                         {"column_names", std::move(columns)},
                         {"angle", std::move(angle)}});
  if (!d.note.empty()) j.set("note", d.note);
  return j;
}

std::string svg(const Dials& d) {
  const double left = kLeft + 60;
  const double step = (kWidth - kRight - left - kRadius) /
                      static_cast<double>(std::max<std::size_t>(d.columns.size(), 1));
  const double bottom = kFirstRow + kRowStep * static_cast<double>(d.rows.size()) - 20;
  double used = 0;
  const std::string below = note_text(d.note, bottom + 12, used);
  std::string s = open_svg(bottom + 12 + used, d.title, data(d)) + heading(d.title, d.subtitle);
  const auto x = [&](std::size_t column) {
    return left + step * (static_cast<double>(column) + 0.5);
  };
  s += svg_words((x(0) + x(d.columns.size() - 1)) / 2, 76, "middle", 13, d.column_label,
                 "class=\"x-label\" fill=\"#333\"");
  for (std::size_t c = 0; c < d.columns.size(); ++c)
    s += svg_words(x(c), 96, "middle", 12, d.columns[c], "fill=\"#333\"");
  for (std::size_t r = 0; r < d.rows.size(); ++r) {
    const double y = kFirstRow + kRowStep * static_cast<double>(r);
    const char* color = kColors[r % kColors.size()];
    s += svg_words(left - 8, y + 4, "end", 12, d.row_label + " " + d.rows[r],
                   fmt::format("class=\"y-label\" fill=\"{}\"", color));
    for (std::size_t c = 0; c < d.columns.size(); ++c)
      s += dial(x(c), y, d.angle[r * d.columns.size() + c], color);
  }
  return s + below + "</svg>\n";
}

std::vector<Figure> plot_rotation(const Drawn& d, const std::string& text) {
  const PositionList list = read_positions(text.empty() ? "0,1,2,4,8,16,32,64" : text);
  if (list.owned.batch != 1 || list.owned.count() < 1 || list.owned.count() > kMostDialColumns)
    throw UsageError(fmt::format("--kind rotation draws 1 to {} positions of one sequence, got {}",
                                 kMostDialColumns, list.owned.batch * list.owned.count()));
  std::vector<Figure> out;
  for (std::size_t b = 0; b < d.spec.blocks.size(); ++b)
    out.push_back(
        {dials_of(d.spec.blocks[b], list,
                  d.spec.blocks.size() == 1 ? d.title : fmt::format("{}, block {}", d.title, b)),
         "The hand shows position x frequency, the angle by which the two channels of a "
         "pair are rotated. The first pairs rotate fast, the last ones hardly at all."});
  return out;
}

}  // namespace posenc::report
