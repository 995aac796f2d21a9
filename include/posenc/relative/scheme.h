// SPDX-License-Identifier: Apache-2.0
// The concept of a relative or contextual scheme: lowering to terms of attention (attention/term.h), and
// gradients of its parameters and of the inputs of a call.
#pragma once
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/attention/attention.h"
#include "posenc/core/describe.h"
#include "posenc/core/parameter.h"

namespace posenc::inline v0 {

// Whole distances from first to last, both included.
struct DistanceRun {
  Index first = 0, last = 0;
};
// Whole distances query - key that occur, between min and max inclusive.
struct DistanceRange {
  Index min = 0, max = 0;
  // If few of them occur: those, as ascending runs with gaps, the first from min and the last to max.
  // Empty: any from min to max. A scheme may lower the whole range, or only these.
  std::vector<DistanceRun> runs{};
};

// What a scheme knows before any call.
struct ScoreShape {
  Index heads = 0;      // of the queries, 1 .. 65536
  Index head_dim = 0;   // channels of q and k, 1 .. 65536
  Index value_dim = 0;  // channels of v; 0: as head_dim
  // Of the content q.k, which many published schemes apply to their terms too. Absent: head_dim^-1/2.
  std::optional<double> scale{};
  std::vector<DistanceRange> distance{};  // of each axis. Lines over real positions do not need it

  // The distances of an axis. Throws [shape] where there is none.
  POSENC_API const DistanceRange& range(Index axis = 0) const;
  POSENC_API double content_scale() const noexcept;
};
// Its sizes as axes of parameters and inputs, with their names: {"w_r", {axes.heads, features}}.
struct ScoreAxes {
  AxisSize heads, head_dim, value_dim;
  POSENC_API explicit ScoreAxes(const ScoreShape&);
};
// Throws [who] if heads, head_dim, scale or the distances are invalid.
POSENC_API void check_score_shape(const ScoreShape&, std::string_view who);

// Sizes of a call in the shape of an input. The axis kBatch may have size 1.
inline constexpr Index kBatch = -1, kQueries = -2, kKeys = -3;

// An array that belongs to each call: classes, gates, hidden states. The names q, k and v are the
// call's own tensors (CoPE's gates from values): their gradients join those of the call.
struct Input {
  std::string name;
  ArrayShape shape;
  bool integer = false;   // i64 or i32, else f64 or f32
  bool optional = false;  // may be empty
};

// The data of one call for `bind` and `pull_back`.
struct CallData {
  Index batch = 1, queries = 0, keys = 0, query_offset = 0;
  Positions query_positions{}, key_positions{};
  // In the order of inputs(); optional ones may be empty.
  std::span<const ConstTensorView> inputs{};
  // [1 or batch, queries]: the key of each query's own order, -1 where there is none. Empty: key
  // query_offset + i.
  std::span<const Index> own_keys{};
  // [1 or batch, queries]: each query's order, inside its sequence. Empty: query_offset + i.
  std::span<const Index> query_orders{};
  // [1 or batch, keys]: the keys in their order. Empty: in storage.
  std::span<const Index> keys_by_order{};
};

// Arrays that a scheme computes and that terms point to. Their memory keeps its address when the lists
// grow or are moved. Not copyable.
struct TermStore {
  std::vector<std::vector<double>> values;
  std::vector<std::vector<std::int32_t>> rows;
  bool has_gaps = false;  // a line is valid only for the runs of a range

  TermStore() = default;
  TermStore(TermStore&&) = default;
  TermStore& operator=(TermStore&&) = default;
  TermStore(const TermStore&) = delete;
  TermStore& operator=(const TermStore&) = delete;

  // Each stores the numbers and returns the view for a term. Throws [lowered]: sizes that do
  // not fill the shape, lines without rows, edges that decrease or are not one fewer than the rows.
  // [batch, groups, n, channels], row-major.
  POSENC_API ConstTensorView table(std::vector<double> v, Index groups, Index n, Index channels,
                                   Index batch = 1);
  // Row-major of any shape, rank 0 to 5: the arrays of an Mlp.
  POSENC_API ConstTensorView array(std::vector<double> v, std::span<const Index> shape);
  // [batch, tokens, groups, channels], row-major: a factor.
  POSENC_API ConstHeads vectors(std::vector<double> v, Index batch, Index tokens, Index groups,
                                Index channels);
  // Whole distances lo, lo + 1, ...; constant outside.
  POSENC_API IndexLine line(std::vector<std::int32_t> row, Index lo, std::int32_t axis = 0);
  // Real distances by thresholds.
  POSENC_API IndexLine line(std::vector<std::int32_t> row, std::vector<double> edges,
                            std::int32_t axis);
  // A row for every two classes, [query_classes, key_classes].
  POSENC_API IndexPair pair(std::vector<std::int32_t> row, Index query_classes, Index key_classes);
};

// What a scheme requires of the call besides its terms. Schemes with different requests are
// rejected.
struct CallRequests {
  std::optional<double> scale{};  // of the content. T5: 1; DeBERTa: 1 / sqrt(3 D); absent: any
  ConstTensorView head_scale{};   // [1, H]: Swin V2's logit scale
  std::vector<Stage> prepare{};   // Swin V2: l2
  Normalisation normalisation = Normalisation::softmax;
  ConstTensorView head_side{};  // [H] u8 of Side, as Mask::head_side: ALiBi by half of the heads
};

struct LoweredTerms : TermStore {
  std::vector<Term> terms;
  CallRequests requests;

  // Appends a term after check_rows. Throws [attention].
  POSENC_API void add(const Term&);
};

// The gradients of one scheme's own terms, in order, and of the head_scale that it requested.
struct LoweredGradient {
  std::span<const TermGradient> terms{};
  ConstTensorView head_scale{};  // f64 or f32 [1, H]; empty: none
};

// parameters  names, shapes, published initialisers; no numbers.
// lower       parameters -> terms, in O(distances), in double, once a step. Arrays of a call
//             (classes of a pair, factors) stay empty.
// pull_back   the transpose of lower and bind together (vector-Jacobian product), ACCUMULATED into
//             d_parameters and d_inputs, in the order of parameters() and inputs(); an empty view
//             or list is skipped. `g` has an entry for each term that lower appended.
template <class S>
concept RelativeScheme = Described<S> &&
    requires(const S& s, const ScoreShape& shape, std::span<const ConstTensorView> p,
             LoweredTerms& out, const CallData& call, const LoweredGradient& g,
             std::span<const TensorView> d) {
  { s.parameters(shape) } -> std::same_as<std::vector<Parameter>>;
  { s.lower(shape, p, out) } -> std::same_as<void>;
  { s.pull_back(shape, p, call, g, d, d) } -> std::same_as<void>;
};
// A scheme that reads inputs of the call.
// inputs  names and shapes of the arrays of a call.
// bind    inputs -> the empty arrays of the scheme's own terms, in order: views, or O(tokens) work
//         into `store`. Tables are not computed again.
template <class S>
concept BindsInputs = RelativeScheme<S> &&
    requires(const S& s, const ScoreShape& shape, std::span<const ConstTensorView> p,
             const CallData& call, std::span<Term> terms, TermStore& store) {
  { s.inputs(shape) } -> std::same_as<std::vector<Input>>;
  { s.bind(shape, p, call, terms, store) } -> std::same_as<void>;
};

}  // namespace posenc::v0
