// SPDX-License-Identifier: Apache-2.0
// What several schemes do when they lower: lines over distances, tables by head, gradients as dense
// lists.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0::detail {

// [rows, columns] -> [columns, rows].
std::vector<double> transposed_list(const std::vector<double>&, Index rows, Index columns);
// [n, heads * dim] -> [heads, n, dim], and the way back.
std::vector<double> by_head(const std::vector<double>&, Index n, Index heads, Index dim);
std::vector<double> from_heads(const std::vector<double>&, Index n, Index heads, Index dim);

// How PyTorch starts a linear layer with so many inputs: U(-1/sqrt(n), 1/sqrt(n)).
Initial linear_start(Index inputs);

// Ranges of fewer distances than this are lowered whole: their lines are looked up by a subtraction.
inline constexpr Index kWholeRange = 65536;
// What a line needs of the distances of a call: beyond lo and hi it is constant.
DistanceRange clipped(const DistanceRange& r, Index lo, Index hi);
// Of each distance both signs; of each the size, and 0.
DistanceRange mirrored(const DistanceRange&);
DistanceRange magnitudes(const DistanceRange&);

// The distances of a range that a table has a row for, ascending: all of them, or those of its runs.
class Distances {
 public:
  // Throws OutOfMemory before anything is filled: so many numbers for each are more than the machine
  // holds; [who]: more than 2^31 of them.
  Distances(std::string_view who, const DistanceRange&, Index numbers_each);
  Index count() const noexcept { return count_; }
  // The row of a distance that occurs.
  Index row(Index delta) const noexcept;
  // fn(delta) by ascending distance.
  template <class F>
  void each(const F& fn) const {
    for (const DistanceRun& run : runs_)
      for (Index delta = run.first;; ++delta) {
        fn(delta);
        if (delta == run.last) break;
      }
  }
  std::vector<Index> list() const;

 private:
  std::vector<DistanceRun> runs_;
  std::vector<Index> first_rows_;
  Index count_ = 0;
};
// Throws OutOfMemory before anything is filled: so many numbers for each distance are more than the
// machine holds; [who]: 2^31 distances or more.
void check_distances(std::string_view who, Index distances, Index numbers_each);
// A line over every distance of the range that occurs, row(delta) each; -1 voids the term. Throws
// [who]: more than 2^31 distances.
template <class Row>
IndexLine line_over(std::string_view who, TermStore& store, const DistanceRange& r, const Row& row,
                    std::int32_t axis = 0) {
  const Distances all(who, r, 1);
  std::vector<std::int32_t> rows;
  rows.reserve(static_cast<std::size_t>(all.count()));
  all.each([&](Index delta) { rows.push_back(static_cast<std::int32_t>(row(delta))); });
  if (r.runs.empty()) return store.line(std::move(rows), r.min, axis);
  // Each distance but the first is an edge: a distance that occurs finds its own row.
  store.has_gaps = true;
  std::vector<double> edges;
  edges.reserve(rows.size());
  all.each([&](Index delta) {
    if (delta != r.min) edges.push_back(static_cast<double>(delta));
  });
  return store.line(std::move(rows), std::move(edges), axis);
}

// A number, a row that meets q, one that meets k, one that is added to v.
ProductTerm number_term(const ConstTensorView& table, const IndexLine&, double scale);
ProductTerm query_term(const ConstTensorView& table, const IndexLine&, double scale);
ProductTerm key_term(const ConstTensorView& table, const IndexLine&, double scale);
ValueRowsTerm value_term(const ConstTensorView& table, const IndexLine&);
// The classes of a call, for every pair of the terms.
void bind_pairs(std::span<Term>, const ConstTensorView& query_class,
                const ConstTensorView& key_class);

// [1, tokens]: every token is of this class. It has memory also where there is no token.
ConstTensorView one_class(TermStore& store, Index tokens, std::int32_t number);
// [rows, tokens] of i64 or i32, whatever its strides. Throws [who]: another rank or type.
std::vector<Index> whole_numbers(std::string_view who, const ConstTensorView& v);
// q, k or v of a call, [batch, tokens, heads, channels] of any float type.
std::vector<double> call_values(std::string_view who, const ConstTensorView& v);
// The gradient of given vectors, dense [batch, tokens, heads, channels]; zeros where it is empty.
std::vector<double> vectors_gradient(std::string_view who, const ConstHeads&,
                                     const std::vector<Index>& shape);

// The numbers of a gradient in g as gradient_values gives them; dense f64 is read where it lies.
class GradientNumbers {
 public:
  GradientNumbers(std::string_view who, const ConstTensorView& v, const std::vector<Index>& shape);
  const double* data() const noexcept { return data_; }

 private:
  std::vector<double> copy_;
  const double* data_;
};

// Of each head: out [heads, n] = table [groups, n, dim] . vector [heads, dim]; groups is 1 or heads.
std::vector<double> table_dots(const std::vector<double>& table, Index groups,
                               const std::vector<double>& vector, Index heads, Index n, Index dim);
// Its transpose, added to both; table [heads, n, dim].
void pull_table_dots(const std::vector<double>& d, const std::vector<double>& table,
                     const std::vector<double>& vector, Index heads, Index n, Index dim,
                     std::vector<double>& d_table, std::vector<double>& d_vector);

}  // namespace posenc::v0::detail
