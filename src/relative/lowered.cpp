// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/error.h"
#include "posenc/relative/term.h"

namespace posenc::inline v0 {

ConstTensorView LoweredTerms::table(std::vector<double> v, std::initializer_list<Index> shape) {
  const std::span<const Index> s(shape.begin(), shape.size());
  Index n = 1;
  for (const Index x : s) n *= x;
  if (n != static_cast<Index>(v.size()))
    refuse("lowered", "a table must fill its shape, size", static_cast<Index>(v.size()));
  values.push_back(std::move(v));
  return tensor(static_cast<const void*>(values.back().data()), DType::f64, s);
}

IndexLine LoweredTerms::line(std::vector<std::int32_t> row, Index lo, std::int32_t axis) {
  if (row.empty()) refuse("lowered", "a line must have at least one row, size", Index{0});
  rows.push_back(std::move(row));
  const std::vector<std::int32_t>& kept = rows.back();
  return {kept.data(), lo, lo + static_cast<Index>(kept.size()) - 1, axis};
}

IndexPair LoweredTerms::pair(std::vector<std::int32_t> row, Index query_classes,
                             Index key_classes) {
  if (query_classes < 1 || key_classes < 1 ||
      static_cast<Index>(row.size()) != query_classes * key_classes)
    refuse("lowered", "a pair must have a row for every two classes, size",
           static_cast<Index>(row.size()));
  rows.push_back(std::move(row));
  IndexPair p;
  p.row = rows.back().data();
  p.query_classes = query_classes;
  p.key_classes = key_classes;
  return p;
}

void check_score_shape(const ScoreShape& s, std::string_view who) {
  if (s.heads < 1 || s.heads > 65536) refuse(who, "heads must lie between 1 and 65536", s.heads);
  if (s.head_dim < 1 || s.head_dim > 65536)
    refuse(who, "head_dim must lie between 1 and 65536", s.head_dim);
  if (s.min_delta > s.max_delta) refuse(who, "min_delta must not be above max_delta", s.min_delta);
}

}  // namespace posenc::v0
