// SPDX-License-Identifier: Apache-2.0
// A table that is printed and not written: a small one, for a person or as JSON.
#pragma once
#include <string>

#include "common.h"

namespace posenc::report {

// How cosine and sine stand in a row of cos_sin: cos_0, cos_1 .. sin_0, or cos_0, sin_0 ..
enum class Columns : std::uint8_t { halves, pairs };

// {"schema": "posenc.table/1", NAME: numbers, "shape"}.
std::string numbers_json(const std::string& name, const Array&);

// One line a position, or a head of a bias. Throws UsageError: arrays that need a file.
std::string printed_table(const Arrays&, const std::string& positions, Columns, bool json);

}  // namespace posenc::report
