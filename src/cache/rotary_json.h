// SPDX-License-Identifier: Apache-2.0
// A rotation as JSON and back, number for number.
#pragma once
#include <string>

#include "posenc/io/json.h"
#include "posenc/rotary/spec.h"

namespace posenc::inline v0::detail {

Json rotary_json(const RotarySpec&);
// Throws FormatError(file, place ...): another structure, a rotation that check_rotary rejects.
RotarySpec rotary_from_json(const Json&, const std::string& file, const std::string& place);

}  // namespace posenc::v0::detail
