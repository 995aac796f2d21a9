// SPDX-License-Identifier: Apache-2.0
// posenc table --what rows: what a scheme at the input, or a model's own, adds, multiplies or
// appends.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <variant>

#include "extend_rows.h"
#include "notes.h"
#include "posenc/absolute/initial.h"
#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"
#include "posenc/model/cells.h"
#include "posenc/model/weights.h"
#include "posenc/registry.h"
#include "table_input.h"

namespace posenc::report {
namespace {

// Channels that the terms reach, and those that they append.
Index width_of(const LoweredInput& lowered) {
  Index reached = 0, appended = 0;
  for (const InputTerm& t : lowered.terms)
    if (t.compose == Compose::concat)
      appended += t.width;
    else
      reached = std::max(reached, t.first + t.width);
  return reached + appended;
}

template <class S>
Array rows_of(const S& scheme, std::span<const ConstTensorView> parameters,
              const PositionList& list, DType dtype, const Encoding* whole = nullptr,
              Context context = {}) {
  LoweredInput lowered;
  scheme.lower(parameters, lowered);
  if (whole != nullptr) rescale(lowered, *whole, context);
  for (InputTerm& t : lowered.terms)
    // Alone, a row is what it is: a product with nothing would be zero.
    if (t.compose != Compose::concat) t.compose = Compose::add;
  const Positions p = spread_over_axes(list, position_axes(lowered));
  Array out = make_array(dtype, {p.batch * p.count, width_of(lowered)});
  const Index shape[] = {p.batch, p.count, width_of(lowered)};
  apply_input({}, p, lowered, tensor(static_cast<void*>(out.bytes.data()), dtype, shape));
  return out;
}

// What the scheme learns, by name from the file of --arrays, widened.
Arrays learned_arrays(std::string_view scheme, const std::vector<Parameter>& needed,
                      const std::string& file) {
  Arrays out;
  if (needed.empty()) return out;
  std::string names;
  for (const Parameter& p : needed) names += (names.empty() ? "" : ", ") + p.name;
  if (file.empty())
    throw InputError(fmt::format(
        "{} learns its {}: the rows are in a model's weights, not in the scheme; give the model "
        "whose weights lie beside its config, --arrays F.safetensors with arrays of those names, "
        "or "
        "--start SEED for rows as they are before training",
        scheme, names));
  const Arrays held = read_safetensors(file);
  for (const Parameter& p : needed) {
    const auto found = held.find(p.name);
    if (found == held.end())
      throw InputError(fmt::format("{}: {} needs arrays named {}; there is no \"{}\"", file, scheme,
                                   names, p.name));
    if (found->second.shape != p.shape)
      throw InputError(fmt::format("{}: {} must have shape [{}], got [{}]", file, p.name,
                                   fmt::join(p.shape, ", "), fmt::join(found->second.shape, ", ")));
    Array wide = make_array(DType::f64, p.shape);
    const std::vector<double> v = found->second.doubles();
    if (!v.empty()) std::memcpy(wide.bytes.data(), v.data(), wide.bytes.size());
    out.emplace(p.name, std::move(wide));
  }
  return out;
}

// The same as its initialisers draw it: parameter k from sequence k of the seed.
template <class S>
Arrays started_arrays(const S& scheme, Index seed) {
  Arrays out;
  const std::vector<Parameter> needed = scheme.parameters();
  for (std::size_t k = 0; k < needed.size(); ++k) {
    const Draws draws(static_cast<std::uint64_t>(seed), 0, k);
    std::vector<double> v = initial_values(needed[k], draws);
    if constexpr (requires { scheme.start(draws); }) v = scheme.start(draws);  // frozen rows too
    Array a = make_array(DType::f64, needed[k].shape);
    if (!v.empty()) std::memcpy(a.bytes.data(), v.data(), a.bytes.size());
    out.emplace(needed[k].name, std::move(a));
  }
  return out;
}

PositionList cells_of(const std::string& text, ImageGrid grid, const PositionList& list) {
  const std::vector<Index> given = sizes("--grid", text);
  if (given.size() != 2) throw UsageError("--grid must be HxW, got \"" + text + "\"");
  if (list.owned.axes != 1)
    throw UsageError(
        fmt::format("--grid goes with one list of cells, these positions have {} axes: they are "
                    "coordinates already",
                    list.owned.axes));
  grid.rows = given[0], grid.columns = given[1];
  PositionList out = list;
  out.owned = cells(grid, 0, list.owned);
  return out;
}

// Coordinates that a person gives for a table of the model's own are cells of it.
void require_cells(const ModelSpec& m, const ImageGrid& grid, const Positions& p) {
  for (Index b = 0; b < p.batch; ++b)
    for (Index t = 0; t < p.count; ++t)
      for (const auto& [axis, size] : {std::pair{0, grid.rows}, std::pair{1, grid.columns}}) {
        const double at = position_at(p, axis, b, t);
        if (at < 0 || at >= static_cast<double>(size) || at != std::floor(at))
          throw InputError(fmt::format("{}: its table has {} x {} cells, there is no {} {}", m.file,
                                       grid.rows, grid.columns, axis == 0 ? "row" : "column",
                                       number_text(at)));
      }
}

// Positions for a scheme with an axis for rows and one for columns.
PositionList on_grid(const ModelSpec& m, const InputEncoding& e, const PositionList& list,
                     const std::string& given) {
  const bool own = e.grid && e.grid->of_model();
  if (!given.empty() && !e.grid)
    throw UsageError(fmt::format("--grid is for the cells of images: {} has no rows and columns",
                                 to_text(e.value)));
  if (!given.empty() && own)
    throw UsageError(
        fmt::format("--grid is for models whose grid is that of each image: the table of {} has "
                    "{} x {} cells (posenc extend makes one of another size)",
                    m.file, e.grid->rows, e.grid->columns));
  if (!e.grid) return list;
  if (!given.empty()) return cells_of(given, *e.grid, list);
  if (own && list.owned.axes == 2) require_cells(m, *e.grid, list.owned);
  if (list.owned.axes != 1) return list;
  if (!own)
    throw InputError(
        fmt::format("{}: the grid is that of each image, so a list of positions means no cells: "
                    "give --grid HxW, whose cells it then counts row by row, or "
                    "coordinates of both axes (an .npy of [2, batch, tokens])",
                    m.file));
  PositionList out = list;
  try {
    out.owned = cells(*e.grid, e.image_prefix.value_or(0), list.owned);
  } catch (const std::invalid_argument& problem) {
    throw InputError(
        fmt::format("{}: {}; posenc doctor --context N names the ways to reach farther", m.file,
                    problem.what()));
  }
  return out;
}

// Rows of sines are the class's own; weights that hold others are said.
void say_what_is_stored(const ModelSpec& m, const InputEncoding& e) {
  const bool sines = std::holds_alternative<Sinusoidal>(e.value.scheme) ||
                     std::holds_alternative<SinusoidalNd>(e.value.scheme);
  if (!sines || e.tensors.empty()) return;
  for (const Finding& f : check_tables(m))
    if (f.where.ends_with(e.tensors.front()))
      note(fmt::format("{} {}: {}; what is written are the rows that the class makes\n",
                       enum_text(f.severity), f.code, f.message));
}

std::string list_of(const std::vector<InputEncoding>& all) {
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", i, to_text(all[i].value));
  return text;
}

}  // namespace

Index position_axes(const LoweredInput& lowered) {
  Index axes = 1;
  for (const InputTerm& t : lowered.terms) {
    axes = std::max<Index>(axes, t.axis + 1);
    axes = std::max<Index>(axes, t.minus + 1);
    if (t.phase != nullptr) axes = std::max(axes, t.phase->axes);
    if (!t.affine.empty()) axes = std::max(axes, t.affine.shape[0] - 1);
  }
  return axes;
}

bool is_input_scheme(const Encoding& e) {
  return std::visit([](const auto& s) { return AbsoluteScheme<std::decay_t<decltype(s)>>; },
                    e.scheme);
}

namespace {

// use(scheme, its parameters): what it learns from a file or as it starts.
template <class F>
auto with_parameters(const Encoding& e, const SubjectOptions& o, const F& use) {
  // By name: clang 14 does not come to an end with decltype of a call of `use` in the lambda's type.
  using Result = std::invoke_result_t<const F&, const Sinusoidal&, std::vector<ConstTensorView>&>;
  return std::visit(
      [&](const auto& s) -> Result {
        using S = std::decay_t<decltype(s)>;
        if constexpr (AbsoluteScheme<S>) {
          const Arrays held = o.start ? started_arrays(s, *o.start)
                                      : learned_arrays(S::card.name, s.parameters(), o.arrays);
          std::vector<ConstTensorView> parameters;
          for (const Parameter& p : s.parameters()) parameters.push_back(held.at(p.name).view());
          return use(s, parameters);
        } else {
          throw UsageError("--what rows is for schemes at the input");
        }
      },
      e.scheme);
}

}  // namespace

Array input_rows(const Encoding& e, const PositionList& list, DType dtype,
                 const SubjectOptions& o) {
  return with_parameters(e, o, [&](const auto& s, std::span<const ConstTensorView> parameters) {
    return rows_of(s, parameters, list, dtype, &e, {o.context.value_or(0)});
  });
}

TablePositions table_positions(const Encoding& e, const SubjectOptions& o) {
  return with_parameters(e, o, [](const auto& s, std::span<const ConstTensorView> parameters) {
    LoweredInput lowered;
    s.lower(parameters, lowered);
    return TablePositions{positions_with_rows(lowered), position_axes(lowered)};
  });
}

const std::vector<InputEncoding>& inputs_of(const ModelSpec& m, const SubjectOptions& o) {
  if (o.tower.empty()) return m.input;
  (void)chosen_layer(m, o);  // refuses a tower that is not there
  for (const Tower& t : m.towers)
    if (t.name == o.tower) return t.input;
  return m.input;
}

const InputEncoding& chosen_input(const ModelSpec& m, const SubjectOptions& o) {
  require_readable(m);
  const std::vector<InputEncoding>& all = inputs_of(m, o);
  if (o.layer)
    throw UsageError("--layer goes with what rotates q and k; what acts at the input has no layer");
  if (all.empty()) {
    std::string elsewhere;
    for (const Tower& t : m.towers)
      if (!t.input.empty()) elsewhere += " (--tower " + t.name + " has some)";
    throw InputError(m.file + ": nothing is known to act at its input: there are no rows" +
                     (o.tower.empty() ? elsewhere : ""));
  }
  if (!o.input && all.size() > 1)
    throw InputError(fmt::format("{}: {} encodings act at its input: --input K must say which: {}",
                                 m.file, all.size(), list_of(all)));
  const Index which = o.input.value_or(0);
  if (which < 0 || which >= static_cast<Index>(all.size()))
    throw InputError(
        fmt::format("{}: --input must be 0 to {}, got {}", m.file, all.size() - 1, which));
  return all[static_cast<std::size_t>(which)];
}

PositionList cells_of(const std::string& grid, const PositionList& list) {
  return cells_of(grid, {}, list);
}

Array model_rows(const ModelSpec& m, const InputEncoding& e, const PositionList& list, DType dtype,
                 const std::string& grid) {
  const PositionList at = on_grid(m, e, list, grid);
  say_what_is_stored(m, e);
  ModelWeights weights(m.weights);
  std::vector<TableValues> tables;
  try {
    tables = read_tables(weights, e);
  } catch (const FormatError&) {
    throw;
  } catch (const std::runtime_error& problem) {
    throw InputError(
        fmt::format("{}: {} is learned: {}", m.file, to_text(e.value), problem.what()));
  }
  std::vector<ConstTensorView> parameters;
  for (TableValues& t : tables) parameters.push_back(tensor(t.values.data(), {t.rows, t.width}));
  return std::visit(
      [&](const auto& s) -> Array {
        if constexpr (AbsoluteScheme<std::decay_t<decltype(s)>>) {
          try {
            return rows_of(s, parameters, at, dtype);
          } catch (const std::invalid_argument& problem) {
            throw InputError(
                fmt::format("{}: {}; posenc doctor --context N names the ways to reach farther",
                            m.file, problem.what()));
          }
        } else {
          throw InputError("this encoding does not act at the input");
        }
      },
      e.value.scheme);
}

}  // namespace posenc::report
