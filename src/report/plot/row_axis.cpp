// SPDX-License-Identifier: Apache-2.0
#include "row_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace posenc::report {
namespace {

constexpr Index kAllNamed = 24;         // rows that are few enough for a name each
constexpr std::size_t kWidestName = 9;  // characters that fit beside the plot: 1,048,576

// 1, 2 or 5 times a power of ten, at least `least`.
double round_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(std::max(least, 1.0))));
  for (const double m : {1.0, 2.0, 5.0})
    if (m * power >= least) return m * power;
  return 10 * power;
}

// Rows at round positions where the list has enough of them, else every n-th.
std::vector<Index> named_rows(const std::vector<Index>& p) {
  const auto count = static_cast<Index>(p.size());
  std::vector<Index> rows;
  const auto [low, high] = std::minmax_element(p.begin(), p.end());
  const double span = static_cast<double>(*high) - static_cast<double>(*low);
  if (std::is_sorted(p.begin(), p.end()) || std::is_sorted(p.rbegin(), p.rend())) {
    const double step = round_step(span / 8);
    if (step < 0x1p62)
      for (Index r = 0; r < count; ++r)
        if (p[static_cast<std::size_t>(r)] % static_cast<Index>(step) == 0) rows.push_back(r);
  }
  const auto even = [&] {  // no two names on top of each other
    for (std::size_t i = 1; i < rows.size(); ++i)
      if ((rows[i] - rows[i - 1]) * kAllNamed < count) return false;
    return true;
  };
  if (rows.size() >= 4 && even()) return rows;
  rows.clear();
  const Index each =
      count <= kAllNamed ? 1 : static_cast<Index>(round_step(static_cast<double>(count) / 8));
  for (Index r = 0; r < count; r += each) rows.push_back(r);
  return rows;
}

void name_whole(HeatMap& h, const std::vector<Index>& p) {
  const std::vector<Index> rows = named_rows(p);
  bool wide = false;
  for (const Index r : rows)
    wide = wide || with_commas(p[static_cast<std::size_t>(r)]).size() > kWidestName;
  // Unsigned: the difference of any two fits.
  const auto behind_first = [&](Index x) {
    return x >= p[0] ? fmt::format("+{}",
                                   static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(p[0]))
                     : fmt::format(
                           "-{}", static_cast<std::uint64_t>(p[0]) - static_cast<std::uint64_t>(x));
  };
  if (wide) h.y.label = "position, from " + with_commas(p[0]);
  for (const Index r : rows) {
    const Index x = p[static_cast<std::size_t>(r)];
    std::string name = wide ? behind_first(x) : with_commas(x);
    if (name.size() > kWidestName) name = fmt::format("{:.3g}", static_cast<double>(x));
    h.row_names.push_back({r, std::move(name)});
  }
}

}  // namespace

void check_drawable(Index rows, Index columns) {
  if (rows < 1 || rows > kMostRows)
    throw UsageError(fmt::format("rows draws 1 to {} positions, got {}", kMostRows, rows));
  if (rows * columns > kMostCells)
    throw UsageError(fmt::format(
        "{} positions of {} numbers are more than the {} that a picture holds; draw fewer "
        "--positions",
        rows, columns, with_commas(kMostCells)));
}

void name_rows(HeatMap& h, const PositionList& list) {
  h.y = {"position", "tokens", false, {}, {}, true};
  if (list.owned.axes != 1) {
    h.y = {"row of the list", "index", false, {}, {}, true};
    return;
  }
  h.positions = Json::array();
  if (const auto* whole = std::get_if<std::vector<Index>>(&list.owned.value)) {
    for (const Index x : *whole) h.positions.push(Json(x));
    return name_whole(h, *whole);
  }
  const auto& real = std::get<std::vector<double>>(list.owned.value);
  for (const double x : real) h.positions.push(Json(x));
  const auto count = static_cast<Index>(real.size());
  const Index each =
      count <= kAllNamed ? 1 : static_cast<Index>(round_step(static_cast<double>(count) / 8));
  for (Index r = 0; r < count; r += each)
    h.row_names.push_back({r, fmt::format("{:.6g}", real[static_cast<std::size_t>(r)])});
}

PositionList first_positions(Index count) {
  PositionList list;
  list.owned = arange(0, count);
  list.shape = {count};
  return list;
}

}  // namespace posenc::report
