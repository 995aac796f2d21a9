// SPDX-License-Identifier: Apache-2.0
// What a scheme learns and what comes with each call, as posenc.list/1 says it.
#pragma once
#include <vector>

#include "posenc/core/parameter.h"
#include "posenc/registry/fields.h"
#include "posenc/relative/scheme.h"

namespace posenc::inline v0::detail {

// What a scheme of any family learns, in the score at these sizes; nothing where it learns nothing.
std::vector<Parameter> parameters_of(const Scheme&, const ScoreShape&);

// {"at", "parameters", "inputs"} of the scheme with its defaults; where fields are required, with
// its first preset or with usual values, as "at" says. A size is a number where heads, their
// channels and the distances do not change it, a word where it is one of those or their product,
// else null. Null lists: the scheme cannot be had so, or is of a family that has none.
void add_arrays(const SchemeInfo&, Json& out);

}  // namespace posenc::v0::detail
