// SPDX-License-Identifier: Apache-2.0
// The command line as a process, for a main function: standard streams, signals, messages and the exit code.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/report/checks.h"

namespace posenc::report {

struct ProcessParts {
  Checks checks{};
  std::function<std::string()>
      not_enough_memory{};  // the message of a std::bad_alloc; empty: without its size
};

// Runs the words with the streams of the process and returns the exit code; errors are messages on
// stderr. Opens standard streams that are closed on /dev/null, ignores SIGXFSZ, and handles SIGINT,
// SIGTERM and SIGHUP, so that no half of a file stays behind.
int run_process(const std::vector<std::string>& words, const ProcessParts&);

// Writes "posenc: message" to stderr and returns the code.
int fail(int code, std::string_view message);

}  // namespace posenc::report
