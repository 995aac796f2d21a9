// SPDX-License-Identifier: Apache-2.0
// How tests write terms down.
#pragma once
#include <cstdint>
#include <vector>

#include "posenc/attention/term.h"

namespace posenc {

// first, first + step, ...
inline std::vector<std::int32_t> iota(std::int32_t n, std::int32_t first = 0,
                                      std::int32_t step = 1) {
  std::vector<std::int32_t> v;
  for (std::int32_t i = 0; i < n; ++i) v.push_back(first + i * step);
  return v;
}
// [rows, columns] -> [columns, rows], dense.
inline std::vector<double> transposed(const std::vector<double>& v, Index rows, Index columns) {
  std::vector<double> r;
  for (Index c = 0; c < columns; ++c)
    for (Index i = 0; i < rows; ++i) r.push_back(v[static_cast<std::size_t>(i * columns + c)]);
  return r;
}
inline std::vector<double> dense(const ConstTensorView& v) {  // of a dense f64 view
  const double* x = data_of<double>(v);
  return {x, x + v.count()};
}

// Rows for all heads, [n, d], or for each group of heads, [groups, n, d], as a table.
inline ConstTensorView rows(const ConstTensorView& v) {
  ConstTensorView r = v;
  const bool grouped = v.rank >= 3;
  const auto last = static_cast<std::size_t>(v.rank - 1);
  r.rank = 4;
  r.shape = {1, grouped ? v.shape[last - 2] : 1, v.shape[last - 1], v.shape[last], 0};
  r.stride = {0, grouped ? v.stride[last - 2] : 0, v.stride[last - 1], v.stride[last], 0};
  return r;
}
// One vector for each head, [H, D], for all tokens.
inline ConstHeads vector_of_head(const ConstTensorView& v) {
  ConstHeads h;
  h.data = v.data;
  h.dtype = v.dtype;
  h.tokens = 1;
  h.heads = v.shape[0];
  h.dim = v.shape[1];
  h.head_stride = v.stride[0];
  h.dim_stride = v.stride[1];
  return h;
}

inline ProductTerm numbers_term(const ConstTensorView& table, const IndexLine& line,
                                double scale = 1) {
  ProductTerm t;
  t.scale = scale;
  t.lines[0] = line;
  t.table = table;
  return t;
}
inline ProductTerm query_rows(const ConstTensorView& table, const IndexLine& line, double scale) {
  ProductTerm t = numbers_term(table, line, scale);
  t.query = kContent;
  return t;
}
inline ProductTerm key_rows(const ConstTensorView& table, const IndexLine& line, double scale) {
  ProductTerm t = numbers_term(table, line, scale);
  t.key = kContent;
  return t;
}
// u_h . k_j
inline ProductTerm vector_key(const ConstTensorView& u, double scale) {
  ProductTerm t;
  t.scale = scale;
  t.query.given = vector_of_head(u);
  t.key = kContent;
  return t;
}
// v_h . rows
inline ProductTerm vector_rows(const ConstTensorView& v, const ConstTensorView& table,
                               const IndexLine& line, double scale) {
  ProductTerm t = numbers_term(table, line, scale);
  t.query.given = vector_of_head(v);
  return t;
}
inline ValueRowsTerm value_rows(const ConstTensorView& table, const IndexLine& line) {
  ValueRowsTerm t;
  t.lines[0] = line;
  t.table = table;
  return t;
}

}  // namespace posenc
