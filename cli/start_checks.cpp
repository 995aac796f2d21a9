// SPDX-License-Identifier: Apache-2.0
// selftest and bench in posenc: posenc-checks beside it reads the same words and answers.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common.h"
#include "exit.h"
#include "verbs.h"

namespace posenc::cli {
namespace {

int start_checks(char** argv) {
  std::error_code problem;
  std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", problem);
  if (problem) self = argv[0];
  const std::filesystem::path checks = self.parent_path() / "posenc-checks";
  execv(checks.c_str(), argv);
  return fail(kResources, fmt::format("{} cannot be started: {}; selftest and bench need it",
                                      checks.string(), std::strerror(errno)));
}

}  // namespace

int selftest(const SelftestOptions&, char** argv) {
  return start_checks(argv);
}
int bench(const BenchOptions&, char** argv) {
  return start_checks(argv);
}

}  // namespace posenc::cli
