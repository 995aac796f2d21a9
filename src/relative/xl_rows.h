// SPDX-License-Identifier: Apache-2.0
// What Transformer-XL and its relatives share: sinusoids of distances, projected for each head.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0::detail {

enum class XlLayout : std::uint8_t { halves, interleaved };

// [sin(delta w_m)], [cos(delta w_m)], halves or interleaved; w_m = base^(-2m / width), or with `t2t`
// base^(-m / (width / 2 - 1)).
std::vector<double> xl_sinusoid(Index delta, Index width, double base, XlLayout layout,
                                bool t2t = false);

// A row for every distance of the range.
std::vector<double> xl_sinusoids(const DistanceRange& r, Index width, double base, XlLayout layout,
                                 bool t2t = false);

// Of Glorot's uniform law.
Initial xl_glorot(Index rows, Index columns);

// Throws [who]: a width that is not positive and even, a base that is not finite and positive.
void xl_check_sinusoid(const char* who, const char* field, Index width, double base);

// W [heads head_dim, width] as a linear layer keeps it, or, in_out, [width, heads, head_dim].
struct XlProjection {
  Index heads = 0, head_dim = 0, width = 0;
  bool in_out = false;

  // Of R [n, width]: R W, [heads, n, head_dim].
  std::vector<double> table(const std::vector<double>& r, Index n,
                            const std::vector<double>& w) const;
  // The gradient of W.
  std::vector<double> weight_gradient(const std::vector<double>& r, Index n,
                                      const std::vector<double>& d_table) const;
  // The gradient of R.
  std::vector<double> row_gradient(const std::vector<double>& w, Index n,
                                   const std::vector<double>& d_table) const;
};

// The score of Transformer-XL beside q.k: scale (u.k_j + q_i.t_r + v.t_r), r the row of the
// distance, t [groups, n, head_dim] of 1 or `heads` groups; u and v [heads, head_dim].
struct XlScore {
  const char* who;
  const ScoreShape& shape;
  double scale;
  Index groups, n;

  // Adds the three terms; the row is that of the line or of the pair. The table as they have it.
  ConstTensorView add(std::vector<double> table, std::vector<double> u,
                      const std::vector<double>& v, const IndexLine& line, LoweredTerms& out,
                      const IndexPair& pair = {}) const;
  // From the gradients of the three terms, which are the first ones of g.
  struct Gradient {
    std::vector<double> table, u, v;
  };
  Gradient pull_back(const LoweredGradient& g, const std::vector<double>& table,
                     const std::vector<double>& v) const;
};

}  // namespace posenc::v0::detail
