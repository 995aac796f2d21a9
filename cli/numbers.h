// SPDX-License-Identifier: Apache-2.0
// Numbers on the command line: decimal digits, the whole word, or a refusal that says what is
// wanted. (CLI11 reads 010 as eight, 0x10 as sixteen, and calls 1e5 out of range.)
#pragma once
#include <CLI/CLI.hpp>

#include "posenc/core/dtype.h"

namespace posenc::cli {

// What the option takes, both ends included; kMost: no end worth naming.
inline constexpr Index kMost = Index{1} << 62;
CLI::Validator whole_number(Index low, Index high = kMost);
CLI::Validator real_number();

}  // namespace posenc::cli
