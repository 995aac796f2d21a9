// SPDX-License-Identifier: Apache-2.0
// One call of a plan: the caller's arguments with the schemes' terms bound, and the way back of the
// gradients.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/overlap.h"
#include "posenc/attention/plan.h"
#include "posenc/rotary/spec.h"

namespace posenc::inline v0 {
namespace detail {

inline constexpr std::string_view kPlan = "attention_plan";

struct SchemePart {
  AnyRelativeScheme scheme;
  std::vector<Parameter> parameters{};
  std::vector<Input> inputs{};
  std::vector<std::string> parameter_names{}, input_names{};
  std::vector<ConstTensorView> values{};
  LoweredTerms lowered{};
};

// q, k and v of the call, which a scheme may read by these names.
inline bool is_call_tensor(std::string_view name) noexcept {
  return name == "q" || name == "k" || name == "v";
}
// [batch, tokens, heads, channels] as an array.
template <class Data>
BasicTensorView<Data> as_tensor(const BasicHeads<Data>& h) {
  BasicTensorView<Data> t;
  t.data = h.data;
  t.dtype = h.dtype;
  t.rank = 4;
  t.shape = {h.batch, h.tokens, h.heads, h.dim, 0};
  t.stride = {h.batch_stride, h.token_stride, h.head_stride, h.dim_stride, 0};
  return t;
}
// Throws: the list of parameters or inputs lacks this array.
[[noreturn]] void refuse_missing(std::string_view list, const std::string& name,
                                 std::string_view scheme, const std::string& shape,
                                 std::string_view types);
// "[batch or 1, queries, 4]"
std::string shape_words(std::span<const Index> shape);
const NamedArray* find_array(std::span<const NamedArray>, const std::string& name);
void check_known_names(std::span<const NamedArray>, std::span<const std::string> known,
                       std::string_view what);

// Throws: distances of a call that were not lowered; `all_future`, `all_past`: whether those below 0,
// above 0, are looked at.
void check_lowered(const DistanceRange& call, const DistanceRange& lowered, bool all_future,
                   bool all_past);

struct PlanState {
  AttentionSizes sizes;
  std::optional<RotarySpec> rotary;
  std::vector<SchemePart> parts;
  ScoreShape shape;
  CallRequests requests;
  double scale = 0;
  bool lowered = false;

  void lower_parts();
};

struct PlanCall {
  PlanCall(const PlanState&, const AttentionArgs&, std::span<const NamedArray> inputs);
  PlanCall(const PlanCall&) = delete;
  PlanCall& operator=(const PlanCall&) = delete;

  struct Bound {
    std::vector<ConstTensorView> inputs{};
    CallData data{};
    TermStore store{};
    std::vector<std::size_t> place{};  // of each of the scheme's terms among those of the call
  };
  AttentionArgs args;
  std::deque<Bound> parts;
  std::size_t first_own = 0, own = 0;  // the caller's terms
  std::size_t stages = 0;              // the caller's

 private:
  std::vector<Term> terms_;
  std::vector<Stage> stages_;
  OwnedPositions query_positions_, key_positions_;
  std::vector<Index> own_keys_, keys_by_order_;

  void fill_positions();
  void find_own_keys();
  void check_distances(const PlanState&) const;
  void merge_requests(const PlanState&);
  void add_stages(const PlanState&);
  void bind_parts(const PlanState&, std::span<const NamedArray> inputs);
  void join_terms(const PlanState&, std::vector<std::vector<Term>>& terms);
};

struct PlanGradients {
  PlanGradients(const PlanState&, const PlanCall&, const AttentionGradients&,
                std::span<const NamedGradient>);
  PlanGradients(const PlanGradients&) = delete;
  PlanGradients& operator=(const PlanGradients&) = delete;
  // Throws: a named gradient over that of the result, which is read while others are written.
  void check_upstream(const ConstAttentionResult& d_result) const;
  void check_upstream(const ConstTensorView& d_scores) const;
  void pull_back(const PlanState&, const PlanCall&);

  AttentionGradients gradients;

 private:
  struct Wanted {
    std::vector<TensorView> parameters{}, inputs{};
    bool any = false;
  };
  std::vector<Wanted> wanted_;
  std::vector<TermGradient> terms_;
  std::vector<StageGradient> stages_;
  std::deque<std::vector<double>> numbers_;
  std::vector<Operand> written_;   // the named ones
  std::deque<std::string> names_;  // of operands

  TensorView zeros(std::span<const Index> shape);
  TensorView like(const ConstTensorView&);
  Heads like(const ConstHeads&);
  TermGradient of_term(const Term&);
  void find_wanted(const PlanState&, const PlanCall&, std::span<const NamedGradient>,
                   const AttentionGradients&);
  void check_overlap(const PlanState&, const PlanCall&, const AttentionGradients&,
                     std::span<const NamedGradient>);
  void place_terms(const PlanState&, const PlanCall&, const AttentionGradients& own);
};

}  // namespace detail
}  // namespace posenc::v0
