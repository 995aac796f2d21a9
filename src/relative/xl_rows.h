// SPDX-License-Identifier: Apache-2.0
// What Transformer-XL and its relatives share: rows by distance, projected for each head, and the
// numbers that a bias makes of them.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0::detail {

enum class XlLayout : std::uint8_t { halves, interleaved };

// [sin(delta w_m)], [cos(delta w_m)], halves or interleaved; w_m = base^(-2m / width), or with `t2t`
// base^(-m / (width / 2 - 1)).
std::vector<double> xl_sinusoid(Index delta, Index width, double base, XlLayout layout,
                                bool t2t = false);

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

// b_h . t_r for every head and row, [heads, n]. bias [heads, head_dim], table [groups, n,
// head_dim], groups 1 or heads.
std::vector<double> xl_numbers(const ScoreShape& s, const std::vector<double>& bias,
                               const std::vector<double>& table, Index groups, Index n);
// Adds to d_table; the gradient of bias.
std::vector<double> xl_numbers_back(const ScoreShape& s, const std::vector<double>& d_numbers,
                                    const std::vector<double>& bias,
                                    const std::vector<double>& table, Index groups, Index n,
                                    std::vector<double>& d_table);

// The gradient of a factor of one token for all, [heads, head_dim]; zeros where it is not given.
std::vector<double> xl_vector_gradient(const char* who, const Heads& g, const ScoreShape& s);

// u.k_j, the term; the rows of a table for every query; numbers by the row.
Term xl_key_term(const ScoreShape& s, std::vector<double> u, LoweredTerms& out);
Term xl_query_term(const ScoreShape& s, const ConstTensorView& table, const IndexLine& line);
Term xl_number_term(const ScoreShape& s, const ConstTensorView& numbers, const IndexLine& line);

}  // namespace posenc::v0::detail
