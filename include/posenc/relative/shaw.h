// SPDX-License-Identifier: Apache-2.0
// Relative vectors by distance. Shaw et al., arXiv:1803.02155, equations 3 and 4:
//   S_ij = s (q_i . (k_j + A_r)),   o_i = sum_j P_ij (v_j + B_r)
//   r = clip(j - i, -left, right) + left           sign = key_minus_query
//   r = clip(i - j, -right, left) + right          sign = query_minus_key
// s is the scale of the content, ScoreShape::scale. Music Transformer (arXiv:1809.04281) and
// NEZHA (arXiv:1909.00204) are the same with other settings. Implementations disagree on: the sign
// (BERT and ESM count query - key), one table for keys and values or two, the clipped or no vector
// beyond the table, a term k_j . A_r besides q_i . A_r and its scale, one table for all heads.
// What computes it is in src/relative/shaw.cpp; docs/relative/shaw.md says who uses what.
#pragma once
#include <optional>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

enum class ShawSign : std::uint8_t { key_minus_query, query_minus_key };
template <>
struct EnumNames<ShawSign> {
  static constexpr std::array<std::string_view, 2> value{"key_minus_query", "query_minus_key"};
};
// A distance beyond the table: the last row, no vector, or an error.
enum class ShawBeyond : std::uint8_t { clip, zero, refuse };
template <>
struct EnumNames<ShawBeyond> {
  static constexpr std::array<std::string_view, 3> value{"clip", "zero", "refuse"};
};
// Vectors that the weights multiply: none, those of a separate table, those of the keys.
enum class ShawValues : std::uint8_t { none, separate, shared };
template <>
struct EnumNames<ShawValues> {
  static constexpr std::array<std::string_view, 3> value{"none", "separate", "shared"};
};
enum class ShawTable : std::uint8_t { learned, sinusoid };
template <>
struct EnumNames<ShawTable> {
  static constexpr std::array<std::string_view, 2> value{"learned", "sinusoid"};
};

struct Shaw {
  static constexpr Card card{"shaw", "Shaw's relative vectors", "arXiv:1803.02155", "eq. 3, 4"};
  Index left = 0, right = 0;
  ShawSign sign = ShawSign::key_minus_query;
  ShawBeyond beyond = ShawBeyond::clip;
  ShawValues values = ShawValues::separate;
  bool query_term = true, key_term = false;
  std::optional<double> key_scale{};
  Index groups = 0;
  ShawTable table = ShawTable::learned;
  std::optional<double> init{};

  Index rows() const noexcept { return left + right + 1; }
  // Row of delta = query - key; -1: none.
  POSENC_API std::int32_t row(Index delta) const noexcept;

  // `table`, or with separate values `table_k` and `table_v`: [rows, channels], with groups
  // [groups, rows, channels]. Of sinusoids none.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  // Settings of programs. The size is the largest distance, of BERT and ESM the number of
  // positions, of Music Transformer the length.
  POSENC_API static std::vector<Preset<Shaw>> presets();

  bool operator==(const Shaw&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("left", s.left,
      Field{.doc = "largest distance to a key before the query",
            .unit = "tokens",
            .min = 0,
            .max = 16777216,
            .required = true});
    v("right", s.right,
      Field{.doc = "largest distance to a key after the query",
            .unit = "tokens",
            .min = 0,
            .max = 16777216});
    v("sign", s.sign, Field{.doc = "distance by which the rows of the table are ordered"});
    v("beyond", s.beyond,
      Field{.doc = "a distance without a row: the last row, nothing, an error"});
    v("values", s.values, Field{.doc = "vectors added to the values"});
    v("query_term", s.query_term, Field{.doc = "q_i . A_r"});
    v("key_term", s.key_term, Field{.doc = "k_j . A_r, of the same table and row"});
    v("key_scale", s.key_scale, Field{.doc = "of the key term; none: the content's"});
    v("groups", s.groups,
      Field{.doc = "number of tables that heads share; 0: one table without this axis",
            .min = 0,
            .max = 65536});
    v("table", s.table,
      Field{.doc = "learned, or row r the sinusoid of position r, which is not learned"});
    v("init", s.init,
      Field{.doc = "initial deviation of the tables; none: Glorot uniform", .min = 0});
  }

 private:
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
