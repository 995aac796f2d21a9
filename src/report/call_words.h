// SPDX-License-Identifier: Apache-2.0
// Words that verbs of attention share.
#pragma once
#include "attend_call.h"
#include "posenc/report/words.h"

namespace posenc::report {

// --q, --k, --v, --order, learned arrays, inputs and further schemes.
void add_tensors(Words&, AttendOptions&);
// Positions, masks, offset and scale. `positions`: the help of --positions.
void add_places(Words&, AttendOptions&, const char* positions);
// Packed sequences, documents, orders and pages.
void add_packing(Words&, AttendOptions&);
void add_params(Words&, std::string& file);
void add_inputs(Words&, std::vector<std::string>&);
void add_token_types(Words&, AttendOptions&);

}  // namespace posenc::report
