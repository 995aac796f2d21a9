// SPDX-License-Identifier: Apache-2.0
// What acts at the input: rows composed with token embeddings, and tables looked up by ids.

#include <algorithm>
#include <deque>

#include "arrays.h"
#include "bindings.h"
#include "input_cache.h"
#include "input_scheme.h"
#include "posenc/absolute/embed.h"
#include "posenc/absolute/initial.h"
#include "posenc/absolute/plan.h"
#include "posenc/core/error.h"

namespace posenc::python {
namespace {

// Where a table has rows that are not trained, the scheme itself knows how it starts.
std::vector<double> start_of(const Encoding& e, const Parameter& p, Index seed, std::size_t i) {
  const Draws draws(static_cast<std::uint64_t>(seed), 0, i);
  return with_absolute(e, [&](const auto& s) {
    if constexpr (requires { s.start(draws); })
      return s.start(draws);
    else
      return initial_values(p, draws);
  });
}

// Lowered rows as Python holds them.
struct PreparedInput {
  std::shared_ptr<const LoweredRows> rows;
};

std::vector<std::vector<double>> given_values(const Encoding& encoding, nb::handle given,
                                              std::optional<Index> seed) {
  const std::vector<Parameter> parameters = parameters_of(encoding);
  const NamedBorrowed named(given, kInput);
  std::string known;
  for (const Parameter& p : parameters) known += (known.empty() ? "" : ", ") + p.name;
  for (const auto& given_array : named.arrays) {
    const std::string& name = given_array.first;
    if (std::none_of(parameters.begin(), parameters.end(),
                     [&](const Parameter& p) { return p.name == name; }))
      refuse_field(
          kInput, "parameters",
          "must be those that the encoding learns (" + (known.empty() ? "none" : known) + ")",
          name);
  }
  std::vector<std::vector<double>> values;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    if (const Borrowed* b = named.find(p.name))
      values.push_back(parameter_values(kInput, p, b->const_view()));
    else if (seed)
      values.push_back(start_of(encoding, p, *seed, i));
    else
      refuse_field(
          kInput, "parameters",
          "must hold " + p.name + ", which the encoding learns; seed= draws it as before training");
  }
  return values;
}

void make_input(PreparedInput* self, nb::handle encoding, nb::handle dtype, nb::handle given,
                std::optional<Index> seed, nb::handle context) {
  const Encoding e = encoding_of(encoding, kInput);
  std::vector<std::vector<double>> values = given_values(e, given, seed);
  const Context c = context_of(context, kInput);
  new (self) PreparedInput{lowered_rows(e, c, dtype_of(dtype, kInput), std::move(values))};
}

nb::object apply(const PreparedInput& prepared, nb::handle x, nb::handle positions,
                 nb::handle out) {
  const LoweredRows& self = *prepared.rows;
  const Borrowed in = optional_array(x, {kInput, "x"}, Use::read);
  const PositionsArgument p(positions, {kInput, "positions"});
  nb::object result;
  if (!out.is_none()) {
    result = nb::borrow(out);
  } else if (in.given()) {
    const TensorView& v = in.view();
    std::vector<Index> shape(v.shape.begin(), v.shape.begin() + v.rank);
    if (!shape.empty()) shape.back() += self.plan.appended();
    result = new_array(v.dtype, shape);
  } else {
    Index width = 0;
    for (const InputTerm& t : self.lowered.terms) width = std::max(width, t.first + t.width);
    std::vector<Index> shape{p.value().count, std::max(width, self.plan.appended())};
    if (p.value().batch > 1) shape.insert(shape.begin(), p.value().batch);
    result = new_array(self.plan.dtype(), shape);
  }
  const Borrowed y(result, {kInput, "out"}, Use::write);
  const nb::gil_scoped_release free;
  self.plan.apply(in.const_view(), p.value(), y.view());
  return result;
}

// d: of the parameters, f64, written.
void gradient_of(const LoweredRows& self, const ConstTensorView& x, const Positions& p,
                 const ConstTensorView& d_y, const TensorView& d_x, std::span<const TensorView> d) {
  const OwnedInputGradients g = zero_gradients(self.lowered);
  const auto rank = static_cast<std::size_t>(d_y.rank);
  std::vector<std::byte> work(self.plan.gradient_workspace(rank == 3 ? d_y.shape[0] : 1,
                                                           rank >= 2 ? d_y.shape[rank - 2] : 0));
  self.plan.gradient(x, p, d_y, d_x, g.terms, work);
  const std::vector<ConstTensorView> values = self.views();
  with_absolute(self.encoding, [&](const auto& s) { s.pull_back(values, g.terms, d); });
}

// (d_x, {name: gradient of the parameter})
nb::object gradient(const PreparedInput& prepared, nb::handle d_y, nb::handle positions,
                    nb::handle x) {
  const LoweredRows& self = *prepared.rows;
  const Borrowed dy(d_y, {kInput, "d_out"}, Use::read);
  const Borrowed in = optional_array(x, {kInput, "x"}, Use::read);
  const PositionsArgument p(positions, {kInput, "positions"});
  const TensorView& v = dy.view();
  std::vector<Index> shape(v.shape.begin(), v.shape.begin() + v.rank);
  if (!shape.empty()) shape.back() -= self.plan.appended();
  const nb::object d_x = new_array(v.dtype, shape);
  const Borrowed dx(d_x, {kInput, "d_x"}, Use::write);
  std::vector<std::vector<double>> d(self.parameters.size());
  {
    const nb::gil_scoped_release free;
    std::vector<TensorView> views;
    for (std::size_t i = 0; i < d.size(); ++i) {
      d[i].resize(self.values[i].size());
      views.push_back(tensor(d[i].data(), DType::f64, self.parameters[i].shape));
    }
    gradient_of(self, in.const_view(), p.value(), dy.const_view(), dx.view(), views);
  }
  nb::dict named;
  for (std::size_t i = 0; i < d.size(); ++i)
    named[nb::str(self.parameters[i].name.c_str())] = new_array(d[i], self.parameters[i].shape);
  return nb::make_tuple(d_x, named);
}

// The same into arrays that are there: d_parameters by name, zeros of f64.
void gradient_into(const PreparedInput& prepared, nb::handle d_y, nb::handle positions,
                   nb::handle x, nb::handle d_x, nb::dict d_parameters) {
  const LoweredRows& self = *prepared.rows;
  const Borrowed dy(d_y, {kInput, "d_out"}, Use::read), in(x, {kInput, "x"}, Use::read);
  const PositionsArgument p(positions, {kInput, "positions"});
  const Borrowed dx(d_x, {kInput, "d_x"}, Use::write);
  std::deque<Borrowed> kept;
  std::vector<TensorView> views;
  for (const Parameter& parameter : self.parameters) {
    const nb::str name(parameter.name.c_str());
    if (!d_parameters.contains(name))
      refuse_field(kInput, "d_parameters",
                   "must hold an array for every parameter, and has none for " + parameter.name);
    views.push_back(
        kept.emplace_back(d_parameters[name], Name{kInput, "d_parameters"}, Use::write).view());
  }
  const nb::gil_scoped_release free;
  gradient_of(self, in.const_view(), p.value(), dy.const_view(), dx.view(), views);
}

// One part of an embedding, as Python holds it.
struct Part {
  nb::object table, ids, rows;
  double scale = 1;
  Index offset = 0;
  std::optional<Index> frozen;
};
struct Norm {
  nb::object gamma, beta;
  double epsilon;
};

constexpr const char* kEmbed = "embed";

struct EmbedCall {
  std::deque<Borrowed> arrays;
  std::vector<EmbedPart> parts;
  std::optional<EmbedNorm> norm;

  ConstTensorView take(nb::handle h, const char* name) {
    if (h.is_none()) return {};
    return arrays.emplace_back(h, Name{kEmbed, name}, Use::read).const_view();
  }
  EmbedCall(nb::handle list, const Norm* n) {
    for (const nb::object& h : items_of(list, {kEmbed, "parts"}, "must be a list of EmbedParts")) {
      const Part* p = nullptr;
      if (!nb::try_cast<const Part*>(h, p, false) || p == nullptr)
        refuse_field(kEmbed, "parts", "must be EmbedParts",
                     nb::cast<std::string>(h.type().attr("__name__")));
      parts.push_back({.table = take(p->table, "table"),
                       .ids = take(p->ids, "ids"),
                       .rows = take(p->rows, "rows"),
                       .scale = p->scale,
                       .offset = p->offset,
                       .frozen = p->frozen});
    }
    if (n != nullptr) norm = EmbedNorm{take(n->gamma, "gamma"), take(n->beta, "beta"), n->epsilon};
  }
  // [t, width] or [b, t, width], as the first part with a batch has it.
  std::vector<Index> shape() const {
    if (parts.empty()) refuse(kEmbed, "at least one part must be given");
    std::vector<Index> s;
    for (const EmbedPart& p : parts) {
      const ConstTensorView& by = p.ids.empty() ? p.rows : p.ids;
      const std::int32_t axes = p.ids.empty() ? by.rank - 1 : by.rank;
      std::vector<Index> own(by.shape.begin(), by.shape.begin() + std::max(axes, 0));
      const ConstTensorView& width = p.ids.empty() ? p.rows : p.table;
      own.push_back(width.rank > 0 ? width.shape[static_cast<std::size_t>(width.rank - 1)] : 0);
      if (own.size() > s.size()) s = own;
    }
    return s;
  }
  DType dtype() const {
    return parts.front().table.empty() ? parts.front().rows.dtype : parts.front().table.dtype;
  }
};

nb::object embed_parts(nb::handle parts, const Norm* norm, nb::handle out) {
  const EmbedCall call(parts, norm);
  const nb::object result = out.is_none() ? new_array(call.dtype(), call.shape()) : nb::borrow(out);
  const Borrowed y(result, {kEmbed, "out"}, Use::write);
  const nb::gil_scoped_release free;
  embed(call.parts, call.norm, y.view());
  return result;
}

// ([gradient of each part], gamma's, beta's): float64.
nb::object embed_gradients(nb::handle parts, nb::handle d_out, const Norm* norm) {
  const EmbedCall call(parts, norm);
  const Borrowed dy(d_out, {kEmbed, "d_out"}, Use::read);
  nb::list made;
  std::deque<Borrowed> kept;
  std::vector<TensorView> views;
  const auto zeros = [&](const ConstTensorView& like) {
    if (like.empty()) return TensorView{};
    const nb::object a = new_array(
        DType::f64, std::span(like.shape.data(), static_cast<std::size_t>(like.rank)), true);
    made.append(a);
    return kept.emplace_back(a, Name{kEmbed, "gradient"}, Use::write).view();
  };
  for (const EmbedPart& p : call.parts) views.push_back(zeros(p.table.empty() ? p.rows : p.table));
  const nb::object of_parts = made;
  made = nb::list();
  EmbedGradients g{views, {}, {}};
  nb::object gamma = nb::none(), beta = nb::none();
  if (call.norm && !call.norm->gamma.empty())
    g.gamma = zeros(call.norm->gamma), gamma = made[nb::len(made) - 1];
  if (call.norm && !call.norm->beta.empty())
    g.beta = zeros(call.norm->beta), beta = made[nb::len(made) - 1];
  {
    const nb::gil_scoped_release free;
    embed_gradient(call.parts, call.norm, dy.const_view(), g);
  }
  return nb::make_tuple(of_parts, gamma, beta);
}

// The same into arrays that are there, one for each part, None where none is wanted.
void embed_gradients_into(nb::handle parts, nb::handle d_out, nb::handle d_parts,
                          nb::handle d_gamma, nb::handle d_beta, const Norm* norm) {
  const EmbedCall call(parts, norm);
  const Borrowed dy(d_out, {kEmbed, "d_out"}, Use::read);
  std::deque<Borrowed> kept;
  const auto view = [&](nb::handle given, const char* name) {
    return kept.emplace_back(optional_array(given, {kEmbed, name}, Use::write)).view();
  };
  std::vector<TensorView> views;
  for (const nb::handle given : d_parts) views.push_back(view(given, "d_parts"));
  const EmbedGradients g{views, view(d_gamma, "d_gamma"), view(d_beta, "d_beta")};
  const nb::gil_scoped_release free;
  embed_gradient(call.parts, call.norm, dy.const_view(), g);
}

void add_embed(nb::module_& m) {
  nb::class_<Part>(
      m, "EmbedPart",
      "One addend at the input: a table looked up by ids, or rows that are there already.")
      .def(
          "__init__",
          [](Part* self, nb::object table, nb::object ids, nb::object rows, double scale,
             Index offset, std::optional<Index> frozen) {
            new (self) Part{table, ids, rows, scale, offset, frozen};
          },
          nb::arg("table").none() = nb::none(), nb::arg("ids").none() = nb::none(), nb::kw_only(),
          nb::arg("rows").none() = nb::none(), nb::arg("scale") = EmbedPart{}.scale,
          nb::arg("offset") = EmbedPart{}.offset, nb::arg("frozen") = nb::none(),
          nb::sig("def __init__(self, table: Any = None, ids: Any = None, *, rows: Any = None, "
                  "scale: float = ..., offset: int = ..., frozen: int | None = None) -> None"));
  nb::class_<Norm>(m, "EmbedNorm", "The layer norm after the sum of the parts.")
      .def(
          "__init__",
          [](Norm* self, nb::object gamma, nb::object beta, double epsilon) {
            new (self) Norm{gamma, beta, epsilon};
          },
          nb::arg("gamma").none() = nb::none(), nb::arg("beta").none() = nb::none(), nb::kw_only(),
          nb::arg("epsilon") = EmbedNorm{}.epsilon,
          nb::sig("def __init__(self, gamma: Any = None, beta: Any = None, *, epsilon: float = "
                  "...) -> None"));
  m.def("embed", &embed_parts, nb::arg("parts").none(), nb::kw_only(),
        nb::arg("norm").none() = nb::none(), nb::arg("out") = nb::none(),
        nb::sig("def embed(parts: Iterable[EmbedPart], *, norm: EmbedNorm | None = None, out: Any "
                "= None) -> Any"),
        "The sum of the parts and its norm, in one pass over the tokens.");
  m.def("embed_gradient", &embed_gradients, nb::arg("parts").none(), nb::arg("d_out").none(),
        nb::kw_only(), nb::arg("norm").none() = nb::none(),
        nb::sig("def embed_gradient(parts: Iterable[EmbedPart], d_out: Any, *, norm: EmbedNorm | "
                "None = None) -> tuple[list[Any], Any, Any]"),
        "Gradients of every part's table or rows, of gamma and of beta, in float64.");
  m.def(
      "embed_gradient_into", &embed_gradients_into, nb::arg("parts").none(),
      nb::arg("d_out").none(), nb::kw_only(), nb::arg("d_parts"),
      nb::arg("d_gamma").none() = nb::none(), nb::arg("d_beta").none() = nb::none(),
      nb::arg("norm").none() = nb::none(),
      nb::sig("def embed_gradient_into(parts: Iterable[EmbedPart], d_out: Any, *, d_parts: "
              "Sequence[Any], d_gamma: Any = None, d_beta: Any = None, norm: EmbedNorm | None = "
              "None) -> None"),
      "The same, added to arrays that are there, float64 or float32: `d_parts` one for each part, "
      "None if not computed. Sums are in double and rounded once.");
}

}  // namespace

void add_input(nb::module_& m) {
  nb::class_<PreparedInput>(m, "InputPlan",
                            "Rows of an encoding at the input, prepared for one type of elements.")
      .def("__init__", &make_input, nb::arg("encoding").none(), nb::arg("dtype") = "float32",
           nb::kw_only(), nb::arg("parameters") = nb::none(), nb::arg("seed") = nb::none(),
           nb::arg("context") = nb::none(),
           nb::sig("def __init__(self, encoding: EncodingLike, dtype: DTypeLike = 'float32', *, "
                   "parameters: Mapping[str, Any] | None = None, seed: int | None = None, context: "
                   "int | None = None) -> None"))
      .def("apply", &apply, nb::arg("x").none(), nb::arg("positions").none(), nb::kw_only(),
           nb::arg("out") = nb::none(),
           nb::sig("def apply(self, x: Any, positions: PositionsLike, *, out: Any = None) -> Any"),
           "x composed with the rows of its positions, [t, c] or [b, t, c]; `out` may be x. x "
           "None: only the rows.")
      .def("gradient", &gradient, nb::arg("d_out").none(), nb::arg("positions").none(),
           nb::kw_only(), nb::arg("x") = nb::none(),
           nb::sig("def gradient(self, d_out: Any, positions: PositionsLike, *, x: Any = None) -> "
                   "tuple[Any, dict[str, Any]]"),
           "Gradients of x and of every parameter. x is needed where rows multiply it.")
      .def("gradient_into", &gradient_into, nb::arg("d_out").none(), nb::arg("positions").none(),
           nb::arg("x").none(), nb::arg("d_x").none(), nb::arg("d_parameters"),
           nb::sig("def gradient_into(self, d_out: Any, positions: PositionsLike, x: Any, d_x: "
                   "Any, d_parameters: dict[str, Any]) -> None"),
           "The same into arrays that are there: `d_parameters` by name, zeros of float64.")
      .def_prop_ro(
          "appended", [](const PreparedInput& i) { return i.rows->plan.appended(); },
          "Channels that are appended to x.")
      .def_prop_ro(
          "parameters",
          [](const PreparedInput& i) {
            nb::dict named;
            for (std::size_t n = 0; n < i.rows->parameters.size(); ++n)
              named[nb::str(i.rows->parameters[n].name.c_str())] =
                  new_array(i.rows->values[n], i.rows->parameters[n].shape);
            return named;
          },
          nb::sig("def parameters(self) -> dict[str, Any]"),
          "What the encoding learns, as the plan has it, in float64.");
  m.def(
      "input_parameters",
      [](nb::handle encoding) {
        nb::list list;
        for (const Parameter& p : parameters_of(encoding_of(encoding, kInput)))
          list.append(to_python(p));
        return list;
      },
      nb::arg("encoding").none(),
      nb::sig("def input_parameters(encoding: EncodingLike) -> list[tuple[str, tuple[int, ...]]]"),
      "Names and shapes of the learned parameters of an encoding at the input.");
  add_embed(m);
}

}  // namespace posenc::python
