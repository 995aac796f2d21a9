// SPDX-License-Identifier: Apache-2.0
// Charts as SVG: lines on linear or logarithmic axes, heat maps, and dials. Every picture names its axes
// with their units, has a legend, and carries its numbers as JSON in <metadata> so that they can be
// read back. Colours are those of Okabe and Ito, which most colour-blind readers can tell apart.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "posenc/core/dtype.h"
#include "posenc/io/json.h"
#include "utf8.h"

namespace posenc::report {

struct Axis {
  std::string label, unit;
  bool logarithmic = false;
  std::optional<double> min{}, max{};
  bool whole = false;  // no ticks between integers
};

struct Series {
  std::string name;
  std::vector<double> x, y;
  bool dashed = false;
  bool points = false;
  bool bars = false;           // standing on those of the series before; x is where they stand
  std::optional<int> color{};  // of two lines that belong together; none: the next one
};

// A line across the plot: a context length, a bound. Without a label where a tick names it.
struct Rule {
  std::string label;
  double at = 0;
  bool vertical = false;
};

struct LineChart {
  std::string title, subtitle;
  Axis x, y;
  std::vector<Series> series;
  std::vector<Rule> rules;
  std::string note{};  // below the legend: what the picture cannot show
};

// The row of a heat map that has its name at the axis.
struct RowName {
  Index row;
  std::string name;
};

// values [rows, columns], first row on top; colours from -limit (blue) over white to limit
// (orange).
struct HeatMap {
  std::string title, subtitle;
  Axis x, y;
  std::string value_label;
  int rows = 0, columns = 0;
  double limit = 1;
  std::vector<float> values{};
  std::vector<RowName> row_names{};  // none: rows are numbered from 0
  Json positions{};                  // of every row, where rows are positions
  std::string note{};
};

// A clock face for every row and column, with a hand at angle[row * columns + column] rad,
// counter-clockwise from the right.
struct Dials {
  std::string title, subtitle;
  std::string row_label, column_label;
  std::vector<std::string> rows, columns;
  std::vector<double> angle{};
  std::string note{};
};

std::string svg(const LineChart&);
std::string svg(const HeatMap&);
std::string svg(const Dials&);
Json data(const LineChart&);
Json data(const HeatMap&);
Json data(const Dials&);

// One self-contained page: the pictures, a line of text under each, the numbers under the pointer.
struct Figure {
  std::variant<LineChart, HeatMap, Dials> chart;
  std::string caption;
};
std::string svg(const Figure&);
Json data(const Figure&);
// `title` on top of every one; what stood there goes in front of the line below.
void retitle(std::vector<Figure>&, const std::string& title);
std::string html_page(const std::string& title, const std::vector<Figure>&);
// Several pictures above each other in one SVG.
std::string stacked_svg(const std::vector<Figure>&);

}  // namespace posenc::report
