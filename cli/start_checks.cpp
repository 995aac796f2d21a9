// SPDX-License-Identifier: Apache-2.0
// selftest and bench in posenc: posenc-checks beside it reads the same words and answers.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "posenc/report/process.h"
#include "program.h"

namespace posenc::cli {

report::Checks checks_of(char** argv) {
  const auto start = [argv](const auto&, const report::Request&) -> report::Report {
    std::error_code problem;
    std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", problem);
    if (problem) self = argv[0];
    const std::filesystem::path checks = self.parent_path() / "posenc-checks";
    execv(checks.c_str(), argv);
    return {.code = report::fail(report::kResources,
                                 fmt::format("{} cannot be started: {}; selftest and bench need it",
                                             checks.string(), std::strerror(errno)))};
  };
  return {start, start};
}

}  // namespace posenc::cli
