// SPDX-License-Identifier: Apache-2.0
// What a position scheme adds to attention, as data: seven kinds of terms. An engine does not depend on
// schemes:
//
//   LinearTerm       S += scale slope |delta|, a slope for each side
//   ProductTerm      S += scale <x_i, y_j, t_r>, x and y of the query and the key, t a row of a table
//   DecayTerm        S += scale (x_i - y_j)
//   GatesTerm        S += scale p_ij or q_i . table[p_ij], p_ij a sum of gates between the two
//   DistanceMlpTerm  S += scale mlp(distance)
//   ScoreMlpTerm     S += scale mlp(scores of all heads)
//   ValueRowsTerm    o += scale sum_j P_ij t_r
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
#include <string_view>
#include <variant>

#include "posenc/core/describe.h"
#include "posenc/core/heads.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

// delta -> row of a table, constant outside: clip, T5, DeBERTa. Without `edges` the line goes by
// whole distances, row[clip(floor(delta) - lo, 0, count - 1)]. With `edges` (real distances, boxes)
// it is row[how many edges are <= delta]. A negative row disables the whole term for the pair
// (Music Transformer beyond its table; pairs for which another term of the same table applies).
struct IndexLine {
  const std::int32_t* row = nullptr;  // [count]; null: the line is not used
  Index count = 0;
  Index lo = 0;                   // the distance of row[0]
  const double* edges = nullptr;  // [count - 1], not decreasing; null: whole distances
  std::int32_t axis = 0;          // of the positions
};

// Row by the classes of query and key: row[query_class * key_classes + key_class]. Segments, class
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
  // The q of the call (of a query; prepared, times g_i) or its k (of a key; prepared).
  bool content = false;
  // [B|1, T|1, G, channels]; one token applies to all (Transformer-XL's u). Null data: absent.
  ConstHeads given{};
  // `given` is computed from the call's q (or k), so the four-term view counts it as that.
  bool made_of_content = false;

  bool present() const noexcept { return content || given.data != nullptr; }
};
inline constexpr Factor kContent{true, {}};

// By order: past has key order <= query order, future key order >= query order.
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
// kernel of odd width K runs over the keys in order (score_mlp; elsewhere K is 1). The scores of hidden
// keys are read as 0, so a unit far from visible keys is act(in_bias).
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

// The kinds of terms: what each adds, who uses it, and its gradient (dS is the gradient of a score, D_i
// that of the output of query i). `scale` is the term's own: neither the scale of the call, nor its head_scale,
// nor its soft cap before the terms is applied to it. Tables are f64 or f32.

// S += scale (table[0] max(delta, 0) + table[1] max(-delta, 0)). ALiBi.
// d table = sum of dS |delta| by side.
struct LinearTerm {
  static constexpr std::string_view name = "linear";
  double scale = 1;
  ConstTensorView table{};  // [B|1, G, 1, 2]: past and future
  std::int32_t axis = 0;    // of the positions
};

// A row r of a table for each pair: the sum of the rows of all lines and of the pair, 0 without any. A
// negative row disables the term for the pair.
struct PickedRows {
  ConstTensorView table{};           // [B|1, G, rows, channels]
  std::array<IndexLine, 3> lines{};  // two lines make a window: y row * width + x row
  IndexPair pair{};
};

// S += scale <x_i, y_j, t_r>, summed over channels; x, y and t are each optional. T5 and Swin (t), Shaw
// and Transformer-XL (x t, x = q), DeBERTa (y t, y = k), TUPE and u.k (x y), KERPLE's weight (x y t,
// where t has one channel).
// d x_i += dS y_j t_r, d y_j += dS x_i t_r, d t_r += dS x_i y_j.
struct ProductTerm : PickedRows {
  static constexpr std::string_view name = "product";
  double scale = 1;
  Factor query{}, key{};  // x and y
};

// S += scale (x_i - y_j), one number for a query and one for a key. Forgetting gates. With `side` only on one side; keys of
// the query's own order count as past, and not as future.
// d x_i += sum_j dS, d y_j -= sum_i dS.
struct DecayTerm {
  static constexpr std::string_view name = "decay";
  double scale = 1;
  Factor query{}, key{};  // x and y, of one channel
  Side side = Side::both;
};

// S += scale p_ij, where p_ij = sum of gate(gate_scale x_i.y_t) over the visible keys t from j
// on, in key order. With a table the term is q_i . table[row] instead, read at row
// min(p_ij, rows - 1) by linear interpolation, or with `spread` as a mean of all rows m weighted
// by softmax(-|p_ij - m| / spread). CoPE; a gate for every pair.
// d gate_t = sum of d p_ij over j up to t; p beyond the last row has no gradient.
struct GatesTerm {
  static constexpr std::string_view name = "gates";
  double scale = 1;
  ConstTensorView table{};  // [B|1, G, rows, D]; with the gate sigmoid
  Factor query{}, key{};    // x and y
  Gate gate = Gate::sigmoid;
  double gate_scale = 1;
  bool gate_own = true;  // the key of the query's own order counts
  double spread = 0;     // with a table; 0 reads between two rows
};

// S += scale mlp_h(psi(delta) / (psi(max(p_i, L)) + epsilon)), psi(y) = ln(|c y| + 1), p_i the
// position of the query. FIRE. The gradient goes through the mlp and both psi; where p_i = L, L
// receives one half.
struct DistanceMlpTerm {
  static constexpr std::string_view name = "distance_mlp";
  double scale = 1;
  ConstTensorView table{};  // [B|1, G, 1, 2]: c and L
  std::int32_t axis = 0;    // of the positions
  Mlp mlp{};                // C = 1
  double epsilon = 1e-6;    // not negative
  bool keep_sign = false;   // psi has the sign of its argument
};

// S += scale mlp_h(content of all heads; sum of the other terms of all heads). DAPE. The last
// term, at most one. The gradient goes through the mlp to the scores of all heads.
struct ScoreMlpTerm {
  static constexpr std::string_view name = "score_mlp";
  double scale = 1;
  Mlp mlp{};  // C = H: content only, or 2 H
};

// o_i += scale sum_j P_ij t_r, r as in a product. Shaw's values.
// d t_r += P_ij D_i, dP_ij += D_i.t_r.
struct ValueRowsTerm : PickedRows {  // of Dv channels
  static constexpr std::string_view name = "value_rows";
  double scale = 1;
};

// One addend. A call may have several of a kind (XLNet, Segatron).
using Term = std::variant<ProductTerm, LinearTerm, DecayTerm, GatesTerm, DistanceMlpTerm,
                          ScoreMlpTerm, ValueRowsTerm>;
// "product", "linear", ...
POSENC_API std::string_view term_name(const Term&) noexcept;

// What a term reads, by its names in TermGradient; empty where the kind has no such array.
struct TermArrays {
  ConstTensorView table{};
  Factor query{}, key{};
  Mlp mlp{};
};
POSENC_API TermArrays term_arrays(const Term&) noexcept;
// Of a product and of value rows; null of another kind.
POSENC_API const PickedRows* picked_rows(const Term&) noexcept;
POSENC_API PickedRows* picked_rows(Term&) noexcept;

// Where the gradients of a term go: f64 or f32, of the shapes of its arrays (axes of 1 are summed
// over), ACCUMULATED; empty: not computed. The gradient of a factor that is the call's q or k is added
// to that of q or k.
struct TermGradient {
  TensorView table{};
  Heads query{}, key{};
  MlpGradient mlp{};
};

// Checks the numbers inside lines, pairs and tables, once when they are lowered:
// rows inside the table, edges that do not decrease. O(rows). Throws [attention].
POSENC_API void check_rows(const Term&);

}  // namespace posenc::v0
