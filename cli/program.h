// SPDX-License-Identifier: Apache-2.0
// The program: words, errors as messages on stderr, the exit code.
#pragma once
#include "posenc/report/checks.h"

namespace posenc::cli {

int run_program(int argc, char** argv);

// selftest and bench of this program: posenc starts posenc-checks, which runs them.
report::Checks checks_of(char** argv);

}  // namespace posenc::cli
