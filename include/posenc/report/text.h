// SPDX-License-Identifier: Apache-2.0
// Numbers for people, and positions from a text.
#pragma once
#include <string>
#include <string_view>

#include "posenc/core/dtype.h"
#include "posenc/positions/view.h"

namespace posenc::report {

// 131072 -> "131,072"; 1.5e9 bytes -> "1.40 GiB"; at most `digits` significant digits.
std::string with_commas(Index);
std::string bytes_text(double bytes);
std::string short_number(double, int digits = 4);

// A:B[:STEP] (half-open, may be negative), 1,2,3 or [1,2,3], or the path of an .npy of [t], [b, t] or
// [axes, b, t]. Throws UsageError, InputError.
OwnedPositions positions_of_text(std::string_view);

}  // namespace posenc::report
