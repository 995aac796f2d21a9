// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <span>

#include "posenc/report/checks.h"

namespace posenc::conformance {

// posenc selftest. Without --suite the suites of the first of `roots` that has some.
report::Report selftest(const report::SelftestOptions&, const report::Request&,
                        std::span<const std::filesystem::path> roots);

}  // namespace posenc::conformance
