// SPDX-License-Identifier: Apache-2.0
#include "input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "extend_rows.h"
#include "phases.h"
#include "row_axis.h"
#include "sinusoid.h"

namespace posenc::report {
namespace {

// The rows of the subject at these positions, f64.
struct RowSource {
  const Encoding* scheme = nullptr;
  const ModelSpec* model = nullptr;
  const InputEncoding* input = nullptr;
  const SubjectOptions* subject = nullptr;
  std::string grid;  // HxW: a list counts its cells
  Array at(const PositionList& list) const {
    if (!scheme) return model_rows(*model, *input, list, DType::f64, grid);
    return input_rows(*scheme, grid.empty() ? list : cells_of(grid, list), DType::f64, *subject);
  }
};

// As many positions as are drawn where none are given: all cells of a grid, if a picture holds
// them.
Index usual_count(const RowSource& source, std::optional<Index> most) {
  if (source.grid.empty()) return std::min<Index>(most.value_or(100), 512);
  const std::vector<Index> g = sizes("--grid", source.grid);
  Index cells = 1;
  for (const Index n : g) cells = std::min(cells * std::min(n, kMostRows), kMostRows);
  return cells;
}

Figure heat_map(const RowSource& source, const std::string& title, const PlotOptions& o,
                std::optional<Index> most) {
  const PositionList list = o.positions.empty() ? first_positions(usual_count(source, most))
                                                : read_positions(o.positions);
  check_drawable(list.owned.batch * list.owned.count(), 1);
  const Array rows = source.at(list);
  check_drawable(rows.shape[0], rows.shape[1]);
  const std::vector<double> v = rows.doubles();
  HeatMap h;
  h.title = "Encoding of every position and channel";
  h.subtitle = title;
  h.x = {"channel", "index", false, {}, {}, true};
  name_rows(h, list);
  if (source.input && source.input->image_prefix && o.positions.empty())
    h.y.unit = "row of the table";
  if (!source.grid.empty()) h.y = {"cell", "row by row", false, {}, {}, true};
  h.value_label = "encoding";
  h.rows = static_cast<int>(rows.shape[0]), h.columns = static_cast<int>(rows.shape[1]);
  // A few large numbers would leave the rest white: the scale ends at twice the 98th percentile.
  std::vector<double> size;
  for (const double x : v)
    if (std::isfinite(x)) size.push_back(std::abs(x));
  if (size.size() < v.size())
    h.note =
        fmt::format("not finite, and grey: {} of {} numbers", v.size() - size.size(), v.size());
  if (size.empty()) size.push_back(0);
  const auto nth = size.begin() + static_cast<std::ptrdiff_t>(size.size() * 98 / 100);
  std::nth_element(size.begin(), nth, size.end());
  const double typical = *nth, largest = *std::max_element(nth, size.end());
  h.limit = largest > 2 * typical && typical > 0 ? 2 * typical : largest;
  if (!(h.limit > 0)) h.limit = 1;
  h.limit = std::stod(fmt::format("{:.2g}", h.limit));
  h.values.assign(v.begin(), v.end());
  std::string caption =
      fmt::format("A row is one position. The largest number is {:.3g}; the colours end at {:g}.",
                  largest, h.limit);
  return {std::move(h), std::move(caption)};
}

// All cells of a grid where they lie: how much each is like the one in the middle.
Figure grid_map(const RowSource& source, const std::string& title, Index height, Index width) {
  const Array rows = source.at(first_positions(height * width));
  const std::vector<double> v = rows.doubles();
  const Index y = height / 2, x = width / 2, channels = rows.shape[1];
  HeatMap h;
  h.title = fmt::format("Cosine similarity to cell ({}, {})", y, x);
  h.subtitle = title;
  h.x = {"column", "cells", false, {}, {}, true};
  h.y = {"row", "cells", false, {}, {}, true};
  h.value_label = "similarity";
  h.rows = static_cast<int>(height), h.columns = static_cast<int>(width);
  for (Index cell = 0; cell < height * width; ++cell)
    h.values.push_back(static_cast<float>(
        similarity(v.data() + cell * channels, v.data() + (y * width + x) * channels, channels)));
  return {std::move(h),
          "One square a cell of the grid, coloured by the cosine of the angle between "
          "its row and that of the cell in the middle."};
}

bool finite_row(const double* row, Index width) {
  return std::all_of(row, row + width, [](double x) { return std::isfinite(x); });
}

// The mean over at most 256 pairs of rows for each distance.
Figure similarities(const RowSource& source, const std::string& title, Index count) {
  const std::vector<double> v = source.at(first_positions(count)).doubles();
  const Index width = static_cast<Index>(v.size()) / count;
  LineChart c;
  c.title = "Cosine similarity of two rows by distance";
  c.subtitle = title;
  c.x = {"distance", "positions", true};
  c.y = {"cosine similarity", ""};
  Series mean{fmt::format("mean over the pairs of {} rows", count), {}, {}};
  Series low{"least", {}, {}, true}, high{"largest", {}, {}, true};
  Index broken = 0;
  for (Index r = 0; r < count; ++r) broken += finite_row(v.data() + r * width, width) ? 0 : 1;
  if (broken > 0)
    c.note = fmt::format("{} of {} rows hold numbers that are not finite: left out", broken, count);
  const double top = std::log(static_cast<double>(count - 1));
  Index before = 0;
  for (int i = 0; i <= 200; ++i) {
    const Index d = count > 2 ? static_cast<Index>(std::round(std::exp(top * i / 200))) : 1;
    if (d == before) continue;
    before = d;
    const Index pairs = count - d, step = std::max<Index>(1, pairs / 256);
    double sum = 0, least = 2, largest = -2;
    Index used = 0;
    for (Index p = 0; p < pairs; p += step) {
      if (broken > 0 && !(finite_row(v.data() + p * width, width) &&
                          finite_row(v.data() + (p + d) * width, width)))
        continue;
      ++used;
      const double s = similarity(v.data() + p * width, v.data() + (p + d) * width, width);
      sum += s, least = std::min(least, s), largest = std::max(largest, s);
    }
    if (used == 0) continue;
    for (Series* s : {&mean, &low, &high}) s->x.push_back(static_cast<double>(d));
    mean.y.push_back(sum / static_cast<double>(used));
    low.y.push_back(least), high.y.push_back(largest);
  }
  c.series = {std::move(mean), std::move(low), std::move(high)};
  c.rules.push_back({"", 0, false});
  return {std::move(c),
          "What the rows alone say of distance: neighbours that look alike, and how soon that "
          "ends. Rows that no text was long enough to train stay near 0."};
}

}  // namespace

double similarity(const double* a, const double* b, Index width) {
  double ab = 0, aa = 0, bb = 0;
  for (Index c = 0; c < width; ++c) ab += a[c] * b[c], aa += a[c] * a[c], bb += b[c] * b[c];
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa) / std::sqrt(bb) : 0;
}

bool is_drawn_by_rows(const Subject& s, const PlotOptions& o) {
  if (s.encoding) return is_input_scheme(*s.encoding);
  if (o.subject.input) return true;
  require_readable(*s.model);
  return !o.subject.layer && !inputs_of(*s.model, o.subject).empty() &&
         !chosen_layer(*s.model, o.subject).rotary;
}

std::string usual_kind(const Subject& s, const PlotOptions& o) {
  const Encoding& e = s.encoding ? *s.encoding : chosen_input(*s.model, o.subject).value;
  const Context context{o.subject.context.value_or(0)};
  const bool waves = std::holds_alternative<Sinusoidal>(e.scheme) || phases_of(e, context);
  return waves ? "wavelengths" : "rows";
}

std::vector<Figure> plot_input(const Subject& s, const PlotOptions& o, std::string& title) {
  RowSource source;
  source.grid = o.extend.grid;
  std::optional<Index> most;
  PlotOptions own = o;
  if (s.encoding) {
    source.scheme = &*s.encoding;
    source.subject = &o.subject;
    if (o.subject.start) title += fmt::format(", before training, seed {}", *o.subject.start);
  } else {
    source.model = &*s.model;
    source.input = &chosen_input(*s.model, o.subject);
    title += ": " + to_text(source.input->value);
    most = source.input->positions;
    if (!own.subject.context && most) own.subject.context = *most;
  }
  const Encoding& e = s.encoding ? *s.encoding : source.input->value;
  // (A scaled one is drawn as any other phase: its law is that of the plain one.)
  if (const auto* sinusoid = std::get_if<Sinusoidal>(&e.scheme);
      sinusoid && e.scalings.empty() && source.grid.empty())
    return plot_sinusoid(*sinusoid, title, own);
  const std::optional<LoweredInput> phases = phases_of(e, {own.subject.context.value_or(0)});
  bool by_number = source.input == nullptr || !source.input->image_prefix;
  if (s.encoding && !phases && (o.kind == "decay" || (o.kind == "rows" && o.positions.empty()))) {
    const TablePositions tables = table_positions(*s.encoding, o.subject);
    most = tables.count;
    by_number = tables.axes == 1;
  }
  by_number = by_number && most && *most >= 2;
  if (o.kind == "rows") {
    std::vector<Figure> all;
    all.push_back(heat_map(source, title, o, most));
    if (!source.grid.empty() && o.positions.empty()) {
      const std::vector<Index> g = sizes("--grid", source.grid);
      if (g.size() == 2 && g[0] <= kMostRows && g[1] <= kMostRows && g[0] * g[1] <= kMostCells / 64)
        all.push_back(grid_map(source, title, g[0], g[1]));
    }
    return all;
  }
  if (phases && o.kind == "wavelengths")
    return {phase_wavelengths(*phases, title, own.subject.context)};
  if (phases && o.kind == "decay")
    return {phase_inner_products(*phases, title, own.subject.context)};
  if (o.kind == "decay" && by_number)
    return {similarities(
        source, title, std::min<Index>({*most, own.subject.context.value_or(*most), Index{8192}}))};
  throw UsageError(fmt::format("--kind of \"{}\" must be rows{}, got \"{}\"", title,
                               phases      ? ", wavelengths or decay"
                               : by_number ? " or decay"
                               : s.encoding && o.kind != "decay"
                                   ? " (or decay, where a table has a row for each position)"
                                   : "",
                               o.kind));
}

}  // namespace posenc::report
