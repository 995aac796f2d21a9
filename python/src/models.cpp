// SPDX-License-Identifier: Apache-2.0
// Models' files, and the command line's verbs as functions.

#include <cstring>

#include "arrays.h"
#include "bindings.h"
#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "posenc/model/read.h"
#include "posenc/report/command_line.h"
#include "posenc/report/verb.h"
#include "posenc/rotary/plan.h"

namespace posenc::python {
namespace {

struct ModelFile {
  ModelSpec spec;
};

void read(ModelFile* self, nb::handle path, std::optional<Index> context, nb::handle assume,
          std::optional<std::string> reader) {
  ReadOptions options;
  options.context = context;
  options.reader = reader.value_or("");
  if (!assume.is_none())
    for (const auto [key, value] : nb::borrow<nb::dict>(assume))
      options.assume.emplace(text_of(key), text_of((value)));
  const std::string file = path_of(path, "read_model");
  ModelSpec spec;
  {
    const nb::gil_scoped_release free;
    spec = read_model(file, options);
  }
  new (self) ModelFile{std::move(spec)};
}

nb::object explain(const ModelFile& m) {
  return to_python(explain_json(m.spec));
}
nb::object doctor_findings(const ModelFile& m) {
  Json j;
  {
    const nb::gil_scoped_release free;
    j = doctor_json(doctor(m.spec));
  }
  return to_python(j.at("findings"));
}
RotaryPlan rotary_plan(const ModelFile& m, Index layer, nb::handle dtype,
                       std::string_view outside) {
  return RotaryPlan(m.spec.rotary(layer), dtype_of(dtype, "rotary"),
                    {.outside = word_of<OutsideRange>(outside, {"rotary", "outside"})});
}

// A name of a file or a word of a command line, as the system has it: bytes that are no UTF-8 stand
// in Python's texts as surrogates.
std::string system_text(nb::handle h, Name n) {
  nb::object bytes = nb::borrow(h);
  if (nb::isinstance<nb::str>(h)) bytes = nb::steal(PyUnicode_EncodeFSDefault(h.ptr()));
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (!bytes.is_valid() || PyBytes_AsStringAndSize(bytes.ptr(), &data, &size) != 0)
    nb::raise_python_error();
  std::string text(data, static_cast<std::size_t>(size));
  if (text.find('\0') != std::string::npos)
    refuse_field(n.who, n.name, "must not hold a zero byte", text_of(nb::repr(h)));
  return text;
}

nb::object to_python(const Array& a) {
  const nb::object made = new_array(a.dtype, a.shape);
  const Borrowed b(made, {"array", "result"}, Use::write);
  if (!a.bytes.empty()) std::memcpy(b.view().data, a.bytes.data(), a.bytes.size());
  return made;
}

// {name: array} in the order of the names.
nb::dict arrays_as_dict(const Arrays& arrays) {
  nb::dict all;
  for (const auto& [name, array] : arrays) all[name.c_str()] = to_python(array);
  return all;
}

// "posenc" and the words of a verb.
std::vector<std::string> verb_words(const nb::list& words) {
  std::vector<std::string> text = system_words(words);
  if (text.size() > 1 && text[1] == "-")
    refuse("posenc", "a model must be a file: the standard input belongs to the program", "-");
  text.insert(text.begin(), "posenc");
  return text;
}

// The report of a verb, its errors thrown: (exit code, arrays, text or picture, remarks).
nb::object report_of_words(const nb::list& words) {
  const std::vector<std::string> text = verb_words(words);
  std::string remarks;
  report::Report made;
  {
    const nb::gil_scoped_release free;
    made = report::report_of(text, {.note = [&](std::string_view said) { remarks += said; }});
  }
  const std::string& data = made.bytes ? *made.bytes : made.text;
  return nb::make_tuple(made.code, arrays_as_dict(made.arrays), nb::bytes(data.data(), data.size()),
                        nb::str(remarks.data(), remarks.size()));
}

// A verb that writes its own file: (exit code, what it says as data, remarks).
nb::object command(const nb::list& words) {
  const std::vector<std::string> text = verb_words(words);
  std::string out, remarks;
  int code = 0;
  {
    const nb::gil_scoped_release free;
    code = report::run_command(text, {.out = [&](std::string_view data) { out += data; },
                                      .note = [&](std::string_view said) { remarks += said; }});
  }
  return nb::make_tuple(code, nb::bytes(out.data(), out.size()),
                        nb::str(remarks.data(), remarks.size()));
}

// {name: array} of the bytes of a .safetensors file.
nb::dict arrays_of(const nb::bytes& data) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data.c_str()),
                                         data.size());
  nb::dict all;
  for (const auto& [name, array] : parse_safetensors(bytes, "arrays"))
    all[name.c_str()] = to_python(array);
  return all;
}

Array dense(nb::handle h, const char* name) {
  return make_array(Borrowed(h, {"arrays", name}, Use::read).const_view());
}

void save_arrays(nb::handle path, const nb::dict& named) {
  const std::string file = path_of(path, "arrays");
  Arrays all;
  for (const auto [key, value] : named) {
    const auto name = text_of(key);
    all.emplace(name, dense(value, name.c_str()));
  }
  const nb::gil_scoped_release free;
  write_safetensors(file, all);
}

void save_positions(nb::handle path, nb::handle positions) {
  const std::string file = path_of(path, "positions");
  const PositionsArgument p(positions, {"positions", "positions"});
  const OwnedPositions all = owned(p.value());
  std::vector<Index> shape;
  if (all.axes > 1) shape.push_back(all.axes);
  if (all.axes > 1 || all.batch > 1) shape.push_back(all.batch);
  shape.push_back(all.count());
  write_npy(file,
            std::visit(
                [&](const auto& v) {
                  return make_array(tensor(
                      std::as_const(v).data(),
                      posenc::dtype_of<typename std::decay_t<decltype(v)>::value_type>, shape));
                },
                all.value));
}

}  // namespace

std::vector<std::string> system_words(const nb::list& words) {
  std::vector<std::string> text;
  for (const nb::handle word : words) text.push_back(system_text(word, {"posenc", "a word"}));
  return text;
}

std::string path_of(nb::handle h, const char* who) {
  const nb::object p = nb::steal(PyOS_FSPath(h.ptr()));
  if (!p.is_valid()) {
    PyErr_Clear();
    refuse_field(who, "path", "must be a path", nb::cast<std::string>(h.type().attr("__name__")));
  }
  return system_text(p, {who, "path"});
}

void add_models(nb::module_& m) {
  nb::class_<ModelFile>(m, "ModelFile")
      .def("__init__", &read, nb::arg("path").none(), nb::arg("context").none(),
           nb::arg("assume").none(), nb::arg("reader").none(),
           nb::sig("def __init__(self, path: str | PathLike[str], context: int | None, assume: "
                   "dict[str, str] | None, reader: str | None) -> None"))
      .def("explain", &explain, nb::sig("def explain(self) -> dict[str, Any]"))
      .def("doctor", &doctor_findings, nb::sig("def doctor(self) -> list[dict[str, Any]]"))
      .def("require_readable", [](const ModelFile& f) { require_readable(f.spec); })
      .def("rotary_plan", &rotary_plan, nb::arg("layer"), nb::arg("dtype"), nb::arg("outside"),
           nb::sig(
               "def rotary_plan(self, layer: int, dtype: DTypeLike, outside: str) -> RotaryPlan"));
}

void add_reports(nb::module_& m) {
  m.def("command", &command, nb::arg("words"),
        nb::sig("def command(words: list[str]) -> tuple[int, bytes, str]"));
  m.def("report", &report_of_words, nb::arg("words"),
        nb::sig("def report(words: list[str]) -> tuple[int, dict[str, Any], bytes, str]"));
  m.def("arrays_of", &arrays_of, nb::arg("data"),
        nb::sig("def arrays_of(data: bytes) -> dict[str, Any]"));
  m.def("save_arrays", &save_arrays, nb::arg("path").none(), nb::arg("named"),
        nb::sig("def save_arrays(path: str, named: dict[str, Any]) -> None"));
  m.def("save_positions", &save_positions, nb::arg("path").none(), nb::arg("positions").none(),
        nb::sig("def save_positions(path: str, positions: PositionsLike) -> None"));
  m.def(
      "verbs_json", [] { return report::verbs_json().dump(); }, nb::sig("def verbs_json() -> str"));
}

}  // namespace posenc::python
