// SPDX-License-Identifier: Apache-2.0
// Encodings as SCHEME text: what the classes of the package are made of.

#include <algorithm>
#include <tuple>

#include "arrays.h"
#include "bindings.h"
#include "posenc/core/error.h"
#include "posenc/registry/complete.h"
#include "posenc/registry/fields.h"

namespace posenc::python {
namespace {

std::string quoted(const std::string& word) {
  std::string s = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') s += '\\';
    s += c;
  }
  return s + '"';
}

// An attribute as text, "" where there is none.
std::string attribute(nb::handle h, const char* name) {
  const nb::object found = nb::getattr(h, name, nb::none());
  return found.is_none() ? "" : text_of(found);
}

// A value of Python as the grammar writes it; what it may be is the grammar's to say.
std::string value_text(nb::handle v) {
  if (attribute(v, "ndim") == "0" && nb::hasattr(v, "item")) {  // one number of an array
    const nb::object number = v.attr("item")();
    if (!nb::hasattr(number, "ndim")) return value_text(number);
  }
  if (v.is_none()) return "none";
  if (PyBool_Check(v.ptr())) return v.ptr() == Py_True ? "true" : "false";
  if (nb::isinstance<nb::str>(v)) {
    const std::string word = text_of(v);
    const bool plain = !word.empty() && word.find_first_of(" \t\n\r\"\\[]@,") == std::string::npos;
    return plain ? word : quoted(word);
  }
  if (PyIndex_Check(v.ptr()) && !PySequence_Check(v.ptr())) {
    const nb::object whole = nb::steal(PyNumber_Index(v.ptr()));
    if (!whole.is_valid()) nb::raise_python_error();
    return text_of(whole);
  }
  if (PyFloat_Check(v.ptr()) || (nb::hasattr(v, "__float__") && !PySequence_Check(v.ptr()))) {
    const double number = PyFloat_AsDouble(v.ptr());
    if (number == -1 && PyErr_Occurred() != nullptr) nb::raise_python_error();
    return number_text(number);
  }
  if (nb::hasattr(v, "__iter__")) {
    std::string list = "[";
    for (const nb::handle x : nb::iter(v))
      list.append(list.size() > 1 ? "," : "").append(value_text(x));
    return list + "]";
  }
  return quoted(text_of(v));
}

std::string part_text(const std::string& name, const nb::dict& values) {
  std::string text = name;
  for (const auto [key, value] : values)
    text.append(" ").append(text_of(key)).append("=").append(value_text(value));
  return text;
}

bool is_scaling(std::string_view text) {
  const std::string_view word = text.substr(0, text.find(' '));
  for (const SchemeInfo& s : all_scalings())
    if (s.card.name == word) return true;
  return false;
}

std::string canonical_part(const std::string& text) {
  return is_scaling(text) ? to_text(parse_scaling(text)) : to_text(parse_encoding(text));
}

// [(name, text)]: the scheme, then the scalings; or one scaling.
nb::list parts(const std::string& text) {
  nb::list list;
  const auto add = [&](const Card& c, const std::string& t) {
    list.append(nb::make_tuple(nb::str(c.name.data(), c.name.size()), t));
  };
  if (is_scaling(text)) {
    const Scaling s = parse_scaling(text);
    add(s.card(), to_text(s));
    return list;
  }
  const Encoding e = parse_encoding(text);
  add(card(e.scheme), to_text(e.scheme));
  for (const Scaling& s : e.scalings) add(s.card(), to_text(s));
  return list;
}

nb::object fields(const std::string& text) {
  const Json j =
      is_scaling(text) ? to_json(parse_scaling(text)) : to_json(parse_encoding(text).scheme);
  return to_python(j.at("fields"));
}

std::string complete_text(const std::string& text, std::optional<Index> heads,
                          std::optional<Index> head_dim, std::optional<Index> width,
                          std::optional<Index> rows, std::optional<bool> causal) {
  ModelSizes sizes{.causal = causal};
  for (const auto& [given, to, name] :
       {std::tuple{heads, &sizes.heads, "heads"}, std::tuple{head_dim, &sizes.head_dim, "head_dim"},
        std::tuple{width, &sizes.width, "width"}, std::tuple{rows, &sizes.rows, "rows"}}) {
    if (given && *given < 1)
      refuse_field("complete", name, "must be positive", std::to_string(*given));
    *to = given.value_or(0);
  }
  return to_text(complete(text, sizes).encoding);
}

}  // namespace

std::string scheme_text(nb::handle h, const char* who) {
  if (nb::isinstance<nb::str>(h)) return text_of(h);
  const nb::object text = nb::getattr(h, "_text", nb::none());
  if (!nb::isinstance<nb::str>(text))
    refuse_field(who, "encoding", "must be SCHEME text or an encoding of posenc",
                 nb::cast<std::string>(h.type().attr("__name__")));
  return text_of(text);
}

std::vector<nb::object> items_of(nb::handle h, Name n, std::string_view rule) {
  const auto each = nb::steal(PyObject_GetIter(h.ptr()));
  if (!each.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) nb::raise_python_error();
    PyErr_Clear();
    refuse_field(n.who, n.name, rule, text_of(h.type().attr("__name__")));
  }
  std::vector<nb::object> items;
  while (PyObject* const item = PyIter_Next(each.ptr())) items.push_back(nb::steal(item));
  if (PyErr_Occurred() != nullptr) nb::raise_python_error();
  return items;
}

std::vector<std::string> scheme_texts(nb::handle encodings, const char* who) {
  std::vector<std::string> texts;
  if (nb::isinstance<nb::str>(encodings) || nb::hasattr(encodings, "_text")) {
    texts.push_back(scheme_text(encodings, who));
  } else if (!encodings.is_none()) {
    for (const nb::object& x : items_of(encodings, {who, "encodings"},
                                        "must be SCHEME text, an encoding of posenc or a list"))
      texts.push_back(scheme_text(x, who));
  }
  return texts;
}

Encoding encoding_of(nb::handle h, const char* who) {
  return parse_encoding(scheme_text(h, who));
}

Context context_of(nb::handle h, const char* who) {
  if (h.is_none()) return {};
  Index n = 0;
  if (!nb::try_cast<Index>(h, n, false))
    refuse_field(who, "context", "must be a whole number", text_of(nb::repr(h)));
  if (n < 1) refuse_field(who, "context", "must be positive", std::to_string(n));
  return Context{.length = n};
}

nb::object to_python(const Json& j) {
  if (j.is_null()) return nb::none();
  if (j.is_bool()) return nb::bool_(j.as_bool());
  if (j.is_integer()) return nb::int_(j.as_integer());
  if (j.is_number()) return nb::float_(j.as_number());
  if (j.is_string()) return nb::str(j.as_string().data(), j.as_string().size());
  if (j.is_array()) {
    nb::list list;
    for (const Json& x : j.as_array()) list.append(to_python(x));
    return list;
  }
  nb::dict dict;
  for (const auto& [key, value] : j.as_object())
    dict[nb::str(key.data(), key.size())] = to_python(value);
  return dict;
}

nb::object to_python(const OwnedPositions& p) {
  std::vector<Index> shape;
  if (p.axes > 1)
    shape = {Index{p.axes}, p.batch};
  else if (p.batch > 1)
    shape = {p.batch};
  shape.push_back(p.count());
  return std::visit([&](const auto& v) { return new_array(v, shape); }, p.value);
}

nb::object to_python(const Parameter& p) {
  nb::object shape = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(p.shape.size())));
  for (std::size_t i = 0; i < p.shape.size(); ++i)
    PyTuple_SetItem(shape.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(p.shape[i]));
  return nb::make_tuple(p.name, shape);
}

void add_encodings(nb::module_& m) {
  m.def(
      "registry_json", [] { return registry_json().dump(2); }, "posenc list --json");
  m.def(
      "complete_text", &complete_text, nb::arg("text"), nb::kw_only(), nb::arg("heads"),
      nb::arg("head_dim"), nb::arg("width"), nb::arg("rows"), nb::arg("causal"),
      nb::sig("def complete_text(text: str, *, heads: int | None, head_dim: int | None, width: int "
              "| None, rows: int | None, causal: bool | None) -> str"));
  m.def(
      "part_text",
      [](const std::string& name, const nb::dict& values) {
        return canonical_part(part_text(name, values));
      },
      nb::arg("name"), nb::arg("values"),
      nb::sig("def part_text(name: str, values: dict[str, object]) -> str"));
  m.def("parts", &parts, nb::arg("text"), nb::sig("def parts(text: str) -> list[tuple[str, str]]"));
  m.def("fields", &fields, nb::arg("text"), nb::sig("def fields(text: str) -> dict[str, object]"));
  m.def(
      "encoding_text", [](const std::string& text) { return to_text(parse_encoding(text)); },
      nb::arg("text"));
}

}  // namespace posenc::python
