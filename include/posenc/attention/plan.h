// SPDX-License-Identifier: Apache-2.0
// Attention from encodings by name. A plan contains the schemes; `lower` computes terms from parameters,
// once for each training step; each call adds its inputs and runs attend and attend_backward
// (attention/attend.h), and returns gradients of the schemes' parameters and inputs.
#pragma once
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/attention/attend.h"
#include "posenc/relative/any_scheme.h"

namespace posenc::inline v0 {

struct PlanExplanation;  // explain_plan.h

namespace detail {
struct PlanState;
struct LoweredState;
class CallArena;
struct StateAccess;
}  // namespace detail

struct AttentionSizes {
  Index heads = 0;      // of the queries
  Index head_dim = 0;   // channels of q and k
  Index key_heads = 0;  // divides heads; 0: as heads
  Index value_dim = 0;  // channels of v; 0: as head_dim
  // Multiplies q.k and the terms of schemes that use the content's scale; not the other terms. Absent:
  // the scale that a scheme requires (T5: 1), or else head_dim^-1/2.
  std::optional<double> scale{};
};

// A learned array or an input by name, "table" or "hidden". If two schemes use the same name: "0.table"
// and "1.table", by the order of the schemes without rotary ones.
struct NamedArray {
  std::string_view name;
  ConstTensorView array;
};
struct NamedGradient {
  std::string_view name;
  TensorView array;  // f64 or f32, ACCUMULATED
};

// Whole distances query - key that occur, for each axis; 0 .. 0 without queries or keys. Real positions
// are rounded outwards. If positions are far apart, the range has runs, so that a plan lowers only
// distances that occur. Throws [distance]:
// positions of another type, null or infinite, axes that differ.
POSENC_API std::vector<DistanceRange> distance_ranges(const Positions& query, const Positions& key);

struct Encoding;  // registry.h
// The scheme of an encoding that acts in the score, by value. Throws [attention_plan]: another one,
// scalings.
POSENC_API AnyRelativeScheme relative_scheme(const Encoding&);

// The schemes of a plan, lowered with one set of parameters for some distances. Immutable: copies share
// state, and several threads may call it at once. It owns copies of the parameters.
class LoweredAttention {
 public:
  POSENC_API const AttentionSizes& sizes() const noexcept;
  // Whether the terms depend on the numbers in q, k or v (Shaw, CoPE, DAPE), so that no bias tensor can
  // express them.
  POSENC_API bool reads_content() const;
  // The factor of q.k, and the other requests of the schemes for every call.
  POSENC_API double scale() const noexcept;
  POSENC_API const CallRequests& requests() const noexcept;

  // attend with the schemes' terms. `call` contains q, k, v, positions and mask as for attend. Distances
  // that were not lowered are rejected, except those that a causal mask, a window or a chunk hides. Terms
  // of the call follow those of the schemes. call.scale, if set, must equal the plan's. A rotate stage of
  // call.prepare without `rotary` marks where the plan rotates; by default after the last stage.
  // Throws [attention_plan], [attention].
  POSENC_API void forward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                          const AttentionResult&, const Executor& = default_executor(),
                          Workspace = {}) const;
  // The gradients of the call in `gradients` (its spans belong to the call's own stages, terms and
  // regions), and of the parameters and inputs that `named` lists.
  POSENC_API void backward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                           const ConstAttentionResult& result, const ConstAttentionResult& d_result,
                           const AttentionGradients& gradients,
                           std::span<const NamedGradient> named,
                           const Executor& = default_executor(), Workspace = {}) const;
  // Bytes of workspace for forward, and for backward with these gradients, as of attend. What schemes
  // compute of their inputs, and of their gradients, is allocated all the same.
  POSENC_API std::size_t workspace_bytes(const AttentionArgs& call,
                                         std::span<const NamedArray> inputs,
                                         const Executor& = default_executor()) const;
  POSENC_API std::size_t workspace_bytes(const AttentionArgs& call,
                                         std::span<const NamedArray> inputs,
                                         const AttentionGradients&,
                                         std::span<const NamedGradient> named,
                                         const Executor& = default_executor()) const;
  POSENC_API void scores(const AttentionArgs& call, std::span<const NamedArray> inputs,
                         const AttentionScores&, const Executor& = default_executor()) const;
  // The gradients of sum(scores * d_scores), as attend_scores_backward has them.
  POSENC_API void scores_backward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                                  const ConstTensorView& d_scores,
                                  const AttentionGradients& gradients,
                                  std::span<const NamedGradient> named,
                                  const Executor& = default_executor()) const;

  // The part of the score that does not depend on q and k: bias [1, heads, queries, keys] of f64 or
  // f32, -inf where a scheme lets a head see one side only. Positions of one
  // sequence. Throws [attention_plan]: a scheme that reads q, k or v.
  POSENC_API void bias(const Positions& query, const Positions& key,
                       std::span<const NamedArray> inputs, const TensorView& bias,
                       const Executor& = default_executor()) const;
  // Accumulates the gradients of sum(bias * d_bias) by parameters and inputs.
  POSENC_API void bias_backward(const Positions& query, const Positions& key,
                                std::span<const NamedArray> inputs, const ConstTensorView& d_bias,
                                std::span<const NamedGradient> named,
                                const Executor& = default_executor()) const;

  // Which engine runs a call: explain_plan.h.
  POSENC_API PlanExplanation explain(const AttentionArgs& call,
                                     std::span<const NamedArray> inputs = {}) const;
  // Whether lowering these parameters for these distances again would change nothing.
  POSENC_API bool is_current(std::span<const NamedArray> parameters,
                             std::span<const DistanceRange> distance) const noexcept;

 private:
  friend class AttentionPlan;
  friend struct detail::StateAccess;
  explicit LoweredAttention(std::shared_ptr<const detail::LoweredState> state)
      : state_(std::move(state)) {}
  void run_forward(const AttentionArgs&, std::span<const NamedArray>, const AttentionResult&,
                   detail::CallArena&, const Executor&) const;
  void run_backward(const AttentionArgs&, std::span<const NamedArray>, const ConstAttentionResult&,
                    const ConstAttentionResult&, const AttentionGradients&,
                    std::span<const NamedGradient>, detail::CallArena&, const Executor&) const;
  std::shared_ptr<const detail::LoweredState> state_;
};

// Immutable, as LoweredAttention is.
class AttentionPlan {
 public:
  // Encodings as SCHEME text: at most one rotary, any number of relative ones, e.g.
  //   AttentionPlan plan({"rope head_dim=64 pairing=half_split", "t5 bidirectional=false"}, sizes);
  // Throws [attention_plan]: sizes, an encoding that does not act in attention, a second rotary one.
  // `length` is what scalings by length are resolved for, not negative; 0: none.
  POSENC_API AttentionPlan(std::span<const std::string_view> encodings, const AttentionSizes&,
                           Index length = 0);
  AttentionPlan(std::initializer_list<std::string_view> encodings, const AttentionSizes& sizes,
                Index length = 0)
      : AttentionPlan(std::span(encodings.begin(), encodings.size()), sizes, length) {}
  AttentionPlan(std::string_view encoding, const AttentionSizes& sizes, Index length = 0)
      : AttentionPlan(std::span(&encoding, 1), sizes, length) {}
  // Schemes as values, a program's own too. `rotary` rotates q and k.
  POSENC_API AttentionPlan(std::vector<AnyRelativeScheme> schemes, const AttentionSizes&,
                           const RotarySpec* rotary = nullptr);

  POSENC_API const AttentionSizes& sizes() const noexcept;
  // By the names that lower and the calls accept. q, k and v, where a scheme reads them, are the
  // call's own and not listed.
  POSENC_API std::vector<Parameter> parameters() const;
  POSENC_API std::vector<Input> inputs() const;

  // Every scheme lowered for the distances of each axis; once for each change of the parameters, which
  // are copied. Throws [attention_plan]: an array missing, unknown or of another shape; two schemes
  // that request different things. Schemes whose terms go by distance need `distance`.
  POSENC_API LoweredAttention lower(std::span<const NamedArray> parameters,
                                    std::span<const DistanceRange> distance = {}) const;

 private:
  std::shared_ptr<const detail::PlanState> state_;
};

}  // namespace posenc::v0
