// SPDX-License-Identifier: Apache-2.0
// selftest and bench in posenc: posenc-checks beside it reads the same words and answers.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "checks.h"
#include "exit.h"

namespace posenc::cli {
namespace {

Report start_checks(char** argv) {
  std::error_code problem;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", problem);
  if (problem) self = argv[0];
  const std::filesystem::path checks = self.parent_path() / "posenc-checks";
  execv(checks.c_str(), argv);
  return {.code =
              fail(kResources, fmt::format("{} cannot be started: {}; selftest and bench need it",
                                           checks.string(), std::strerror(errno)))};
}

}  // namespace

Report selftest(const SelftestOptions&, const Request& r) {
  return start_checks(r.argv);
}
Report bench(const BenchOptions&, const Request& r) {
  return start_checks(r.argv);
}

}  // namespace posenc::cli
