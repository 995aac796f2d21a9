// SPDX-License-Identifier: Apache-2.0
// posenc attend: attention from files.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "posenc/report/request.h"
#include "posenc/report/subject.h"

namespace posenc::report {

struct AttendOptions {
  SubjectOptions subject;
  std::vector<std::string> with;  // further SCHEMEs that act in the score
  std::string q, k, v, order, params, positions, key_positions, offset;
  std::string grid;                        // HxW of the tokens
  std::vector<std::string> inputs, masks;  // NAME=F; words or files
  std::string cu_seqlens, key_cu_seqlens, documents, token_types, gradient;
  std::string query_order, key_order, chunk_origin, block_table, key_length;  // files or a number
  std::optional<double> scale, softcap;
  bool scores = false, terms = false, probabilities = false, locality = false, exact = false;
  bool explain = false;
};

// The arrays `out`, `log_sum_exp` and those that the options name.
// With `explain` nothing is computed: the text says which engine runs the call.
Report attend(const AttendOptions&, const Request&);

}  // namespace posenc::report
