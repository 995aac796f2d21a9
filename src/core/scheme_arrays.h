// SPDX-License-Identifier: Apache-2.0
// What a scheme learns and what comes with each call, as posenc.list/1 says it.
#pragma once
#include "posenc/core/fields.h"

namespace posenc::inline v0::detail {

// {"at", "parameters", "inputs"} of the scheme with its defaults; where fields are required, with
// its first preset or with usual values, as "at" says. A size is a number where heads, their
// channels and the distances do not change it, a word where it is one of those or their product,
// else null. Null lists: the scheme cannot be had so, or is of a family that has none.
void add_arrays(const SchemeInfo&, Json& out);

}  // namespace posenc::v0::detail
