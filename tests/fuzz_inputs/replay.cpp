// SPDX-License-Identifier: Apache-2.0
// replay FOLDER...: every file of FOLDER/<target> through that fuzz target. A broken law aborts;
// the file in hand is named first, so that the last line says which.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

struct Target {
  const char* name;
  int (*run)(const std::uint8_t*, std::size_t);
};
#include "targets.inc"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  if (fs::is_directory(folder))
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

int replay(const Target& target, const fs::path& folder) {
  int count = 0;
  for (const fs::path& file : files_of(folder)) {
    std::ifstream stream(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    std::printf("\r%s %s", target.name, file.filename().c_str());
    std::fflush(stdout);
    target.run(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    ++count;
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    bool empty = false;
    for (const Target& target : kTargets) {
      int count = 0;
      for (int i = 1; i < argc; ++i) count += replay(target, fs::path(argv[i]) / target.name);
      std::printf("\r%s: %d inputs\n", target.name, count);
      empty = empty || count == 0;
    }
    if (empty) std::puts("a target without inputs shows nothing");
    return empty ? 1 : 0;
  } catch (const std::exception& e) {
    std::printf("\n%s\n", e.what());
    return 1;
  }
}
