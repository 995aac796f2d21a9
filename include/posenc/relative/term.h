// SPDX-License-Identifier: Apache-2.0
// What a relative or contextual scheme becomes: addends of the attention score (or of the output),
// as data. An engine knows TermKind only; it knows no scheme.
//
//   S_ij = f(scale g_i q_i.k_j m_ij) + sum of terms(i, j)
//   o_i = sum_j P_ij (v_j + C[row(i, j)])
//
// delta = query position - key position, on one axis of the positions of the call.
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/core/heads.h"
#include "posenc/core/parameter.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

// delta -> row of a table: row[clip(delta, lo, hi) - lo], so constant outside [lo, hi] (clip, T5,
// DeBERTa). A negative row gives nothing there (Music Transformer beyond its table). row null: not
// used. Needs integer positions.
struct IndexLine {
  const std::int32_t* row = nullptr;
  Index lo = 0, hi = 0;
  std::int32_t axis = 0;
};

// Row by what query and key ARE: row[query_class * key_classes + key_class]. Segments, modalities,
// class tokens, sentences. The classes come with each call, [B|1, T] of i32.
struct IndexPair {
  ConstTensorView query_class, key_class;
  const std::int32_t* row = nullptr;
  Index query_classes = 0, key_classes = 0;
};

// r = row(i, j) is the sum of the rows of all lines and of the pair of the term: two lines make a
// 2-D window (Swin: y row * width + x row). [H|1, ...]: one entry shares it between the heads.
enum class TermKind : std::uint8_t {
  // S += scale * (table[h, 0] max(delta, 0) + table[h, 1] max(-delta, 0)); table [H|1, 2], past and
  // future. ALiBi. Real positions too
  linear,
  line,  // S += scale * table[h, r];  table [H|1, n]. T5, KERPLE, Sandwich, Swin, CPM-Ant
  // S += scale * (table[b, h, j] + table2[b, h, i]); tables [B|1, H|1, Tk], [B|1, H|1, Tq], either
  // may be empty. Forgetting gates: c_i - c_j
  vectors,
  // S += scale * table[b, i, h, :] . table2[b, j, h, :]; [B|1, Tq, H|1, R], [B|1, Tk, H|1, R]. TUPE
  extra_channels,
  query_bias,  // S += scale * query_bias[h] . k_j;  [H|1, D]. Transformer-XL's u
  // S += scale * (g_i q_i + query_bias[h]) . table[h, r];  table [H|1, n, D]; query_bias may be
  // empty. Shaw, Transformer-XL, XLNet, DeBERTa c2p, SAM
  query_rows,
  key_rows,       // S += scale * k_j . table[h, r];  [H|1, n, D]. DeBERTa p2c, TENER
  value_rows,     // o_i += scale * sum_j P_ij table[h, r];  [H|1, n, Dv]. Shaw
  multiply_line,  // q_i.k_j is multiplied by table[h, r];  [H|1, n]. KERPLE's weight
  // FIRE (arXiv:2310.04418): x = psi(delta) / (psi(max(p_i, L)) + epsilon), psi(y) = ln(|c y| + 1),
  // S += scale * (table2[h, :W] . act(table[0] x + table[1]) + table2[h, W]); table [2, W], table2
  // [H, W + 1], table3 [2] = (c, L); act(y) = y or slope * y below 0. `sign`: psi keeps the sign of
  // delta
  fire,
  // CoPE (arXiv:2405.18719): gate_ij = sigmoid(gate_scale g_i q_i . gate_key_j), p_ij = min(sum of
  // the gates of visible keys t >= j in storage, n - 1), S += scale * (g_i q_i . table[h]) read at
  // p_ij by linear interpolation; table [H|1, n, D]
  cope,
  // DAPE (arXiv:2405.14722, 2410.04798): S += table2 * act(table * [content; sum of the other
  // terms] + b1) + b2, convolutions over the keys of width K (1: version 1; hidden keys are 0
  // there); table [W, 2H or H, K], table2 [H, W, K], table3 [W + H] = (b1, b2). With H channels the
  // content alone goes in. Last of all terms, at most one
  dape,
};
template <>
struct EnumNames<TermKind> {
  static constexpr std::array<std::string_view, 12> value{
      "linear",   "line",       "vectors",       "extra_channels", "query_bias", "query_rows",
      "key_rows", "value_rows", "multiply_line", "fire",           "cope",       "dape"};
};

// One addend. Tables are f64 as lowered; a plan rounds them to its dtype. Several terms of a kind
// may stand together (XLNet, Segatron). `scale` is the term's own: the scale of the call is not
// applied again.
struct Term {
  TermKind kind{};
  std::int32_t axis = 0;  // of the positions: linear and fire
  double scale = 1;
  std::array<IndexLine, 3> lines{};
  IndexPair pair{};
  ConstTensorView table, table2, table3;
  ConstTensorView query_bias;
  ConstHeads gate_key;  // cope; data null: the keys of the call
  double gate_scale = 1, epsilon = 1e-6, slope = 0;
  bool sign = false;
};

// Where the gradients of a term go: f64, of the shapes of its tables, ACCUMULATED. Empty: not
// wanted.
struct TermGradient {
  TensorView table, table2, table3, query_bias;
  Heads gate_key;
};

// What a scheme is told: heads and the distances that occur.
struct ScoreShape {
  Index heads = 0, head_dim = 0, min_delta = 0, max_delta = 0;
};

// Terms and what they point into. Nothing that was added moves; may be moved, not copied.
struct LoweredTerms {
  std::deque<std::vector<double>> values;
  std::deque<std::vector<std::int32_t>> rows;
  std::vector<Term> terms;

  LoweredTerms() = default;
  LoweredTerms(LoweredTerms&&) = default;
  LoweredTerms& operator=(LoweredTerms&&) = default;
  LoweredTerms(const LoweredTerms&) = delete;
  LoweredTerms& operator=(const LoweredTerms&) = delete;

  // Keep the numbers, give the view that a term needs. Throws [lowered] when sizes disagree.
  POSENC_API ConstTensorView table(std::vector<double> v, std::initializer_list<Index> shape);
  POSENC_API IndexLine line(std::vector<std::int32_t> row, Index lo, std::int32_t axis = 0);
  POSENC_API IndexPair pair(std::vector<std::int32_t> row, Index query_classes, Index key_classes);
};

// parameters: names, shapes, published initialisers. lower: parameters -> terms, in O(distances),
// in double. pull_back: its transpose (vector-Jacobian product), accumulating into dp; `g` has an
// entry for each term that lower appended, in order.
template <class S>
concept RelativeScheme = Described<S> &&
    requires(const S& s, const ScoreShape& shape, std::span<const ConstTensorView> p,
             LoweredTerms& out, std::span<const TermGradient> g, std::span<const TensorView> dp) {
  { s.parameters(shape) } -> std::same_as<std::vector<Parameter>>;
  { s.lower(shape, p, out) } -> std::same_as<void>;
  { s.pull_back(shape, p, g, dp) } -> std::same_as<void>;
};

// Throws [who] if heads, head_dim or the distances are invalid.
POSENC_API void check_score_shape(const ScoreShape&, std::string_view who);

}  // namespace posenc::v0
