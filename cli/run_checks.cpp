// SPDX-License-Identifier: Apache-2.0
// selftest and bench in posenc-checks, which runs them.
#include <array>
#include <filesystem>

#include "conformance/runner/selftest_report.h"
#include "lines/bench_report.h"
#include "program.h"

namespace posenc::cli {

report::Checks checks_of(char**) {
  return {[](const report::SelftestOptions& o, const report::Request& r) {
            // Installed, wherever the tree was moved to; else where the program was built.
            std::error_code problem;
            const std::filesystem::path program =
                std::filesystem::read_symlink("/proc/self/exe", problem);
            const std::array<std::filesystem::path, 3> roots{
                program.parent_path().parent_path() / "share" / "posenc" / "conformance",
                POSENC_SUITES_SOURCE, POSENC_SUITES_INSTALLED};
            return conformance::selftest(o, r, roots);
          },
          &bench::bench_report};
}

}  // namespace posenc::cli
