// SPDX-License-Identifier: Apache-2.0
// The doctor's look at what acts at the input.
#pragma once
#include <string>
#include <vector>

#include "posenc/model/spec.h"

namespace posenc {

// Risks that follow from the config alone: contexts beyond a table, offsets, padding on the left,
// angles in float32, and what reference programs are known to get wrong.
void find_input_risks(const ModelSpec&, std::vector<Finding>&);

// The command line that makes a table of positions of another size, to be pasted into a shell.
std::string extend_command(const std::string& file, const std::string& tensor, Index kept,
                           const std::string& to, const std::string& how);
// The side of a square grid of so many patches; none when they make no square.
std::optional<Index> side_of_square(Index patches);
// Two digits: 0.0058.
std::string rounded(double);

}  // namespace posenc
