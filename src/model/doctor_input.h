// SPDX-License-Identifier: Apache-2.0
// The doctor's look at what acts at the input.
#pragma once
#include <vector>

#include "posenc/model/spec.h"

namespace posenc {

// Risks that follow from the config alone: contexts beyond a table, offsets, padding on the left,
// angles in float32, and what reference programs are known to get wrong.
void find_input_risks(const ModelSpec&, std::vector<Finding>&);

}  // namespace posenc
