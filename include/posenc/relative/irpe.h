// SPDX-License-Identifier: Apache-2.0
// Image relative position encoding. Wu et al., arXiv:2107.14222, equations 11 to 16 with the index
// functions 18 to 24, by the authors' code (Cream, iRPE):
//   S_ij += T[I(i - j)]                  meets = nothing (their bias mode)
//   S_ij += s q_i . T[I(i - j)]          meets = query   (their "rpe on keys")
//   S_ij += s k_j . T[I(j - i)]          meets = key     (their "rpe on queries", transposed)
//   o_i  += sum_j P_ij T[I(i - j)]       meets = value
// s is the scale of the content. Axis 0 of the positions is the row y, axis 1 the column x. With
//   g(x) = x for |x| <= alpha,
//          sign(x) trunc(min(beta, round(alpha + ln(|x| / alpha) / ln(gamma / alpha) (beta - alpha))))
// and b = floor(beta), the index of an offset (dy, dx) is
//   euclidean  g(round(sqrt(dy^2 + dx^2))) + b
//   quantised  g(dy^2 + dx^2) + b
//   product    (g(dy) + b) (2 b + 1) + g(dx) + b
//   cross      two tables: g(dy) + b of one, g(dx) + b of the other, summed
// Halves are rounded to the nearest even number; a whole x at or below alpha is unchanged. Offsets beyond
// height and width are clipped. class_token: pairs with a token that the
// call's query_class or key_class marks with 1 have a row of their own, the last.
// What computes it is in src/relative/irpe.cpp.
#pragma once
#include <vector>

#include "posenc/relative/indexed.h"

namespace posenc::inline v0 {

enum class IrpeMethod : std::uint8_t { euclidean, quantised, product, cross };
template <>
struct EnumNames<IrpeMethod> {
  static constexpr std::array<std::string_view, 4> value{"euclidean", "quantised", "product",
                                                         "cross"};
};

struct Irpe {
  static constexpr Card card{"irpe", "image relative position encoding", "arXiv:2107.14222",
                             "eq. 11 to 24"};
  IrpeMethod method = IrpeMethod::product;
  IndexedMeets meets = IndexedMeets::query;
  double alpha = 1.9, beta = 3.8, gamma = 15.2;
  Index height = 14, width = 14;
  bool shared = true;
  bool class_token = false;

  // g of a whole number.
  POSENC_API Index piecewise(Index x) const;
  // Rows of a table without that of class tokens.
  Index buckets() const noexcept;
  // I of an offset query - key; of the method cross that of dy.
  POSENC_API Index bucket(Index dy, Index dx) const;

  // table, of the method cross table_rows and table_cols: [heads, rows] for meets = nothing,
  // [heads, channels, rows] for q or k, [heads, rows, channels] for values; shared: 1 instead of
  // heads. Zeros.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Irpe&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("method", s.method, Field{.doc = "the index of an offset"});
    v("meets", s.meets, Field{.doc = "what a row of the table is multiplied with"});
    v("alpha", s.alpha, Field{.doc = "offsets up to here have their own row", .min = 0});
    v("beta", s.beta, Field{.doc = "the largest index, truncated to a whole number", .min = 0});
    v("gamma", s.gamma, Field{.doc = "the offset that reaches beta", .min = 0});
    v("height", s.height, Field{.doc = "rows of the image", .min = 1, .max = 4096});
    v("width", s.width, Field{.doc = "columns of the image", .min = 1, .max = 4096});
    v("shared", s.shared, Field{.doc = "one table for all heads"});
    v("class_token", s.class_token, Field{.doc = "a last row for pairs with a class token"});
  }

 private:
  struct Tables;
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
