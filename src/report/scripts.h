// SPDX-License-Identifier: Apache-2.0
// Completion scripts and the manual page, made from the table of verbs.
#pragma once
#include <string>

namespace posenc::report {

inline constexpr const char* kProgramSummary =
    "Position encodings of Transformers: read, explain, check, compute.";

std::string completion_script(const std::string& shell);
std::string manual_page();

}  // namespace posenc::report
