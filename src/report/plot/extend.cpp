// SPDX-License-Identifier: Apache-2.0
// posenc plot WEIGHTS --kind extend: a learned table before and after it was made another size.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "extend_rows.h"
#include "input.h"
#include "posenc/io/gguf.h"

namespace posenc::report {
namespace {

struct Table {
  std::vector<double> values;
  TableShape shape;
  Index width = 0;
  const double* row(Index r) const { return values.data() + (shape.prefix + r) * width; }
  Index rows() const { return shape.height * shape.width; }
};

// The new row that stands where the old one stood, the nearest where none does.
Index moved(Index old, Index old_size, Index new_size, const Extension& how,
            std::optional<double> scale) {
  if (how.how == ExtendHow::hierarchical || how.how == ExtendHow::tile) return old;
  const auto o = static_cast<double>(old), n = static_cast<double>(new_size),
             m = static_cast<double>(old_size);
  const double factor = scale.value_or((n + how.offset) / m);
  const double at = how.how == ExtendHow::stretch ? o * factor
                    : how.align_corners           ? (m > 1 ? o * (n - 1) / (m - 1) : 0)
                                                  : (o + 0.5) * factor - 0.5;
  return std::clamp<Index>(static_cast<Index>(std::lround(at)), 0, new_size - 1);
}

// At most 1200 points of a line.
Index step_of(Index rows) {
  return std::max<Index>(1, (rows + 1199) / 1200);
}

Series similar(const Table& t, Index at, std::string name, bool dashed) {
  Series s{std::move(name), {}, {}, dashed};
  for (Index r = 0; r < t.rows(); r += step_of(t.rows())) {
    s.x.push_back(static_cast<double>(r));
    s.y.push_back(similarity(t.row(r), t.row(at), t.width));
  }
  return s;
}

Figure line_similarity(const Table& before, const Table& after, const ExtendedRows& x, Index at,
                       const std::string& title) {
  const Index there = moved(at, before.rows(), after.rows(), x.how, x.how.scale_y);
  LineChart c;
  c.title = "Cosine similarity to one position, before and after";
  c.subtitle = title;
  c.x = {"position", "tokens", false, {}, {}, true};
  c.y = {"cosine similarity", ""};
  c.series = {
      similar(before, at, fmt::format("before, to position {} of {}", at, before.rows()), false),
      similar(after, there, fmt::format("after, to position {} of {}", there, after.rows()), true)};
  c.rules.push_back(
      {fmt::format("old end {}", before.rows()), static_cast<double>(before.rows()), true});
  if (x.how.how == ExtendHow::tile)
    return {std::move(c), "Behind the old end the old rows come again unchanged."};
  const bool hierarchical = x.how.how == ExtendHow::hierarchical;
  return {std::move(c),
          hierarchical ? "The first rows are the old ones; behind the old end the pattern comes "
                         "again, shifted by a little of the row that counts blocks."
                       : "The peak widens by the factor of the lengths: neighbours look more alike "
                         "than in training, which is what fine-tuning has to mend."};
}

// The channels that vary most over the old rows.
std::vector<Index> telling_channels(const Table& t, std::size_t count) {
  std::vector<double> spread(static_cast<std::size_t>(t.width));
  for (Index c = 0; c < t.width; ++c) {
    double sum = 0, squares = 0;
    for (Index r = 0; r < t.rows(); ++r) sum += t.row(r)[c], squares += t.row(r)[c] * t.row(r)[c];
    const auto n = static_cast<double>(t.rows());
    spread[static_cast<std::size_t>(c)] = squares / n - sum / n * (sum / n);
  }
  std::vector<Index> order(spread.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
    return spread[static_cast<std::size_t>(a)] > spread[static_cast<std::size_t>(b)];
  });
  order.resize(std::min(order.size(), count));
  return order;
}

// Where a new row was sampled, in old rows.
double sampled_at(Index row, Index old_size, Index new_size, const Extension& how) {
  const auto o = static_cast<double>(row), n = static_cast<double>(new_size),
             m = static_cast<double>(old_size);
  if (how.how == ExtendHow::hierarchical || how.how == ExtendHow::tile) return o;
  if (how.how == ExtendHow::stretch) return o / how.scale_y.value_or(n / m);
  if (how.align_corners) return n > 1 ? o * (m - 1) / (n - 1) : 0;
  const double s = how.scale_y ? 1 / *how.scale_y : m / (n + how.offset);
  return (o + 0.5) * s - 0.5;
}

// Hierarchical and tiled rows whole; interpolated ones near the chosen row, where old and new can be told
// apart.
Figure line_channels(const Table& before, const Table& after, const ExtendedRows& x, Index at,
                     const std::string& title) {
  const bool near = x.how.how != ExtendHow::hierarchical && x.how.how != ExtendHow::tile;
  const auto shown = [&](double position) {
    return !near || std::abs(position - static_cast<double>(at)) <= 10;
  };
  LineChart c;
  c.title = near ? fmt::format("Three channels near position {}, before and after", at)
                 : "Three channels over position, before and after";
  c.subtitle = title;
  c.x = {"position", near ? "rows of the old table" : "tokens"};
  c.y = {"value", ""};
  int color = 0;
  for (const Index channel : telling_channels(before, 3)) {
    Series old{fmt::format("channel {} before", channel), {}, {}, false, near};
    Series now{fmt::format("channel {} after", channel), {}, {}, true, near};
    for (Index r = 0; r < before.rows(); r += near ? 1 : step_of(before.rows()))
      if (shown(static_cast<double>(r)))
        old.x.push_back(static_cast<double>(r)), old.y.push_back(before.row(r)[channel]);
    for (Index r = 0; r < after.rows(); r += near ? 1 : step_of(after.rows()))
      if (const double p = sampled_at(r, before.rows(), after.rows(), x.how); shown(p))
        now.x.push_back(p), now.y.push_back(after.row(r)[channel]);
    old.color = color, now.color = near ? color + 3 : color;
    ++color;
    c.series.push_back(std::move(old)), c.series.push_back(std::move(now));
  }
  return {std::move(c),
          near ? "The channels that vary most over the old rows; new rows stand where they were "
                 "sampled from the old ones."
               : "The channels that vary most over the old rows."};
}

Figure patch_map(const Table& t, Index y, Index x, const char* when, const std::string& title) {
  HeatMap h;
  h.title = fmt::format("Cosine similarity to patch ({}, {}), {}", y, x, when);
  h.subtitle = title;
  h.x = {"column", "patches", false, {}, {}, true};
  h.y = {"row", "patches", false, {}, {}, true};
  h.value_label = "similarity";
  h.rows = static_cast<int>(t.shape.height), h.columns = static_cast<int>(t.shape.width);
  h.limit = 1;
  for (Index r = 0; r < t.rows(); ++r)
    h.values.push_back(
        static_cast<float>(similarity(t.row(r), t.row(y * t.shape.width + x), t.width)));
  return {std::move(h), "One square a patch; class and register rows are left out."};
}

std::vector<Index> place_of(const PlotOptions& o, const TableShape& from, bool line) {
  if (o.at.empty())
    return line ? std::vector<Index>{from.height / 2}
                : std::vector<Index>{from.height / 2, from.width / 2};
  const std::vector<Index> at = sizes("--at", o.at, 0);
  if ((at.size() == 1) != line)
    throw UsageError(fmt::format("--at must be {}, got \"{}\"", line ? "N" : "YxX", o.at));
  if (at[0] >= from.height || (!line && at[1] >= from.width))
    throw UsageError(fmt::format("--at must lie in the old table, {}{}, got \"{}\"", from.height,
                                 line ? " rows" : fmt::format("x{}", from.width), o.at));
  return at;
}

}  // namespace

std::vector<Figure> plot_extend(const PlotOptions& o) {
  ExtendOptions e = o.extend;
  e.weights = o.subject.text;
  for (const auto& [given, name] :
       {std::pair{e.tensor.empty(), "--tensor"}, std::pair{e.to.empty(), "--to"},
        std::pair{e.how.empty(), "--how"}})
    if (given) throw UsageError(fmt::format("--kind extend needs {}", name));
  const MappedFile file{std::filesystem::path(e.weights)};
  const SafetensorsIndex index = index_safetensors(file.bytes(), e.weights);
  const ExtendedRows x = extended_rows(index, e);
  if (x.to.rows() > 1'000'000) throw UsageError("--kind extend draws at most a million rows");
  const Table before{x.before.doubles(), x.from, x.channels};
  const Table after{x.after.doubles(), x.to, x.channels};
  const std::vector<Index> at = place_of(o, x.from, x.line());
  const std::string title = fmt::format("{}, {} to {}", e.tensor, e.how, e.to);
  if (x.line())
    return {line_similarity(before, after, x, at[0], title),
            line_channels(before, after, x, at[0], title)};
  if (x.to.height > 2048 || x.to.width > 2048)
    throw UsageError("--kind extend draws grids of at most 2048 patches a side");
  return {patch_map(before, at[0], at[1], "before", title),
          patch_map(after, moved(at[0], x.from.height, x.to.height, x.how, x.how.scale_y),
                    moved(at[1], x.from.width, x.to.width, x.how, x.how.scale_x), "after", title)};
}

}  // namespace posenc::report
