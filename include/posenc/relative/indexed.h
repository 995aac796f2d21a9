// SPDX-License-Identifier: Apache-2.0
// A learned table and an index matrix from the call, for any index that a program computes. Image RPE,
// Wu et al., arXiv:2107.14222, equations 11 to 16, with its buckets as the index:
//   meets = nothing   S_ij += scale T[index_ij]           one number
//   meets = query     S_ij += scale q_i . T[index_ij]
//   meets = key       S_ij += scale k_j . T[index_ij]     iRPE's index of it is transposed: [j, i]
//   meets = value     o_i += scale sum_j P_ij T[index_ij]
// scale: of the term, by default 1; content_scale uses the content's. A negative index means no row. The
// matrix needs memory for queries times keys.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

enum class IndexedMeets : std::uint8_t { nothing, query, key, value };
template <>
struct EnumNames<IndexedMeets> {
  static constexpr std::array<std::string_view, 4> value{"nothing", "query", "key", "value"};
};
// [groups, rows, channels], [groups, channels, rows]; of numbers [groups, rows], [rows, groups].
enum class IndexedTable : std::uint8_t { rows, channels };
template <>
struct EnumNames<IndexedTable> {
  static constexpr std::array<std::string_view, 2> value{"rows", "channels"};
};

struct Indexed {
  static constexpr Card card{"indexed", "learned table with an index matrix", "arXiv:2107.14222",
                             "eq. 11 to 16"};
  Index rows = 0;
  IndexedMeets meets = IndexedMeets::nothing;
  Index groups = 0;
  IndexedTable table = IndexedTable::rows;
  bool content_scale = false;
  double scale = 1;
  bool key_first = false;

  // table, truncated normal of deviation 0.02.
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

  bool operator==(const Indexed&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("rows", s.rows, Field{.doc = "rows of the table", .min = 1, .max = 1e9, .required = true});
    v("meets", s.meets, Field{.doc = "what a row of the table is multiplied with"});
    v("groups", s.groups,
      Field{.doc = "number of tables that heads share; 0: one for each head",
            .min = 0,
            .max = 65536,
            .from = "heads"});
    v("table", s.table,
      Field{.doc = "order of the axes of the table; for numbers, channels means [rows, groups]"});
    v("content_scale", s.content_scale, Field{.doc = "multiply the term by the scale of q.k"});
    v("scale", s.scale, Field{.doc = "multiplies the term"});
    v("key_first", s.key_first, Field{.doc = "the index is [keys, queries]"});
  }

 private:
  Index tables(const ScoreShape& s) const noexcept { return groups == 0 ? s.heads : groups; }
  Index channels(const ScoreShape& s) const noexcept;
  std::vector<double> moved(const ScoreShape& s, std::vector<double>, bool back) const;
};

}  // namespace posenc::v0
