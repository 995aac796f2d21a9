// SPDX-License-Identifier: Apache-2.0
#include "relative/lowering.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/element.h"
#include "core/matmul.h"
#include "core/memory_limit.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {

std::vector<double> transposed_list(const std::vector<double>& v, Index rows, Index columns) {
  std::vector<double> t(v.size());
  for (Index r = 0; r < rows; ++r)
    for (Index c = 0; c < columns; ++c)
      t[static_cast<std::size_t>(c * rows + r)] = v[static_cast<std::size_t>(r * columns + c)];
  return t;
}

namespace {

template <class Move>
void each_of_heads(Index n, Index heads, Index dim, const Move& move) {
  for (Index r = 0; r < n; ++r)
    for (Index h = 0; h < heads; ++h)
      for (Index c = 0; c < dim; ++c)
        move(static_cast<std::size_t>((r * heads + h) * dim + c),
             static_cast<std::size_t>((h * n + r) * dim + c));
}

}  // namespace

std::vector<double> by_head(const std::vector<double>& v, Index n, Index heads, Index dim) {
  std::vector<double> t(v.size());
  each_of_heads(n, heads, dim, [&](std::size_t flat, std::size_t head) { t[head] = v[flat]; });
  return t;
}

std::vector<double> from_heads(const std::vector<double>& v, Index n, Index heads, Index dim) {
  std::vector<double> t(v.size());
  each_of_heads(n, heads, dim, [&](std::size_t flat, std::size_t head) { t[flat] = v[head]; });
  return t;
}

Initial linear_start(Index inputs) {
  const double most = 1 / std::sqrt(static_cast<double>(inputs));
  return {InitialKind::uniform, -most, most};
}

void check_distances(std::string_view who, Index distances, Index numbers_each) {
  if (distances > Index{1} << 31)
    refuse(who, "a table must have at most 2^31 distances", distances);
  check_memory(who, "a table of " + std::to_string(distances) + " distances",
               sizeof(double) * static_cast<std::size_t>(distances) *
                   static_cast<std::size_t>(numbers_each));
}

Index farthest(std::string_view who, const DistanceRange& r, Index numbers_each) {
  const Index n =
      std::max<Index>({r.max, r.min == std::numeric_limits<Index>::min() ? kUnbounded : -r.min, 0});
  check_distances(who, n == kUnbounded ? n : n + 1, numbers_each);
  return n;
}

void check_line_length(std::string_view who, const DistanceRange& r) {
  if (r.max - r.min >= Index{1} << 31)
    refuse(who, "a line must have at most 2^31 distances", r.max - r.min + 1);
  check_memory(who, "a line of " + std::to_string(r.max - r.min + 1) + " distances",
               sizeof(std::int32_t) * static_cast<std::size_t>(r.max - r.min + 1));
}

Term number_term(const ConstTensorView& table, const IndexLine& line, double scale) {
  Term t;
  t.table = table;
  t.lines[0] = line;
  t.scale = scale;
  return t;
}

Term query_term(const ConstTensorView& table, const IndexLine& line, double scale) {
  Term t = number_term(table, line, scale);
  t.query = kContent;
  return t;
}

Term key_term(const ConstTensorView& table, const IndexLine& line, double scale) {
  Term t = number_term(table, line, scale);
  t.key = kContent;
  return t;
}

Term value_term(const ConstTensorView& table, const IndexLine& line) {
  Term t = number_term(table, line, 1);
  t.kind = TermKind::value_rows;
  return t;
}

ConstTensorView one_class(TermStore& store, Index tokens, std::int32_t number) {
  store.rows.emplace_back(static_cast<std::size_t>(std::max<Index>(1, tokens)), number);
  return tensor(static_cast<const void*>(store.rows.back().data()), DType::i32, {1, tokens});
}

std::vector<double> call_values(std::string_view who, const ConstTensorView& v) {
  if (v.rank != 4)
    refuse(who, "q, k and v must be [batch, tokens, heads, channels], rank", Index{v.rank});
  std::vector<double> x;
  x.reserve(static_cast<std::size_t>(v.count()));
  for (Index b = 0; b < v.shape[0]; ++b)
    for (Index t = 0; t < v.shape[1]; ++t)
      for (Index h = 0; h < v.shape[2]; ++h)
        for (Index c = 0; c < v.shape[3]; ++c)
          x.push_back(
              float_element(v.data, v.dtype,
                            b * v.stride[0] + t * v.stride[1] + h * v.stride[2] + c * v.stride[3]));
  return x;
}

std::vector<double> vectors_gradient(std::string_view who, const ConstHeads& g,
                                     const std::vector<Index>& shape) {
  if (g.data == nullptr) return gradient_values(who, ConstTensorView{}, shape);
  const Index sizes[] = {g.batch, g.tokens, g.heads, g.dim};
  const Index strides[] = {g.batch_stride, g.token_stride, g.head_stride, g.dim_stride};
  return gradient_values(who, tensor(g.data, g.dtype, sizes, strides), shape);
}

GradientNumbers::GradientNumbers(std::string_view who, const ConstTensorView& v,
                                 const std::vector<Index>& shape) {
  const bool same = v.rank == static_cast<std::int32_t>(shape.size()) &&
                    std::equal(shape.begin(), shape.end(), v.shape.begin());
  if (same && v.dtype == DType::f64 && v.device == Device::cpu && is_dense(v)) {
    data_ = static_cast<const double*>(v.data);
    return;
  }
  copy_ = gradient_values(who, v, shape);
  data_ = copy_.data();
}

std::vector<double> table_dots(const std::vector<double>& table, Index groups,
                               const std::vector<double>& vector, Index heads, Index n, Index dim) {
  std::vector<double> out(static_cast<std::size_t>(heads * n), 0.0);
  for (Index h = 0; h < heads; ++h)
    add_product({table.data() + (groups == 1 ? 0 : h) * n * dim, n, dim, dim, 1},
                {vector.data() + h * dim, dim, 1, 1, 1}, {out.data() + h * n, 1, 1});
  return out;
}

void pull_table_dots(const std::vector<double>& d, const std::vector<double>& table,
                     const std::vector<double>& vector, Index heads, Index n, Index dim,
                     std::vector<double>& d_table, std::vector<double>& d_vector) {
  for (Index h = 0; h < heads; ++h) {
    add_product({d.data() + h * n, n, 1, 1, 1}, {vector.data() + h * dim, 1, dim, dim, 1},
                {d_table.data() + h * n * dim, dim, 1});
    add_product({d.data() + h * n, 1, n, n, 1}, {table.data() + h * n * dim, n, dim, dim, 1},
                {d_vector.data() + h * dim, dim, 1});
  }
}

}  // namespace posenc::v0::detail
