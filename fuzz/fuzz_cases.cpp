// SPDX-License-Identifier: Apache-2.0
// cases.json of a suite: refused by FormatError or std::invalid_argument, or run, with every case
// in the report and the report JSON that reads back. The arrays of the suite are always the same.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "conformance/runner/runner.h"
#include "fuzz/law.h"
#include "posenc/core/error.h"
#include "posenc/io/array.h"

namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::temp_directory_path() / ("posenc-fuzz-" + std::to_string(::getpid()));
  Folder() {
    using namespace posenc;
    fs::create_directories(path);
    Arrays arrays;
    for (const DType t : {DType::f32, DType::f64, DType::bf16})
      arrays.emplace("x_" + std::string(dtype_name(t)), make_array(t, {1, 3, 2, 8}));
    arrays.emplace("positions", make_array(DType::i64, {3}));
    arrays.emplace("out", make_array(DType::f32, {3, 2, 8}));
    arrays.emplace("rows", make_array(DType::f64, {3, 4}));
    write_safetensors(path / "arrays.safetensors", arrays);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace posenc;
  static const Folder folder;
  std::ofstream(folder.path / "cases.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  Json report;
  try {
    report = conformance::run_suites({folder.path});
  } catch (const FormatError&) {
    return 0;
  } catch (const std::invalid_argument&) {
    return 0;
  }
  fuzz::law(parse_json(report.dump(), "report") == report, "parse(dump(x)) == x");
  return 0;
}
