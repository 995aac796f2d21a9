// SPDX-License-Identifier: Apache-2.0
// posenc plot --compare: several schemes in one picture.
#include "compare.h"

#include <fmt/format.h>

#include "common.h"
#include "svg_text.h"

namespace posenc::report {
namespace {

const LineChart& lines_of(const Compared& one, std::size_t figure) {
  const auto* chart = std::get_if<LineChart>(&one.figures[figure].chart);
  if (chart == nullptr)
    throw UsageError(
        "--compare goes with pictures of lines: wavelengths, decay, error, scaling, bias, "
        "terms and locality");
  return *chart;
}

bool same_axis(const Axis& a, const Axis& b) {
  return a.label == b.label && a.unit == b.unit && a.logarithmic == b.logarithmic;
}

std::string axis_name(const Axis& a) {
  return a.unit.empty() ? a.label : a.label + " [" + a.unit + "]";
}

void check_axes(const Compared& first, const LineChart& a, const Compared& other,
                const LineChart& b) {
  for (const auto& [x, y] : {std::pair{&a.x, &b.x}, std::pair{&a.y, &b.y}})
    if (!same_axis(*x, *y))
      throw InputError(
          fmt::format("--compare: \"{}\" is drawn over \"{}\", \"{}\" over \"{}\": no "
                      "picture holds both",
                      first.name, axis_name(*x), other.name, axis_name(*y)));
}

bool is_head(const Series& s) {
  return s.name.rfind("head ", 0) == 0;
}

// Of heads the first and the last; of other lines those that are not beside another one.
std::vector<const Series*> kept(const LineChart& c) {
  std::vector<const Series*> all;
  for (const Series& s : c.series)
    if (is_head(s) ? &s == &c.series.front() || &s == &c.series.back() : !s.dashed)
      all.push_back(&s);
  return all;
}

void add_lines(LineChart& to, const Compared& one, const LineChart& c, int color) {
  const std::vector<const Series*> lines = kept(c);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Series s = *lines[i];
    s.name = lines.size() == 1 && !is_head(s) ? one.name : one.name + ", " + s.name;
    s.color = color;
    s.dashed = i > 0;
    s.points = s.points && i == 0;
    to.series.push_back(std::move(s));
  }
  for (const Rule& r : c.rules) {
    const bool there = std::any_of(to.rules.begin(), to.rules.end(), [&](const Rule& x) {
      return x.label == r.label && x.at == r.at && x.vertical == r.vertical;
    });
    if (!there) to.rules.push_back(r);
  }
}

}  // namespace

std::vector<Figure> compared(const std::vector<Compared>& all) {
  if (all.size() > kColors.size())
    throw UsageError(
        fmt::format("a picture compares at most {} schemes, got {}", kColors.size(), all.size()));
  std::vector<Figure> out;
  std::size_t count = all.front().figures.size();
  for (const Compared& one : all) count = std::min(count, one.figures.size());
  for (std::size_t f = 0; f < count; ++f) {
    const LineChart& first = lines_of(all.front(), f);
    LineChart c;
    c.title = first.title, c.x = first.x, c.y = first.y;
    for (std::size_t n = 0; n < all.size(); ++n) {
      const LineChart& own = lines_of(all[n], f);
      if (!own.series.empty() && own.series.front().bars) break;  // no bars beside each other
      check_axes(all.front(), first, all[n], own);
      add_lines(c, all[n], own, static_cast<int>(n));
    }
    if (!c.series.empty()) out.push_back({std::move(c), all.front().figures[f].caption});
  }
  return out;
}

}  // namespace posenc::report
