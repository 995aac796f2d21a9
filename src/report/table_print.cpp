// SPDX-License-Identifier: Apache-2.0
#include "table_print.h"

#include <fmt/format.h>

#include "posenc/core/error.h"

namespace posenc::report {
namespace {

constexpr Index kMostNumbers = 65536;
constexpr int kCell = 12;

std::string column_name(const std::string& name, Index column, Index columns, Columns order) {
  if (name != "cos_sin") return fmt::format("{}_{}", name, column);
  if (order == Columns::pairs) return fmt::format("{}_{}", column % 2 ? "sin" : "cos", column / 2);
  const Index half = columns / 2;
  return fmt::format("{}_{}", column < half ? "cos" : "sin", column % half);
}

// The positions that the rows have, "0", "1" ..; of several axes a row's number.
std::vector<std::string> names_of_positions(const std::string& positions) {
  const PositionList list = read_positions(positions);
  const Positions p = list;
  std::vector<std::string> names;
  for (Index b = 0; b < p.batch; ++b)
    for (Index t = 0; t < p.count; ++t)
      names.push_back(p.axes > 1 ? std::to_string(b * p.count + t)
                                 : number_text(position_at(p, 0, b, t)));
  return names;
}

}  // namespace

std::string numbers_json(const std::string& name, const Array& a) {
  Json numbers = Json::array(), shape = Json::array();
  for (const double x : a.doubles()) numbers.push(Json(x));
  for (const Index n : a.shape) shape.push(Json(n));
  return Json::object({{"schema", "posenc.table/1"},
                       {name, std::move(numbers)},
                       {"shape", std::move(shape)}})
             .dump() +
         "\n";
}

std::string printed_table(const Arrays& arrays, const std::string& positions, Columns order,
                          bool json) {
  const auto& [name, a] = *arrays.begin();
  if (arrays.size() != 1 || a.shape.size() != 2 || a.dtype == DType::u8 ||
      a.shape[0] * a.shape[1] > kMostNumbers)
    throw UsageError(fmt::format(
        "-o F.npy, F.safetensors, F.csv or - is needed: printed are at most {} numbers in rows and "
        "columns",
        kMostNumbers));
  if (json) return numbers_json(name, a);
  const bool bias = name == "bias";
  const std::vector<std::string> places = names_of_positions(positions);
  const Index rows = a.shape[0], columns = a.shape[1];
  std::string text = fmt::format("{:>{}}", bias ? "head" : "position", kCell);
  for (Index c = 0; c < columns; ++c)
    text += fmt::format(
        "  {:>{}}",
        bias ? places[static_cast<std::size_t>(c)] : column_name(name, c, columns, order), kCell);
  text += '\n';
  const std::vector<double> v = a.doubles();
  for (Index r = 0; r < rows; ++r) {
    text += fmt::format("{:>{}}", bias ? std::to_string(r) : places[static_cast<std::size_t>(r)],
                        kCell);
    for (Index c = 0; c < columns; ++c)
      text += fmt::format("  {:>{}.7g}", v[static_cast<std::size_t>(r * columns + c)], kCell);
    text += '\n';
  }
  return text;
}

}  // namespace posenc::report
