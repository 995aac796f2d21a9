// SPDX-License-Identifier: Apache-2.0
// The order of axes of queries and keys in files (--order).
#pragma once
#include <string>

#include "posenc/core/heads.h"
#include "posenc/io/array.h"

namespace posenc::report {

// The word of --order, or thd for three axes. Throws UsageError, InputError naming `which`.
HeadsLayout heads_order(const Array&, const std::string& word, const char* which);

}  // namespace posenc::report
