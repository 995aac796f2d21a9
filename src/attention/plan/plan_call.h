// SPDX-License-Identifier: Apache-2.0
// One call of a plan: the caller's arguments with the schemes' terms bound, and the way back of the
// gradients.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/call/call_arena.h"
#include "attention/lowered/lowered_call.h"
#include "core/overlap.h"
#include "posenc/attention/plan.h"
#include "posenc/rotary/spec.h"

namespace posenc::inline v0 {
namespace detail {

inline constexpr std::string_view kPlan = "attention_plan";

// One scheme of a plan, with the names that its arrays have there.
struct PlanScheme {
  AnyRelativeScheme scheme;
  std::vector<Parameter> parameters{};
  std::vector<Input> inputs{};
  std::vector<std::string> parameter_names{}, input_names{};

  std::string name() const { return std::string(scheme.card().name); }
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
[[noreturn]] void refuse_unknown(std::string_view what, const std::string& names,
                                 std::string_view got);
const NamedArray* find_array(std::span<const NamedArray>, const std::string& name);
// Throws: an array whose name is none of those that each(fn) gives to fn(name).
template <class List, class Each>
void check_known_names(const List& list, std::string_view what, const Each& each) {
  for (const auto& a : list) {
    bool known = false;
    each([&](const std::string& name) { known = known || name == a.name; });
    if (known) continue;
    std::string names;
    each([&](const std::string& name) { names += " " + name; });
    refuse_unknown(what, names, a.name);
  }
}

// Throws: distances of a call that were not lowered; `all_future`, `all_past`: whether those below 0,
// above 0, are looked at.
void check_lowered(const DistanceRange& call, const DistanceRange& lowered, bool all_future,
                   bool all_past);

// distance_ranges by axis; it allocates only where distances leave gaps.
void check_distance_positions(const Positions& query, const Positions& key);
DistanceRange distance_range(const Positions& query, const Positions& key, std::int32_t axis);

struct PlanState {
  AttentionSizes sizes;
  std::optional<RotarySpec> rotary;
  std::optional<RotaryPlan> rotation, narrow_rotation;  // of `rotary`, in double and in float
  std::vector<PlanScheme> schemes;
  ScoreShape shape;  // without distances
};

// What one scheme lowered to.
struct SchemeTerms {
  std::vector<ConstTensorView> values{};  // of the parameters, owned by LoweredState
  LoweredTerms lowered{};
  std::vector<const Band*> bands{};  // of each term; null: none
};

struct LoweredState {
  LoweredState(std::shared_ptr<const PlanState>, std::span<const NamedArray> parameters,
               std::span<const DistanceRange>);

  std::shared_ptr<const PlanState> plan;
  ScoreShape shape;
  std::vector<SchemeTerms> schemes;  // as in the plan
  CallRequests requests;
  double scale = 0;
  std::size_t terms = 0;     // of all schemes
  bool by_distance = false;  // a call's distances must be among those lowered

 private:
  TermStore parameters_;  // copies
  CallArena bands_;       // of all schemes

  void copy_parameters(std::span<const NamedArray>);
  void lower_schemes();
};

struct PlanCall {
  // The arena must outlive the call.
  PlanCall(const LoweredState&, const AttentionArgs&, std::span<const NamedArray> inputs,
           CallArena&);
  PlanCall(const PlanCall&) = delete;
  PlanCall& operator=(const PlanCall&) = delete;

  // What the call gave one scheme.
  struct Bound {
    std::span<const ConstTensorView> inputs{};
    CallData data{};
    std::size_t first = 0;  // of its terms, before the network over scores moved to the end
  };
  AttentionArgs args;
  std::span<Bound> schemes;
  std::size_t first_own = 0, own = 0;  // the caller's terms
  std::size_t stages = 0;              // the caller's

  // What the plan prepared of the terms and stages.
  LoweredCall lowered() const noexcept {
    LoweredCall l{bands_, rotations_, narrow_rotations_};
    l.spec = spec_, l.of_spec = of_spec_, l.narrow_of_spec = narrow_of_spec_;
    return l;
  }
  // Where term `n` of a scheme is among those of the call.
  std::size_t term_index(std::size_t scheme, std::size_t n) const noexcept;

 private:
  CallArena& arena_;
  std::span<Term> terms_;
  std::span<const Band*> bands_;
  std::span<const RotaryPlan*> rotations_, narrow_rotations_;
  const RotarySpec* spec_ = nullptr;
  const RotaryPlan *of_spec_ = nullptr, *narrow_of_spec_ = nullptr;
  std::span<ScoreRegion> regions_;
  std::optional<std::size_t> moved_;  // this one is the last
  std::span<Stage> stages_;
  std::span<const Index> own_keys_, query_orders_, keys_by_order_;
  // Of the first schemes and of further ones: few schemes need no list.
  std::array<TermStore, 4> stores_;
  std::vector<TermStore> more_stores_;

  void fill_positions();
  void find_own_keys();
  void check_distances(const LoweredState&) const;
  void merge_requests(const LoweredState&);
  void add_stages(const LoweredState&);
  void add_rotations(const LoweredState&);
  void bind_schemes(const LoweredState&, std::span<const NamedArray> inputs);
  void bind_inputs(const PlanScheme&, std::span<const NamedArray> inputs, Bound&);
  void move_network_last();
};

struct PlanGradients {
  // The arena must outlive the gradients.
  PlanGradients(const LoweredState&, const PlanCall&, const AttentionGradients&,
                std::span<const NamedGradient>, CallArena&);
  PlanGradients(const PlanGradients&) = delete;
  PlanGradients& operator=(const PlanGradients&) = delete;
  // Throws: a named gradient over that of the result, which is read while others are written.
  void check_upstream(const ConstAttentionResult& d_result) const;
  void check_upstream(const ConstTensorView& d_scores) const;
  void pull_back(const LoweredState&, const PlanCall&);

  AttentionGradients gradients;

 private:
  struct Wanted {
    std::span<TensorView> parameters{}, inputs{};
    std::span<TermGradient> terms{};
    bool any = false;
  };
  CallArena& arena_;
  std::span<Wanted> wanted_;
  std::span<TermGradient> terms_;
  std::span<StageGradient> stages_;
  std::span<Operand> written_;  // the named ones

  TensorView zeros(std::span<const Index> shape);
  TensorView like(const ConstTensorView&);
  Heads like(const ConstHeads&);
  TermGradient of_term(const Term&);
  Operand operand(std::string_view what, std::string_view name, const ConstTensorView&);
  void find_wanted(const PlanState&, const PlanCall&, std::span<const NamedGradient>,
                   const AttentionGradients&);
  void check_overlap(const PlanState&, const PlanCall&, const AttentionGradients&,
                     std::span<const NamedGradient>);
  void place_terms(const LoweredState&, const PlanCall&, const AttentionGradients& own);
};

}  // namespace detail
}  // namespace posenc::v0
