// SPDX-License-Identifier: Apache-2.0
// Encodings at the input whose rows are rows of their parameters, as they are: tables added at
// positions. They need no plan: `embed` reads the tables where they lie.

#include <algorithm>
#include <bit>

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
  if (!e.scalings.empty()) return nb::none();  // they act on frequencies
  context_of(context, kInput);                 // refuses what is none
  const std::vector<Parameter> parameters = parameters_of(e);
  std::vector<std::vector<double>> values;
  std::vector<ConstTensorView> views;
  for (std::size_t i = 0; i < parameters.size(); ++i) values.push_back(probe(parameters[i], i));
  for (std::size_t i = 0; i < parameters.size(); ++i)
    views.push_back(tensor(std::as_const(values[i]).data(), DType::f64, parameters[i].shape));
  LoweredInput lowered;
  with_absolute(e, [&](const auto& s) { s.lower(views, lowered); });
  if (lowered.terms.empty()) return nb::none();
  nb::list terms;
  for (const InputTerm& t : lowered.terms) {
    if (!looked_up(t)) return nb::none();
    std::size_t i = 0;
    while (i < parameters.size() && !same_numbers(t.table, values[i], parameters[i])) ++i;
    if (i == parameters.size()) return nb::none();
    const nb::object frozen = t.frozen_row ? nb::object(nb::int_(*t.frozen_row)) : nb::none();
    const nb::object shape = nb::make_tuple(t.table.shape[0], t.table.shape[1]);
    terms.append(nb::make_tuple(parameters[i].name, shape, t.axis, t.offset, t.gain, frozen));
  }
  return nb::make_tuple(lowered.input_gain, terms);
}

}  // namespace

void add_input_lookup(nb::module_& m) {
  m.def("input_lookup", &lookup, nb::arg("encoding").none(), nb::arg("context").none(),
        nb::sig("def input_lookup(encoding: EncodingLike, context: int | None) -> tuple[float, "
                "list[tuple[str, tuple[int, int], int, int, float, int | None]]] | None"));
}

}  // namespace posenc::python
