// SPDX-License-Identifier: Apache-2.0
// `posenc VERB ...` as a function. It does not write to streams and does not end the process.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "posenc/report/checks.h"
#include "posenc/report/request.h"

namespace posenc::report {

// Where a command line writes.
struct Console {
  std::function<void(std::string_view)> out{};   // data; throws std::system_error if it cannot
  std::function<void(std::string_view)> note{};  // remarks and what was written
  bool color = false;
  Progress progress{};
  Checks checks{};
};

// words: "posenc", the verb and its words. Files are written as the words say, everything else goes
// to the console. Returns 0, or 1 for a negative answer. Throws UsageError (wrong words),
// InputError, FormatError, std::invalid_argument (wrong input), std::system_error,
// std::bad_alloc.
int run_command(std::span<const std::string> words, const Console&);

// The report itself: arrays and pictures stay in memory, -o is not needed, and --json is read.
Report report_of(std::span<const std::string> words, const Console& = {});

}  // namespace posenc::report
