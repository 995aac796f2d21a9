// SPDX-License-Identifier: Apache-2.0
// What a position scheme adds to attention, as data. An engine knows the seven kinds of terms and
// no scheme.
//
//   S_ij = cap(scale a_h g_i q_i.k_j) + sum of terms(i, j) + bias_ij
//   o_i  = sum_j P_ij (v_j + rows(i, j)),   P_i = softmax of S_i over visible keys
//
// delta = query position - key position, on one axis of the positions of the call. POSITIONS (any
// numbers) make distances; ORDER (where a token is in storage) makes masks and scans.
//
// Letters of shapes: B batch, H query heads, Tq and Tk tokens, D channels of q and k, Dv of v. An
// axis [B|1] may have one entry that serves all. An axis [G] of heads has any number of entries
// that divides H: query head h reads entry h / (H / G), as with grouped keys; 1 is shared by all.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "posenc/core/describe.h"
#include "posenc/core/heads.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

// delta -> row of a table, constant outside: clip, T5, DeBERTa. Without `edges` the line goes by
// whole distances, row[clip(floor(delta) - lo, 0, count - 1)]. With `edges` (real distances, boxes)
// it is row[how many edges are <= delta]. A negative row voids the whole term for the pair (Music
// Transformer beyond its table; a pair that another term of the same table serves).
struct IndexLine {
  const std::int32_t* row = nullptr;  // [count]; null: the line is not used
  Index count = 0;
  Index lo = 0;                   // the distance of row[0]
  const double* edges = nullptr;  // [count - 1], not decreasing; null: whole distances
  std::int32_t axis = 0;          // of the positions
};

// Row by what query and key ARE: row[query_class * key_classes + key_class]. Segments, class
// tokens, sentences, modalities. With the tokens' own numbers as classes it is an index matrix
// [Tq, Tk]: anything at all, in O(Tq Tk) memory. The classes come with each call.
struct IndexPair {
  const std::int32_t* row = nullptr;  // [query_classes * key_classes]; null: not used
  Index query_classes = 0, key_classes = 0;
  ConstTensorView query_class{};  // [B|1, Tq] of i64 or i32, 0 .. query_classes - 1
  ConstTensorView key_class{};    // [B|1, Tk] of i64 or i32, 0 .. key_classes - 1
};

// The row of a distance, as the comment of IndexLine says. `line.row` must not be null.
POSENC_API std::int32_t row_of(const IndexLine& line, double delta) noexcept;

// One side of a product: absent (it counts as 1), the call's own q or k, or vectors that come with
// the scheme or the call.
struct Factor {
  // The q of the call (as Term::query; prepared, times g_i) or its k (as Term::key; prepared).
  bool content = false;
  // [B|1, T|1, G, channels]; one token serves all (Transformer-XL's u). Null data: not given.
  ConstHeads given{};
  // `given` is made of the call's q (its k): the four-term view counts it so.
  bool made_of_content = false;

  bool present() const noexcept { return content || given.data != nullptr; }
};
inline constexpr Factor kContent{true, {}};

// Each kind: what it adds, who uses it, its gradient (dS is the gradient of a score, D_i that of an
// output row), and how a fast engine computes it for a tile [query rows, keys].
enum class TermKind : std::uint8_t {
  // S += scale (table[0] max(delta, 0) + table[1] max(-delta, 0)). ALiBi.
  // d table = sum of dS |delta| by side.
  // Tile: the accumulators start at a multiply-add of the column; only tiles on the diagonal have
  // both sides.
  linear,
  // S += scale <x_i, y_j, t_r>, summed over channels; x, y and t are each optional, r is the sum of
  // the rows of all lines and of the pair; 0 where a row is negative. T5 and Swin (t), Shaw and
  // Transformer-XL (x t, x = q), DeBERTa (y t, y = k), TUPE and u.k (x y), KERPLE's weight (x y t).
  // d x_i += dS y_j t_r, d y_j += dS x_i t_r, d t_r += dS x_i y_j.
  // Tile, by the factors that are there:
  // t      accumulators start at an unaligned load of a band by distance, made once a call; tiles
  //        far away at a constant. Backward: sums of dS along diagonals.
  // x t    few rows: X T^T once for a block of rows, then as t; many: a skewed product X T_band^T.
  // y t    the same with columns for rows.
  // x y    more channels of the same product as q.k; u.k is one number a column.
  // x y t  t is a number that multiplies the product in registers.
  product,
  // S += scale (x_i - y_j), one number for a query and one for a key. Forgetting gates.
  // d x_i += sum_j dS, d y_j -= sum_i dS.
  // Tile: an addend a column. x and y stay f64 until the tile's own origin is subtracted: in f32
  // from the start, 131072 tokens are wrong by 8e-3.
  decay,
  // S += scale p_ij, where p_ij = sum of gate(gate_scale x_i.y_t) over the visible keys t from j
  // on, in key order. With a table the term is q_i . table[row] instead, read at row
  // min(p_ij, rows - 1) by linear interpolation, or with `spread` as a mean of all rows m weighed
  // by softmax(-|p_ij - m| / spread). CoPE; a gate for every pair.
  // d gate_t = sum of d p_ij over j up to t; none comes to p beyond the last row.
  // Tile: keys from the last to the first, the sum so far carried by row; once it is beyond the
  // table, all earlier keys have one number a row. Backward: from the first to the last.
  gates,
  // S += scale mlp_h(psi(delta) / (psi(max(p_i, L)) + epsilon)), psi(y) = ln(|c y| + 1), p_i the
  // position of the query. FIRE. The gradient goes through the mlp and both psi; where p_i = L, L
  // gets one half.
  // Tile: piecewise linear in the logarithm of the distance, one multiply-add a unit.
  distance_mlp,
  // S += scale mlp_h(content of all heads; sum of the other terms of all heads). DAPE. The last
  // term, at most one. The gradient goes through the mlp to the scores of all heads.
  // Tile: none, since it needs all heads of a row; blocks of rows.
  score_mlp,
  // o_i += scale sum_j P_ij t_r, r as in a product. Shaw's values.
  // d t_r += P_ij D_i, dP_ij += D_i.t_r.
  // Tile: the weights of each row of the table are kept beside the output and rescaled as it is;
  // times the table at the end.
  value_rows,
};
template <>
struct EnumNames<TermKind> {
  static constexpr std::array<std::string_view, 7> value{
      "linear", "product", "decay", "gates", "distance_mlp", "score_mlp", "value_rows"};
};

// By order: past has key order <= query order, future key order > query order.
enum class Side : std::uint8_t { both, past, future };
template <>
struct EnumNames<Side> {
  static constexpr std::array<std::string_view, 3> value{"both", "past", "future"};
};
enum class Gate : std::uint8_t { sigmoid, log_sigmoid };
template <>
struct EnumNames<Gate> {
  static constexpr std::array<std::string_view, 2> value{"sigmoid", "log_sigmoid"};
};

// out[h] . act(in . inputs + in_bias) + out_bias[h], where act(y) is y above 0, else slope y. A
// kernel of odd width K runs over the keys in order (score_mlp; elsewhere K is 1). Hidden keys go
// in as 0 and their units are computed like the others: act(in_bias) away from visible keys.
struct Mlp {
  ConstTensorView in{};        // [W, C, K]
  ConstTensorView in_bias{};   // [W]
  ConstTensorView out{};       // [G, W, K]
  ConstTensorView out_bias{};  // [G]
  double slope = 0;
};
struct MlpGradient {
  TensorView in{}, in_bias{}, out{}, out_bias{};
};

// One addend. Several of a kind may come together (XLNet, Segatron). `scale` is the term's own:
// neither the scale of the call, nor its head_scale, nor its soft cap before the terms is applied
// to it. Each kind reads the fields that name it; another that is set is refused.
struct Term {
  TermKind kind = TermKind::product;
  double scale = 1;
  // f64 or f32, [B|1, G, rows, channels]; numbers have one channel. linear: [.., 1, 2], past and
  // future. distance_mlp: [.., 1, 2], c and L. value_rows: Dv channels. gates: D channels.
  ConstTensorView table{};
  // product, value_rows. Two lines make a window: y row * width + x row.
  std::array<IndexLine, 3> lines{};
  IndexPair pair{};           // product, value_rows
  Factor query{}, key{};      // product, decay, gates: x and y
  std::int32_t axis = 0;      // of the positions: linear, distance_mlp
  Side side = Side::both;     // decay
  Gate gate = Gate::sigmoid;  // gates
  double gate_scale = 1;      // gates
  bool gate_own = true;       // gates: the key of the query's own order counts
  double spread = 0;          // gates with a table: 0 reads between two rows
  Mlp mlp{};                  // distance_mlp (C = 1), score_mlp (C = H: content alone, or 2 H)
  double epsilon = 1e-6;      // distance_mlp, not negative
  bool keep_sign = false;     // distance_mlp: psi has the sign of its argument
};

// Where the gradients of a term go: f64 or f32, of the shapes of its arrays (axes of 1 are summed
// over), ACCUMULATED; empty: not wanted. The gradient of a factor that is the call's content goes
// to that of q or k.
struct TermGradient {
  TensorView table{};
  Heads query{}, key{};
  MlpGradient mlp{};
};

// What depends on the numbers inside lines, pairs and tables, checked once when they are lowered:
// rows inside the table, edges that do not decrease. O(rows). Throws [attention].
POSENC_API void check_rows(const Term&);

}  // namespace posenc::v0
