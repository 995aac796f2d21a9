// SPDX-License-Identifier: Apache-2.0
// What Transformer-XL and its relatives share: sinusoids of distances, projected for each head (relative/layers/linear.h).
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"
#include "relative/layers/linear.h"
#include "relative/term_names.h"

namespace posenc::inline v0::detail {

enum class XlLayout : std::uint8_t { halves, interleaved };

// [sin(delta w_m)], [cos(delta w_m)], halves or interleaved; w_m = base^(-2m / width), or with `t2t`
// base^(-m / (width / 2 - 1)).
std::vector<double> xl_sinusoid(Index delta, Index width, double base, XlLayout layout,
                                bool t2t = false);

// A row for each distance, within 2.3e-16 of the sines of these w_m.
std::vector<double> xl_sinusoids(const DistanceRange& r, Index width, double base, XlLayout layout,
                                 bool t2t = false);
std::vector<double> xl_sinusoids_at(const std::vector<Index>& distances, Index width, double base,
                                    XlLayout layout, bool t2t = false);
// The same block by block.
RowBlock xl_row_blocks_at(std::vector<Index> distances, Index width, double base, XlLayout layout,
                          bool t2t = false);
RowBlock xl_row_blocks(const DistanceRange& r, Index width, double base, XlLayout layout);

// Of Glorot's uniform law.
Initial xl_glorot(Index rows, Index columns);

// Throws [who]: a width that is not positive and even, a base that is not finite and positive.
void xl_check_sinusoid(std::string_view who, const char* field, Index width, double base);

// The names of the terms that XlScore adds, u.k, q.t and v.t, at the front of a scheme's list.
inline constexpr TermName kXlKeys{"keys"}, kXlRows{"rows"}, kXlNumbers{"numbers"};

// The score of Transformer-XL beside q.k: scale (u.k_j + q_i.t_r + v.t_r), r the row of the
// distance, t [groups, n, head_dim] of 1 or `heads` groups; u and v [heads, head_dim].
struct XlScore {
  std::string_view who;
  const ScoreShape& shape;
  double scale;
  Index groups, n;
  double vector_scale = scale;  // of the terms of u and v

  // Adds the three terms; the row is that of the line or of the pair. The table as they have it.
  ConstTensorView add(std::vector<double> table, std::vector<double> u,
                      const std::vector<double>& v, const IndexLine& line, LoweredTerms& out,
                      const IndexPair& pair = {}) const;
  TermNames terms() const { return {who, {kXlKeys, kXlRows, kXlNumbers}}; }
  // From the gradients of the three terms, which are the first ones of g; the table is R W.
  struct Gradient {
    std::vector<double> w, u, v, rows;  // rows: of R, where they are wanted
  };
  Gradient pull_back(const LoweredGradient& g, const HeadProjection& to_heads, const RowBlock& r,
                     const std::vector<double>& w, const std::vector<double>& v,
                     bool wants_rows = false) const;
};

}  // namespace posenc::v0::detail
