// SPDX-License-Identifier: Apache-2.0
#include "relative/lowering.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/element.h"
#include "core/memory_limit.h"
#include "kernels/matmul.h"
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

namespace {

// Runs in any order, put together where they meet; all of the range where few are left out.
DistanceRange range_of_runs(std::vector<DistanceRun> runs) {
  std::sort(runs.begin(), runs.end(),
            [](const DistanceRun& x, const DistanceRun& y) { return x.first < y.first; });
  DistanceRange r;
  for (const DistanceRun& run : runs)
    if (!r.runs.empty() && run.first <= r.runs.back().last + 1)
      r.runs.back().last = std::max(r.runs.back().last, run.last);
    else
      r.runs.push_back(run);
  r.min = r.runs.front().first, r.max = r.runs.back().last;
  Index span = 0;
  if (r.runs.size() == 1 || (!__builtin_sub_overflow(r.max, r.min, &span) && span < kWholeRange))
    r.runs.clear();
  return r;
}

}  // namespace

DistanceRange clipped(const DistanceRange& r, Index lo, Index hi) {
  if (r.runs.empty()) return {std::clamp(r.min, lo, hi), std::clamp(r.max, lo, hi)};
  std::vector<DistanceRun> runs;
  for (const DistanceRun& run : r.runs)
    runs.push_back({std::clamp(run.first, lo, hi), std::clamp(run.last, lo, hi)});
  return range_of_runs(std::move(runs));
}

namespace {

// The runs of a range, of which a whole one is one; no distance is -2^63, whose size is no number.
std::vector<DistanceRun> all_runs(const DistanceRange& r) {
  if (!r.runs.empty()) return r.runs;
  return {{std::max(r.min, -kUnbounded), std::max(r.max, -kUnbounded)}};
}

}  // namespace

DistanceRange mirrored(const DistanceRange& r) {
  std::vector<DistanceRun> runs = all_runs(r);
  for (const DistanceRun& run : all_runs(r)) runs.push_back({-run.last, -run.first});
  return range_of_runs(std::move(runs));
}

DistanceRange magnitudes(const DistanceRange& r) {
  std::vector<DistanceRun> runs{{0, 0}};
  for (const DistanceRun& run : all_runs(r)) {
    if (run.last >= 0) runs.push_back({std::max<Index>(run.first, 0), run.last});
    if (run.first < 0) runs.push_back({std::max<Index>(-run.last, 0), -run.first});
  }
  return range_of_runs(std::move(runs));
}

Distances::Distances(std::string_view who, const DistanceRange& r, Index numbers_each)
    : runs_(r.runs) {
  if (runs_.empty()) runs_.push_back({r.min, r.max});
  for (const DistanceRun& run : runs_) {
    first_rows_.push_back(count_);
    Index n = 0;
    if (__builtin_sub_overflow(run.last, run.first, &n) || n >= Index{1} << 31) n = Index{1} << 31;
    count_ = std::min(count_ + n + 1, Index{1} << 32);
  }
  check_distances(who, count_, numbers_each);
}

Index Distances::row(Index delta) const noexcept {
  const auto next = std::upper_bound(runs_.begin(), runs_.end(), delta,
                                     [](Index x, const DistanceRun& run) { return x < run.first; });
  const auto n = static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, next - runs_.begin() - 1));
  return first_rows_[n] + (delta - runs_[n].first);
}

std::vector<Index> Distances::list() const {
  std::vector<Index> all;
  all.reserve(static_cast<std::size_t>(count_));
  each([&](Index delta) { all.push_back(delta); });
  return all;
}

ProductTerm number_term(const ConstTensorView& table, const IndexLine& line, double scale) {
  ProductTerm t;
  t.table = table;
  t.lines[0] = line;
  t.scale = scale;
  return t;
}

ProductTerm query_term(const ConstTensorView& table, const IndexLine& line, double scale) {
  ProductTerm t = number_term(table, line, scale);
  t.query = kContent;
  return t;
}

ProductTerm key_term(const ConstTensorView& table, const IndexLine& line, double scale) {
  ProductTerm t = number_term(table, line, scale);
  t.key = kContent;
  return t;
}

ValueRowsTerm value_term(const ConstTensorView& table, const IndexLine& line) {
  ValueRowsTerm t;
  t.table = table;
  t.lines[0] = line;
  return t;
}

void bind_pairs(std::span<Term> terms, const ConstTensorView& query_class,
                const ConstTensorView& key_class) {
  for (Term& t : terms) {
    PickedRows* rows = picked_rows(t);
    if (rows == nullptr || rows->pair.row == nullptr) continue;
    rows->pair.query_class = query_class;
    rows->pair.key_class = key_class;
  }
}

ConstTensorView one_class(TermStore& store, Index tokens, std::int32_t number) {
  store.rows.emplace_back(static_cast<std::size_t>(std::max<Index>(1, tokens)), number);
  return tensor(static_cast<const void*>(store.rows.back().data()), DType::i32, {1, tokens});
}

std::vector<Index> whole_numbers(std::string_view who, const ConstTensorView& v) {
  if (v.rank != 2 || (v.dtype != DType::i64 && v.dtype != DType::i32))
    refuse(who, "numbers of tokens must be whole, [batch, tokens] of i64 or i32",
           dtype_name(v.dtype));
  std::vector<Index> all;
  all.reserve(static_cast<std::size_t>(v.count()));
  for (Index b = 0; b < v.shape[0]; ++b)
    for (Index t = 0; t < v.shape[1]; ++t) {
      const Index at = b * v.stride[0] + t * v.stride[1];
      all.push_back(v.dtype == DType::i64 ? static_cast<const std::int64_t*>(v.data)[at]
                                          : Index{static_cast<const std::int32_t*>(v.data)[at]});
    }
  return all;
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
