// SPDX-License-Identifier: Apache-2.0
// Names of files and words of a command line are bytes; JSON and XML are UTF-8.
#pragma once
#include <string>
#include <string_view>

#include "posenc/io/json.h"

namespace posenc::report {

// What is no UTF-8 becomes U+FFFD.
std::string utf8(std::string_view);
// The same of every string in it.
Json in_utf8(Json);
// As text of XML 1.0; what that may not hold becomes U+FFFD too.
std::string escape_xml(std::string_view);

}  // namespace posenc::report
