// SPDX-License-Identifier: Apache-2.0
// Names and texts of files, for people to read.
#pragma once
#include <string>
#include <string_view>

#include "posenc/core/export.h"

namespace posenc::inline v0 {

// A name or text from a file as a terminal may show it: control characters, marks that reorder a
// line and bytes that are no UTF-8 become '?'; what is longer than `limit` characters ends in "...".
POSENC_API std::string printable(std::string_view, std::size_t limit = 80);

}  // namespace posenc::v0
