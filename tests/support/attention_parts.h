// SPDX-License-Identifier: Apache-2.0
// Parts of the attention reference: elements, visibility, one function a term.
#pragma once
#include <initializer_list>
#include <vector>

#include "posenc/attention/attention.h"

namespace posenc::support {

double get(const ConstHeads&, Index b, Index t, Index h, Index d);
void put(const Heads&, Index b, Index t, Index h, Index d, double x);
void add(const Heads&, Index b, Index t, Index h, Index d, double x);  // null data: nothing
// Sizes of 1 are broadcast. An empty view is `none`.
double get(const ConstTensorView&, std::initializer_list<Index> at, double none = 0);
void put(const TensorView&, std::initializer_list<Index> at, double x);
void add(const TensorView&, std::initializer_list<Index> at, double x);  // empty: nothing
// The last axes of [b, h, i, j], as many as the view has.
double get_pair(const ConstTensorView&, Index b, Index h, Index i, Index j, double none);
void add_pair(const TensorView&, Index b, Index h, Index i, Index j, double x);

struct Sizes {
  explicit Sizes(const AttentionArgs&);
  Index B, H, Q, K, D, V, group;
  std::size_t pair(Index b, Index h, Index i, Index j) const {
    return static_cast<std::size_t>(((b * H + h) * Q + i) * K + j);
  }
};

bool visible(const AttentionArgs&, Index b, Index h, Index i, Index j);
// The q and k of the pair: those of the region that holds it (its number), else of the call (-1).
int region_of(const AttentionArgs&, Index b, Index i, Index j);
// Row of a term's table, or -1.
Index row_of(const AttentionArgs&, const Term&, Index b, Index i, Index j);

// Terms of row (b, h, i), all but value_rows, multiply_line and dape: added to sum[K].
void add_term(const AttentionArgs&, const Term&, Index b, Index h, Index i,
              std::vector<double>& sum);
// The transpose, from d[K].
void pull_term(const AttentionArgs&, const Term&, const TermGradient*, const AttentionGradients&,
               Index b, Index h, Index i, const std::vector<double>& d);

// DAPE of row (b, i): content and sum [H][K] -> f [H][K]; hidden[H][K] true where hidden.
using RowOfHeads = std::vector<std::vector<double>>;
RowOfHeads dape(const Term&, const Sizes&, const RowOfHeads& content, const RowOfHeads& sum,
                const std::vector<std::vector<bool>>& hidden);
void pull_dape(const Term&, const Sizes&, const TermGradient*, const RowOfHeads& content,
               const RowOfHeads& sum, const std::vector<std::vector<bool>>& hidden,
               const RowOfHeads& d_f, RowOfHeads& d_content, RowOfHeads& d_sum);

}  // namespace posenc::support
