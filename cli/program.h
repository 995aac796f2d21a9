// SPDX-License-Identifier: Apache-2.0
// What the programs posenc and posenc-checks add to the command line of the report library.
#pragma once
#include <string>

#include "posenc/report/checks.h"

namespace posenc::cli {

// selftest and bench of this program: posenc starts posenc-checks, which runs them.
report::Checks checks_of(char** argv);

// The message of a std::bad_alloc: with the bytes of the last request that was refused.
std::string not_enough_memory();

}  // namespace posenc::cli
