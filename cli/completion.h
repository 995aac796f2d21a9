// SPDX-License-Identifier: Apache-2.0
// Completion scripts and the manual page, made from the command line's own description.
#pragma once
#include <string>

namespace CLI {
class App;
}

namespace posenc::cli {

std::string completion_script(const CLI::App&, const std::string& shell);
std::string manual_page(const CLI::App&);

}  // namespace posenc::cli
