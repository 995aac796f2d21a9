// SPDX-License-Identifier: Apache-2.0
// The doctor's look at what acts at the input.
#pragma once
#include <string>

#include "model/diagnostics.h"
#include "posenc/model/weights.h"

namespace posenc::inline v0 {

// Risks that follow from the config alone: contexts beyond a table, offsets, padding on the left,
// angles in float32, and what reference programs are known to get wrong.
void find_input_risks(const ModelSpec&, Diagnostics&);
// Values far outside what published models use.
void find_implausible(const ModelSpec&, Diagnostics&);
// The tables that the weights hold, against what the config means.
void find_table_faults(const ModelSpec&, Diagnostics&);

// The command line that makes a table of positions of another size, to be pasted into a shell.
std::string extend_command(const std::string& file, const std::string& tensor, Index kept,
                           const std::string& to, const std::string& how);
// The side of a square grid of so many patches; none when they make no square.
std::optional<Index> side_of_square(Index patches);
// Two digits: 0.0058.
std::string rounded(double);
// The largest error of an angle that a program forms as float32(position) * float32(frequency), as
// most do, at the last positions of `length` plus `offset`.
double float32_error(const Spectrum&, Index length, Index offset = 0);
inline Severity float32_severity(double error) {
  return error > 0.05 ? Severity::warning : Severity::note;
}

}  // namespace posenc::v0
