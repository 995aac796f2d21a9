// SPDX-License-Identifier: Apache-2.0
#include "input_lookup.h"

#include <memory>
#include <mutex>
#include <unordered_map>

#include "arrays.h"
#include "bindings.h"
#include "input_scheme.h"

namespace posenc::python {
namespace {

// One table: y += gain * parameter[position on the axis + offset].
struct LookedUp {
  std::size_t parameter;
  std::int32_t axis;
  Index offset;
  double gain;
  std::optional<Index> frozen;
};
struct Lookup {
  double input_gain = 1;
  std::vector<LookedUp> tables;
};

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

// An encoding as it is used: what it learns, and how its rows come from that. Whether they are the
// parameters as they are is found by lowering numbers of no meaning.
class Kept {
 public:
  explicit Kept(const std::string& text)
      : encoding_(parse_encoding(text)), parameters_(parameters_of(encoding_)) {}

  // Before anything as large as the parameters is made: the caller's are as large.
  bool fits(std::span<const ConstTensorView> given) const {
    if (given.size() != parameters_.size()) return false;
    for (std::size_t i = 0; i < given.size(); ++i) {
      const std::vector<Index>& wanted = parameters_[i].shape;
      if (static_cast<std::size_t>(given[i].rank) != wanted.size()) return false;
      for (std::size_t axis = 0; axis < wanted.size(); ++axis)
        if (given[i].shape[axis] != wanted[axis]) return false;
    }
    return true;
  }
  const std::optional<Lookup>& lookup() {
    std::call_once(tried_, [this] { lookup_ = find(); });
    return lookup_;
  }
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  std::optional<Lookup> find() const {
    if (!encoding_.scalings.empty()) return std::nullopt;  // they act on frequencies
    std::vector<std::vector<double>> values;
    std::vector<ConstTensorView> views;
    for (const Parameter& p : parameters_) {
      values.push_back(probe(p, values.size()));
      views.push_back(tensor(std::as_const(values.back()).data(), DType::f64, p.shape));
    }
    LoweredInput lowered;
    with_absolute(encoding_, [&](const auto& s) { s.lower(views, lowered); });
    Lookup found{lowered.input_gain, {}};
    for (const InputTerm& t : lowered.terms) {
      if (!looked_up(t)) return std::nullopt;
      std::size_t i = 0;
      while (i < parameters_.size() && !same_numbers(t.table, values[i], parameters_[i])) ++i;
      if (i == parameters_.size()) return std::nullopt;
      found.tables.push_back({i, t.axis, t.offset, t.gain, t.frozen_row});
    }
    if (found.tables.empty()) return std::nullopt;
    return found;
  }

  Encoding encoding_;
  std::vector<Parameter> parameters_;
  std::once_flag tried_;
  std::optional<Lookup> lookup_;
};

std::shared_ptr<Kept> kept(const std::string& text) {
  static std::mutex mutex;
  static auto* const all = new std::unordered_map<std::string, std::shared_ptr<Kept>>;
  const std::lock_guard lock(mutex);
  if (const auto found = all->find(text); found != all->end()) return found->second;
  auto made = std::make_shared<Kept>(text);
  if (all->size() >= 256) all->clear();
  return all->emplace(text, std::move(made)).first->second;
}

// Positions [axes, b, t] of one axis.
ConstTensorView stream_of(const ConstTensorView& positions, Index axis) {
  if (positions.rank < 3) return positions;
  ConstTensorView ids = positions;
  ids.rank = 2;
  ids.data = static_cast<const std::byte*>(positions.data) +
             axis * positions.stride[0] * size_of(positions.dtype);
  for (const std::size_t i : {0u, 1u})
    ids.shape[i] = positions.shape[i + 1], ids.stride[i] = positions.stride[i + 1];
  return ids;
}

// The tensors of one call from Python.
struct Call {
  Borrowed x, positions;
  NamedBorrowed named;
  std::shared_ptr<Kept> scheme;
  std::optional<TableParts> parts;

  Call(const std::string& encoding, nb::handle x_given, nb::handle positions_given,
       nb::handle parameters)
      : x(x_given, {kInput, "x"}, Use::read),
        positions(positions_given, {kInput, "positions"}, Use::read),
        named(parameters, kInput),
        scheme(kept(encoding)) {
    std::vector<ConstTensorView> views;
    for (const Parameter& p : scheme->parameters())
      if (const Borrowed* b = named.find(p.name)) views.push_back(b->const_view());
    if (views.size() == named.arrays.size())
      parts = table_parts(encoding, x.const_view(), positions.const_view(), views);
  }
};

bool compose(const std::string& encoding, nb::handle x, nb::handle positions, nb::handle parameters,
             nb::handle out) {
  const Call call(encoding, x, positions, parameters);
  const Borrowed y(out, {kInput, "out"}, Use::write);
  const nb::gil_scoped_release free;
  return call.parts && add_tables(*call.parts, y.view());
}

bool compose_gradients(const std::string& encoding, nb::handle d_out, nb::handle x,
                       nb::handle positions, nb::handle parameters, nb::handle d_x,
                       const nb::dict& d_parameters) {
  const Call call(encoding, x, positions, parameters);
  const Borrowed d(d_out, {kInput, "d_out"}, Use::read), dx(d_x, {kInput, "d_x"}, Use::write);
  std::vector<Borrowed> kept_alive;
  std::vector<TensorView> views;
  for (const Parameter& p : call.scheme->parameters()) {
    const nb::str name(p.name.c_str());
    if (!d_parameters.contains(name)) return false;
    kept_alive.emplace_back(d_parameters[name], Name{kInput, p.name.c_str()}, Use::write);
    views.push_back(kept_alive.back().view());
  }
  const nb::gil_scoped_release free;
  return call.parts && add_table_gradients(*call.parts, d.const_view(), dx.view(), views);
}

}  // namespace

std::optional<TableParts> table_parts(const std::string& encoding, const ConstTensorView& x,
                                      const ConstTensorView& positions,
                                      std::span<const ConstTensorView> parameters) {
  if (parameters.empty() || x.rank < 2 || positions.rank < 1 || is_float(positions.dtype))
    return std::nullopt;
  const std::shared_ptr<Kept> scheme = kept(encoding);
  if (!scheme->fits(parameters) || !scheme->lookup()) return std::nullopt;
  const Lookup& found = *scheme->lookup();
  TableParts made{std::vector<EmbedPart>(1), {}};
  made.parts[0].rows = x, made.parts[0].scale = found.input_gain;
  const Index axes = positions.rank == 3 ? positions.shape[0] : 1;
  for (const LookedUp& t : found.tables) {
    EmbedPart part;
    part.table = parameters[t.parameter];
    if (t.axis >= axes || part.table.dtype != x.dtype ||
        part.table.shape[1] != x.shape[static_cast<std::size_t>(x.rank - 1)])
      return std::nullopt;
    part.ids = stream_of(positions, t.axis);
    part.scale = t.gain, part.offset = t.offset, part.frozen = t.frozen;
    made.parts.push_back(part);
    made.parameter.push_back(t.parameter);
  }
  return made;
}

bool add_tables(const TableParts& made, const TensorView& y) {
  try {
    embed(made.parts, std::nullopt, y);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

bool add_table_gradients(const TableParts& made, const ConstTensorView& d_y, const TensorView& d_x,
                         std::span<const TensorView> d_parameters) {
  std::vector<TensorView> to{d_x};
  for (const std::size_t i : made.parameter) to.push_back(d_parameters[i]);
  try {
    embed_gradient(made.parts, std::nullopt, d_y, {to, {}, {}});
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

void add_input_lookup(nb::module_& m) {
  m.def("compose_tables", &compose, nb::arg("encoding"), nb::arg("x").none(),
        nb::arg("positions").none(), nb::arg("parameters").none(), nb::arg("out").none(),
        nb::sig("def compose_tables(encoding: str, x: Any, positions: Any, parameters: dict[str, "
                "Any], out: Any) -> bool"));
  m.def("compose_tables_gradient", &compose_gradients, nb::arg("encoding"), nb::arg("d_out").none(),
        nb::arg("x").none(), nb::arg("positions").none(), nb::arg("parameters").none(),
        nb::arg("d_x").none(), nb::arg("d_parameters"),
        nb::sig("def compose_tables_gradient(encoding: str, d_out: Any, x: Any, positions: Any, "
                "parameters: dict[str, Any], d_x: Any, d_parameters: dict[str, Any]) -> bool"));
}

}  // namespace posenc::python
