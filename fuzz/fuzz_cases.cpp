// SPDX-License-Identifier: Apache-2.0
// The runner of suites: {"arrays": {...}, "cases": [...]} is refused by FormatError, or run, with every case in the
// report and the report JSON that reads back. What goes wrong inside a case is that case's failure.
#include "conformance/runner/runner.h"
#include "conformance/runner/suite.h"
#include "fuzz/law.h"
#include "fuzz/written_arrays.h"
#include "posenc/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace posenc;
  Json report;
  std::size_t cases = 0;
  try {
    const Json input = parse_json(fuzz::text(data, size), "input");
    conformance::Suite suite = conformance::parse_suite(input, "nowhere");
    suite.arrays = fuzz::written_arrays(input.find("arrays"));
    cases = suite.cases.as_array().size();
    report = conformance::run_suite(suite);
  } catch (const FormatError&) {
    return 0;
  }
  fuzz::law(report.at("suites").as_array().at(0).at("cases").as_array().size() == cases,
            "every case is in the report");
  fuzz::law(parse_json(report.dump(), "report") == report, "parse(dump(x)) == x");
  return 0;
}
