// SPDX-License-Identifier: Apache-2.0
// Contextual position encoding (CoPE). Golovneva et al., arXiv:2405.18719, equations (3) to (8):
//   g_ij = sigma(s q_i.y_j),  p_ij = min(sum of g_it over visible t from j on, positions - 1)
//   c_ij = (1 - w) q_i.e[floor p] + w q_i.e[ceil p],  w = p - floor p
//   S_ij = s (q_i.k_j + c_ij)   `both`, the authors' default
//   S_ij = s q_i.k_j + c_ij     `content`: the paper's listing, --cope-nodiv, x-transformers, DAPE
// The two differ by a factor of sqrt(head_dim) on c. The sum includes the query's own key, so the
// position of that key is not 0. y is k, other keys (--cope-sep-key), or v (--cope-val-gates).
// e is shared by all heads. It starts at zeros, where gates have no gradient yet. Where p is
// clipped, gates have no gradient. Defined for causal masks. x-transformers has two options:
//   soft_onehot    c_ij = sum_m w_m q_i.e[m], w = softmax(-|p_ij - m| / 0.05): `spread`
//   talking_heads  g_ij = sigma(sum_h' W_hh' s q_ih'.k_jh'): gates = mixed
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

enum class CopeScaling : std::uint8_t { both, content };
template <>
struct EnumNames<CopeScaling> {
  static constexpr std::array<std::string_view, 2> value{"both", "content"};
};
// mixed: the products of all heads, through a matrix [heads, heads]. The q and k there are those of
// the call before any stage (norms, rotation).
enum class CopeGates : std::uint8_t { keys, separate, values, mixed };
template <>
struct EnumNames<CopeGates> {
  static constexpr std::array<std::string_view, 4> value{"keys", "separate", "values", "mixed"};
};
// How models store e: columns [1, head_dim, positions] (the authors), rows [positions, head_dim]
// (x-transformers).
enum class CopeTable : std::uint8_t { columns, rows };
template <>
struct EnumNames<CopeTable> {
  static constexpr std::array<std::string_view, 2> value{"columns", "rows"};
};

struct Cope {
  static constexpr Card card{"cope", "contextual position encoding", "arXiv:2405.18719",
                             "eq. (3)-(8)"};
  Index positions = 64;
  CopeScaling scaling = CopeScaling::both;
  CopeGates gates = CopeGates::keys;
  CopeTable table = CopeTable::columns;
  double spread = 0;

  // pos_emb, zeros; of mixed gates talking_heads [heads, heads], as a linear layer starts.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  // separate: gate_key [batch, keys, heads, head_dim]; values: the call's v; mixed: q and k.
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Cope&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("positions", s.positions,
      Field{.doc = "rows of the table; larger sums of gates read the last row",
            .min = 1,
            .max = 1e6});
    v("scaling", s.scaling, Field{.doc = "what the scale of the content multiplies"});
    v("gates", s.gates, Field{.doc = "what is multiplied with q in a gate"});
    v("table", s.table, Field{.doc = "layout of pos_emb"});
    v("spread", s.spread,
      Field{.doc = "all rows are read, by softmax(-|p - m| / spread); 0: the two around p",
            .min = 0});
  }
};

}  // namespace posenc::v0
