// SPDX-License-Identifier: Apache-2.0
// Runs suites of numbers made by other programs against this build of posenc. A suite is a folder
// with cases.json and arrays.safetensors (README.md beside it says what its arrays are); a case
// says what is to be checked in its field "posenc" (OPERATIONS.md has one line an operation).
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/io/json.h"

namespace posenc::conformance {

struct Options {
  // A JSON object {case name: [checks]} that adds or replaces the field "posenc" (a stranger's
  // suite has none). Empty: none.
  std::filesystem::path map;
  // ECMAScript regular expression searched in "suite/case"; empty: every case.
  std::string filter;
  // Called after every case; done counts from 1.
  std::function<void(std::string_view suite, std::string_view name, std::int64_t done,
                     std::int64_t total)>
      progress;
};

struct Suite;

// posenc.selftest/1. Throws FormatError where a suite or the map cannot be read, and
// std::invalid_argument on a bad filter; what goes wrong inside a case is that case's failure.
Json run_suites(const std::vector<std::filesystem::path>& suites, const Options& = {});
// The same of one suite in memory, every case.
Json run_suite(const Suite&);

// ONNX node tests of operator RotaryEmbedding (opset 23) in their own files: `dir` holds model.onnx
// and test_data_set_*/{input,output}_N.pb, or is a folder of such folders. The same schema, one
// case a data set; a node that is no RotaryEmbedding is not_expressible. Throws FormatError when
// nothing of that kind is found.
Json run_onnx(const std::filesystem::path& dir, const Options& = {});

// What either returned: no case failed, and there was one at all.
bool all_passed(const Json& report);

// Every folder of `root` that holds a cases.json, sorted by name; empty when there is none.
std::vector<std::filesystem::path> suites_under(const std::filesystem::path& root);

}  // namespace posenc::conformance
