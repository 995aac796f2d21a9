// SPDX-License-Identifier: Apache-2.0
// Several tables of T5 buckets, each on an axis of its own, with one name each: documents.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "posenc/relative/t5.h"

namespace posenc::inline v0::detail {

struct T5Table {
  const char* name;
  T5 rule;
};
std::vector<Parameter> t5_tables_parameters(std::string_view who, const ScoreShape&,
                                            std::span<const T5Table>);
// One term a table.
void lower_t5_tables(std::string_view who, const ScoreShape&, std::span<const T5Table>,
                     std::span<const ConstTensorView> p, LoweredTerms&);
void pull_back_t5_tables(std::string_view who, const ScoreShape&, std::span<const T5Table>,
                         std::size_t parameters, const LoweredGradient&,
                         std::span<const TensorView> dp);

}  // namespace posenc::v0::detail
