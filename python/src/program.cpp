// SPDX-License-Identifier: Apache-2.0
// The program `posenc` of the package, and selftest as a function.
#include <csignal>

#include "bindings.h"
#include "conformance/runner/selftest_report.h"
#include "lines/bench_report.h"
#include "posenc/report/process.h"

namespace posenc::python {
namespace {

// Its exit code. No suites come with the package.
int program(const nb::list& words) {
  const std::vector<std::string> text = system_words(words);
  const auto selftest = [](const report::SelftestOptions& o, const report::Request& r) {
    return conformance::selftest(o, r, {});
  };
  std::signal(SIGPIPE, SIG_DFL);  // Python ignores it; a filter ends with its reader
  const nb::gil_scoped_release free;
  return report::run_process(text, {.checks = {selftest, &bench::bench_report}});
}

// posenc.selftest/1 as text.
std::string selftest(const std::vector<std::string>& suites, const std::string& filter) {
  const nb::gil_scoped_release free;
  return conformance::selftest({.suites = suites, .onnx = {}, .map = {}, .filter = filter},
                               {.path = {}, .format = {}, .json = true}, {})
      .text;
}

}  // namespace

void add_program(nb::module_& m) {
  m.def("program", &program, nb::arg("words"), nb::sig("def program(words: list[str]) -> int"));
  m.def(
      "selftest",
      [](const nb::list& suites, const std::string& filter) {
        return selftest(system_words(suites), filter);
      },
      nb::arg("suites"), nb::arg("filter"),
      nb::sig("def selftest(suites: list[str], filter: str) -> str"));
}

}  // namespace posenc::python
