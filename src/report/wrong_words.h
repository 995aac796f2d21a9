// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace posenc::report {

// Throws UsageError with the verb that was meant.
void refuse_unknown_verb(const CLI::App&, const std::string& word);
// What CLI11 found wrong, in our words.
std::string said(const CLI::App&, const CLI::ParseError&, const std::string& first);

}  // namespace posenc::report
