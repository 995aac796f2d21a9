// SPDX-License-Identifier: Apache-2.0
// The extension module: posenc as Python sees it. Formulas, defaults and checks are the library's.
#include <system_error>

#include "bindings.h"
#include "posenc/core/error.h"
#include "posenc/core/executor.h"
#include "posenc/model/finding.h"
#include "posenc/report/request.h"
#include "posenc/version.h"

namespace posenc::python {
namespace {

PyObject* format_error = nullptr;
PyObject* model_error = nullptr;

nb::object to_python(const Finding& f) {
  nb::dict d;
  d["severity"] = std::string(enum_text(f.severity)).c_str();
  d["code"] = f.code.c_str();
  d["message"] = f.message.c_str();
  d["where"] = f.where.c_str();
  d["fix"] = f.fix.c_str();
  d["value"] = f.value ? nb::object(nb::float_(*f.value)) : nb::none();
  return d;
}

void set(PyObject* type, const char* what,
         std::initializer_list<std::pair<const char*, nb::object>> members) {
  const nb::object e = nb::borrow(type)(nb::str(what));
  for (const auto& [name, value] : members) e.attr(name) = value;
  PyErr_SetObject(type, e.ptr());
}

void translate(const std::exception_ptr& p, void*) {
  try {
    std::rethrow_exception(p);
  } catch (const FormatError& e) {
    set(format_error, e.what(),
        {{"file", nb::str(e.file().c_str())}, {"place", nb::str(e.place().c_str())}});
  } catch (const ModelError& e) {
    nb::list findings;
    for (const Finding& f : e.findings()) findings.append(to_python(f));
    set(model_error, e.what(), {{"findings", findings}});
  } catch (const std::system_error& e) {
    PyErr_SetString(PyExc_OSError, e.what());
  } catch (const report::UsageError& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const report::InputError& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  }
}

}  // namespace

void add_errors(nb::module_& m) {
  format_error =
      PyErr_NewExceptionWithDoc("posenc.FormatError",
                                "A file whose contents do not match its format: `file`, and "
                                "`place` in it (a JSON path, a key, a byte).",
                                PyExc_ValueError, nullptr);
  model_error = PyErr_NewExceptionWithDoc(
      "posenc.ModelError",
      "A model whose positions cannot be determined from its files: `findings` has the reasons.",
      PyExc_ValueError, nullptr);
  m.attr("FormatError") = nb::borrow(format_error);
  m.attr("ModelError") = nb::borrow(model_error);
  nb::register_exception_translator(translate);
}

}  // namespace posenc::python

NB_MODULE(_posenc, m) {
  namespace nb = nanobind;
  using namespace posenc::python;
  // Plans that a module keeps live as long as the process: they are no leak.
  nb::set_leak_warnings(false);
  m.doc() = "The compiled part of posenc; use the package.";
  m.attr("__version__") = posenc::kVersion;
  add_errors(m);
  add_encodings(m);
  add_rotation(m);
  add_polar(m);
  add_input(m);
  add_input_lookup(m);
  add_attention(m);
  add_more_attention(m);
  add_score_bias(m);
  add_positions(m);
  add_models(m);
  add_reports(m);
  add_program(m);
  add_torch(m);
  add_jax(m);
  m.def("set_num_threads", &posenc::set_default_threads, nb::arg("threads"),
        "Threads of large calls from the next one on; 0: the default again.");
}
