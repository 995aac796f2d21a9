// SPDX-License-Identifier: Apache-2.0
// A call of attention as the words of attend say it, for attend and for pictures of the score.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attention_call.h"
#include "posenc/attention/order.h"
#include "posenc/core/heads.h"
#include "posenc/report/attend.h"

namespace posenc::report {

// Everything that a call reads, kept alive. Arrays called q, k and v that are there before stand
// for files that are not named.
struct AttendCall {
  AttentionArgs args;
  std::map<std::string, Array> arrays;
  Array prefix, chunk_origin;
  std::vector<Index> offsets;
  PositionList query_positions, key_positions;
  std::optional<LayerAttention> layer;                                   // of a model
  HeadsLayout layout = HeadsLayout::thd, key_layout = HeadsLayout::thd;  // of k and v
  Array out, log_sum_exp;
  AttentionResult result;

  // Once for each name.
  const Array& read(const std::string& name, const std::string& file) {
    if (const auto found = arrays.find(name); found != arrays.end()) return found->second;
    return arrays.emplace(name, read_array(file, name)).first->second;
  }
};
// What q and --mask say of the model, for the fields that a SCHEME lacks. Reads q.
ModelSizes sizes_of_call(AttendCall&, const AttendOptions&);
void read_call(AttendCall&, const AttendOptions&, const ScoreEncodings&);
// Keys of a row, those of all its pages.
Index paged_keys(const AttentionArgs&);
// The plan of a call that was read.
AttentionPlan plan_of_call(const AttendCall&, const AttendOptions&, const ScoreEncodings&);
// Of each head: the rows of probabilities [batch, heads, queries, keys] that see a key, at least 1.
std::vector<double> rows_that_see(const AttentionArgs&, const double* probabilities);

}  // namespace posenc::report
