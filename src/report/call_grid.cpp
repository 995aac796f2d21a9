// SPDX-License-Identifier: Apache-2.0
#include "call_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "extend_rows.h"
#include "table_input.h"

namespace posenc::report {
namespace {

struct CallGrid {
  Index rows = 0, columns = 0;
  bool resized = false;  // its tables fit no other grid: decomposed
  Index step = 1;        // between the rows and columns of queries

  Index cells() const { return rows * columns; }
  bool operator==(const CallGrid& g) const { return rows == g.rows && columns == g.columns; }
  std::string text() const { return fmt::format("{}x{}", rows, columns); }
  // The cells of the queries by themselves.
  CallGrid of_queries() const { return {(rows - 1) / step + 1, (columns - 1) / step + 1}; }
};

CallGrid grid_of_text(const std::string& text) {
  const std::vector<Index> n = sizes("--grid", text);
  if (n.size() != 2) throw UsageError("--grid must be HxW, got \"" + text + "\"");
  return {n[0], n[1]};
}

// The grid that a scheme is made for, where queries and keys have one.
std::optional<CallGrid> grid_of(const Scheme& s) {
  if (const auto* d = std::get_if<Decomposed>(&s)) {
    if (d->size.size() != 2 || !d->key_size.empty()) return std::nullopt;
    return CallGrid{d->size[0], d->size[1], true};
  }
  if (const auto* w = std::get_if<Swin>(&s)) return CallGrid{w->height, w->width};
  if (const auto* w = std::get_if<SwinV2>(&s)) return CallGrid{w->height, w->width};
  if (const auto* w = std::get_if<Levit>(&s)) return CallGrid{w->height, w->width};
  return std::nullopt;
}
std::optional<CallGrid> grid_of(const ScoreEncodings& e) {
  if (e.layer != nullptr)
    for (const LayerEncoding& x : e.layer->encodings)
      if (auto g = grid_of(x.value.scheme)) {
        g->step = e.layer->query_step;
        return g;
      }
  for (const std::string& text : e.texts)
    if (const auto g = grid_of(parse_encoding(text).scheme)) return g;
  return std::nullopt;
}
std::optional<CallGrid> grid_of_layer(const Subject& s, const SubjectOptions& o) {
  if (!s.is_model() || s.model->has_error() || layers_of(*s.model, o).empty()) return std::nullopt;
  ScoreEncodings e;
  e.layer = &chosen_layer(*s.model, o);
  return grid_of(e);
}

// Every cell of the grid is occupied; a part of another grid has other offsets in its tables.
void check_covers(const CallGrid& own, const Positions& p, const char* option) {
  if (p.axes != 2 || p.count == 0) return;
  for (const auto& [axis, size] : {std::pair{0, own.rows}, std::pair{1, own.columns}}) {
    double low = position_at(p, axis, 0, 0), high = low;
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 0; t < p.count; ++t) {
        low = std::min(low, position_at(p, axis, b, t));
        high = std::max(high, position_at(p, axis, b, t));
      }
    if (low != 0 || high != static_cast<double>(size - 1))
      throw InputError(fmt::format(
          "{} has {} {} to {}, and the tables of this layer are those of a grid of {}: --grid HxW "
          "must say on which grid the tokens are",
          option, axis == 0 ? "rows" : "columns", short_number(low), short_number(high),
          own.text()));
  }
}

// Every so many-th row and column.
void spread(OwnedPositions& p, Index step) {
  std::visit(
      [&](auto& all) {
        for (auto& at : all) at *= static_cast<std::remove_reference_t<decltype(at)>>(step);
      },
      p.value);
}

void check_within(const CallGrid& g, const Positions& p, const char* option) {
  for (const auto& [axis, size] : {std::pair{0, g.rows}, std::pair{1, g.columns}})
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 0; t < p.count; ++t)
        if (const double at = position_at(p, axis, b, t);
            at < 0 || at > static_cast<double>(size - 1))
          throw InputError(fmt::format("{} has {} {}, beyond --grid {}", option,
                                       axis == 0 ? "row" : "column", short_number(at), g.text()));
}

}  // namespace

Subject read_subject_on_grid(const SubjectOptions& o, const std::string& grid) {
  Subject s = read_subject(o);
  if (grid.empty()) return s;
  const CallGrid wanted = grid_of_text(grid);
  auto own = grid_of_layer(s, o);
  if (!own || !own->resized || *own == wanted) return s;
  if (o.text == "-")
    throw UsageError(
        fmt::format("a model on stdin is read once: --assume grid={} says its grid", grid));
  SubjectOptions on_grid = o;
  on_grid.assume.push_back("grid=" + wanted.text());
  const std::string window = own->text();
  s = read_subject(on_grid);
  own = grid_of_layer(s, o);
  // A grid that nothing read has left an error, which says less.
  if (!own || !(*own == wanted))
    throw InputError(
        fmt::format("{}: the chosen layer attends within windows of {} patches, whatever the "
                    "image: --grid of its call is that of one window, got {}",
                    s.title, window, grid));
  return s;
}

void place_on_grid(AttendCall& c, const AttendOptions& o, const ScoreEncodings& e) {
  const auto own = grid_of(e);
  if (o.grid.empty() && !own) return;
  const Index keys = paged_keys(c.args);
  const bool same = c.args.q.tokens == keys;
  const bool keys_given = !o.key_positions.empty() || (!o.positions.empty() && same);
  if (o.grid.empty() && !o.positions.empty()) {
    if (e.layer == nullptr || !own->resized) return;
    check_covers(*own, c.query_positions, "--positions");
    return check_covers(*own, c.key_positions, "--key-positions");
  }
  CallGrid grid = o.grid.empty() ? *own : grid_of_text(o.grid);
  if (own) grid.step = own->step;
  if (own && own->resized && !(*own == grid))
    throw UsageError(fmt::format(
        "--grid {} is not the grid of the scheme, {}: size=[{},{}] table_rows=[{},{}] resizes its "
        "tables",
        grid.text(), own->text(), grid.rows, grid.columns, 2 * own->rows - 1,
        2 * own->columns - 1));
  const auto place = [&](PositionList& list, const CallGrid& cells, Index tokens, bool given,
                         const char* option) {
    if (given && list.owned.axes == 2) return check_within(grid, list, option);
    if (!given && tokens != cells.cells())
      throw InputError(
          fmt::format("a grid of {} has {} cells, and there are {} {}: --grid HxW must say which "
                      "grid they are on, or {} their rows and columns (an .npy of [2, batch, "
                      "tokens])",
                      cells.text(), cells.cells(), tokens,
                      &list == &c.query_positions ? "queries" : "keys", option));
    if (given) list = cells_of(grid.text(), list);
    if (!given) list = cells_of(cells.text(), {arange(0, tokens), {tokens}});
  };
  place(c.query_positions, grid.of_queries(), c.args.q.tokens, !o.positions.empty(), "--positions");
  if (grid.step > 1 && o.positions.empty()) spread(c.query_positions.owned, grid.step);
  place(c.key_positions, grid, keys, keys_given, "--key-positions");
}

}  // namespace posenc::report
