// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/aligned_rows.h"

#include <vector>

#include "absolute/rows.h"
#include "core/element.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kAlignedRows = "aligned_rows";

// The rows that token t of row b is aligned to.
struct Alignment {
  ConstTensorView v;
  Index batch = 1, tokens = 0, entries = 0, rows = 0;

  Alignment(const ConstTensorView& given, const ConstTokenView& y, Index n) : v(given), rows(n) {
    if ((v.rank != 2 && v.rank != 3) || (v.dtype != DType::i64 && v.dtype != DType::i32))
      detail::refuse_shape(kAlignedRows, "alignment", "must be [t, k] or [b, t, k] of i64 or i32",
                           v);
    const auto last = static_cast<std::size_t>(v.rank - 1);
    entries = v.shape[last];
    tokens = v.shape[last - 1];
    if (v.rank == 3) batch = v.shape[0];
    if (batch != y.batch || tokens != y.tokens)
      refuse(kAlignedRows, "alignment and y must have the same tokens", tokens);
    for (Index b = 0; b < batch; ++b)
      for (Index t = 0; t < tokens; ++t)
        for (const Index row : of(b, t))
          if (row >= rows) refuse(kAlignedRows, "an entry must have a row", row);
  }
  std::vector<Index> of(Index b, Index t) const {
    const auto last = static_cast<std::size_t>(v.rank - 1);
    const Index from = (v.rank == 3 ? b * v.stride[0] : 0) + t * v.stride[last - 1];
    std::vector<Index> out;
    for (Index k = 0; k < entries; ++k) {
      const Index row = detail::integer_element(v.data, v.dtype, from + k * v.stride[last]);
      if (row >= 0) out.push_back(row);
    }
    return out;
  }
};

}  // namespace

void aligned_rows(const ConstTensorView& table, const ConstTensorView& alignment,
                  const TensorView& y) {
  const ConstTokenView from = tokens_of(table, "table");
  const TokenView to = tokens_of(y, "y");
  if (table.rank != 2 || from.width != to.width || from.dtype != to.dtype)
    detail::refuse_shape(
        kAlignedRows, "y",
        "must be of the width and dtype of a table [n, c], here " + detail::shape_text(table), y);
  const Alignment a(alignment, to, from.tokens);
  detail::check_outputs(
      kAlignedRows, {{"y", detail::memory_of(y)}}, {},
      {{"the table", detail::memory_of(table)}, {"alignment", detail::memory_of(alignment)}});
  for (Index b = 0; b < to.batch; ++b)
    for (Index t = 0; t < to.tokens; ++t) {
      const std::vector<Index> rows = a.of(b, t);
      for (Index c = 0; c < to.width; ++c) {
        double sum = 0;
        for (const Index row : rows) sum += from.get(0, row, c);
        to.put(b, t, c, rows.empty() ? 0 : sum / static_cast<double>(rows.size()));
      }
    }
}

void aligned_rows_gradient(const ConstTensorView& d_y, const ConstTensorView& alignment,
                           const TensorView& d_table) {
  const ConstTokenView from = tokens_of(d_y, "d_y");
  const TokenView to = tokens_of(d_table, "d_table");
  if (d_table.rank != 2 || from.width != to.width)
    detail::refuse_shape(kAlignedRows, "d_table", "must be [n, " + std::to_string(from.width) + "]",
                         d_table);
  const Alignment a(alignment, from, to.tokens);
  detail::check_outputs(
      kAlignedRows, {{"d_table", detail::memory_of(d_table)}}, {},
      {{"d_y", detail::memory_of(d_y)}, {"alignment", detail::memory_of(alignment)}});
  for (Index b = 0; b < from.batch; ++b)
    for (Index t = 0; t < from.tokens; ++t) {
      const std::vector<Index> rows = a.of(b, t);
      for (const Index row : rows)
        for (Index c = 0; c < to.width; ++c)
          to.put(0, row, c,
                 to.get(0, row, c) + from.get(b, t, c) / static_cast<double>(rows.size()));
    }
}

}  // namespace posenc::v0
