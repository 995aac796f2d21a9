// SPDX-License-Identifier: Apache-2.0
#include "input_lookup.h"

#include "arrays.h"
#include "bindings.h"
#include "input_scheme.h"

namespace posenc::python {
namespace {

// Numbers that no rule leaves unchanged by chance.
std::vector<double> probe(const Parameter& p, std::size_t which) {
  Index n = 1;
  for (const Index size : p.shape) n *= size;
  std::vector<double> v(static_cast<std::size_t>(n));
  std::uint64_t state = 0x9e3779b97f4a7c15u * (which + 1);
  for (double& x : v) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x = 1 + static_cast<double>(state >> 12) * 0x1p-52;
  }
  return v;
}

bool looked_up(const InputTerm& t) {
  return !t.table.empty() && t.phase == nullptr && t.layers.empty() && t.minus < 0 &&
         t.divide == 1 && t.wrap == 0 && t.beyond == Beyond::error && !t.zero_position &&
         t.first == 0 && t.compose == Compose::add;
}

bool same_numbers(const ConstTensorView& table, const std::vector<double>& v, const Parameter& p) {
  if (p.shape.size() != 2 || table.shape[0] != p.shape[0] || table.shape[1] != p.shape[1])
    return false;
  for (Index r = 0; r < table.shape[0]; ++r)
    for (Index c = 0; c < table.shape[1]; ++c)
      if (static_cast<const double*>(table.data)[r * table.stride[0] + c * table.stride[1]] !=
          v[static_cast<std::size_t>(r * table.shape[1] + c)])
        return false;
  return true;
}

// None, or (input_gain, [(parameter, its shape, axis, offset, gain, frozen row or None)]).
nb::object lookup(nb::handle encoding, nb::handle context) {
  const Encoding e = encoding_of(encoding, kInput);
  context_of(context, kInput);  // refuses what is none
  const std::optional<Lookup> found = lookup_of(e);
  if (!found) return nb::none();
  const std::vector<Parameter> parameters = parameters_of(e);
  nb::list terms;
  for (const LookedUp& t : found->tables) {
    const nb::object frozen = t.frozen ? nb::object(nb::int_(*t.frozen)) : nb::none();
    const nb::object shape = nb::make_tuple(t.rows, t.width);
    terms.append(
        nb::make_tuple(parameters[t.parameter].name, shape, t.axis, t.offset, t.gain, frozen));
  }
  return nb::make_tuple(found->input_gain, terms);
}

}  // namespace

std::optional<Lookup> lookup_of(const Encoding& e) {
  if (!e.scalings.empty()) return std::nullopt;  // they act on frequencies
  const std::vector<Parameter> parameters = parameters_of(e);
  std::vector<std::vector<double>> values;
  std::vector<ConstTensorView> views;
  for (std::size_t i = 0; i < parameters.size(); ++i) values.push_back(probe(parameters[i], i));
  for (std::size_t i = 0; i < parameters.size(); ++i)
    views.push_back(tensor(std::as_const(values[i]).data(), DType::f64, parameters[i].shape));
  LoweredInput lowered;
  with_absolute(e, [&](const auto& s) { s.lower(views, lowered); });
  if (lowered.terms.empty()) return std::nullopt;
  Lookup found{lowered.input_gain, {}};
  for (const InputTerm& t : lowered.terms) {
    if (!looked_up(t)) return std::nullopt;
    std::size_t i = 0;
    while (i < parameters.size() && !same_numbers(t.table, values[i], parameters[i])) ++i;
    if (i == parameters.size()) return std::nullopt;
    found.tables.push_back(
        {i, t.table.shape[0], t.table.shape[1], t.axis, t.offset, t.gain, t.frozen_row});
  }
  return found;
}

std::optional<std::vector<EmbedPart>> parts_of(const Lookup& found, const ConstTensorView& x,
                                               const ConstTensorView& positions,
                                               std::span<const ConstTensorView> parameters) {
  if (x.rank < 2 || positions.rank < 1 || is_float(positions.dtype)) return std::nullopt;
  std::vector<EmbedPart> parts(1);
  parts[0].rows = x, parts[0].scale = found.input_gain;
  for (const LookedUp& t : found.tables) {
    if (t.parameter >= parameters.size()) return std::nullopt;
    EmbedPart part;
    part.table = parameters[t.parameter], part.ids = positions, part.scale = t.gain;
    part.offset = t.offset, part.frozen = t.frozen;
    if (part.table.dtype != x.dtype || part.table.rank != 2 || part.table.shape[0] != t.rows ||
        part.table.shape[1] != t.width || t.width != x.shape[static_cast<std::size_t>(x.rank - 1)])
      return std::nullopt;
    const Index axes = positions.rank == 3 ? positions.shape[0] : 1;
    if (t.axis >= axes) return std::nullopt;
    if (positions.rank == 3) {  // [axes, b, t]
      part.ids.rank = 2;
      part.ids.data = static_cast<const std::byte*>(positions.data) +
                      t.axis * positions.stride[0] * size_of(positions.dtype);
      for (const std::size_t i : {0u, 1u})
        part.ids.shape[i] = positions.shape[i + 1], part.ids.stride[i] = positions.stride[i + 1];
    }
    parts.push_back(part);
  }
  return parts;
}

void add_input_lookup(nb::module_& m) {
  m.def("input_lookup", &lookup, nb::arg("encoding").none(), nb::arg("context").none(),
        nb::sig("def input_lookup(encoding: EncodingLike, context: int | None) -> tuple[float, "
                "list[tuple[str, tuple[int, int], int, int, float, int | None]]] | None"));
}

}  // namespace posenc::python
