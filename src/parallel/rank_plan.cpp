// SPDX-License-Identifier: Apache-2.0
// Calls of a plan over several ranks: its terms are bound to the inputs of this rank's tokens.
#include <algorithm>
#include <cstring>
#include <optional>

#include "attention/plan/plan_call.h"
#include "core/state_access.h"
#include "parallel/gate_sums.h"
#include "parallel/shared_gradients.h"
#include "parallel/ulysses.h"
#include "posenc/core/error.h"
#include "posenc/parallel/ulysses.h"
#include "posenc/relative/forgetting.h"

namespace posenc::inline v0 {
namespace detail {

namespace {

// The input of this name; null: none, or a tensor of the call.
const Input* find_input(const PlanState& plan, std::string_view name) {
  for (const PlanScheme& s : plan.schemes)
    for (std::size_t n = 0; n < s.inputs.size(); ++n)
      if (s.input_names[n] == name) return &s.inputs[n];
  return nullptr;
}
bool has_axis(const Input& input, Index axis) {
  return std::find(input.shape.begin(), input.shape.end(), axis) != input.shape.end();
}

// Inputs by pair hold every pair of tokens.
void check_plan(std::string_view who, const PlanState& plan) {
  for (const PlanScheme& s : plan.schemes)
    for (std::size_t n = 0; n < s.inputs.size(); ++n)
      if (has_axis(s.inputs[n], kQueries) && has_axis(s.inputs[n], kKeys))
        refuse_field(who, s.input_names[n], "must not be by pair: it holds every pair of tokens");
}

// First and last whole position of queries and keys on an axis.
struct Extents {
  Index query_min = 0, query_max = 0, key_min = 0, key_max = 0;
};

Extents extents(const AttentionArgs& a, std::int32_t axis) {
  static constexpr Index kZero = 0;
  Positions zero = a.query_positions;
  zero.data = &kZero, zero.type = DType::i64, zero.count = zero.batch = 1;
  zero.token_stride = zero.batch_stride = zero.axis_stride = 0;
  const DistanceRange q = distance_range(a.query_positions, zero, axis),
                      k = distance_range(zero, a.key_positions, axis);
  return {q.min, q.max, -k.max, -k.min};
}

// Distances between the queries of any rank and the keys of any other must have been lowered.
void check_all_distances(const Group& group, const LoweredState& s, const AttentionArgs& a) {
  if (!s.by_distance) return;
  const Mask& m = a.mask;
  const bool all_future = !m.causal && m.window_right == kUnbounded && m.chunk == 0;
  const bool all_past = m.window_left == kUnbounded && m.chunk == 0;
  for (std::int32_t axis = 0; axis < a.query_positions.axes; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    if (at >= s.shape.distance.size()) return;
    const Extents own = extents(a, axis);
    const std::vector<std::byte> bytes = gather(group, std::as_bytes(std::span(&own, 1)));
    std::vector<Extents> all(static_cast<std::size_t>(group.size()));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    for (const Extents& q : all)
      for (const Extents& k : all)
        check_lowered({q.query_min - k.key_max, q.query_max - k.key_min, {}}, s.shape.distance[at],
                      all_future, all_past);
  }
}

// The call of a plan on this rank, or why there is none.
struct RankPlanCall {
  RankPlanCall(std::string_view who, const LoweredState& s, const AttentionArgs& call,
               std::span<const NamedArray> inputs, CallArena& arena) {
    try {
      check_plan(who, *s.plan);
      bound.emplace(s, call, inputs, arena);
      find_gates(who, s);
    } catch (...) {
      problem = std::current_exception();
    }
  }
  std::optional<PlanCall> bound;
  std::exception_ptr problem;
  std::optional<GateSums> gates;
  std::vector<std::size_t> gate_terms;  // whose sums of gates the scheme made of this rank's tokens

  // Once all ranks make the call.
  void agreed(const Group& group, const LoweredState& s, KeyedCall& call) {
    check_all_distances(group, s, bound->args);
    for (const std::size_t n : gate_terms)
      gates->make_global(group, std::get<DecayTerm>(call.term(n)));
  }

 private:
  void find_gates(std::string_view who, const LoweredState& s) {
    for (std::size_t p = 0; p < s.schemes.size(); ++p) {
      if (s.plan->schemes[p].name() != Forgetting::card.name) continue;
      for (std::size_t n = 0; n < s.schemes[p].lowered.terms.size(); ++n)
        if (std::holds_alternative<DecayTerm>(s.schemes[p].lowered.terms[n]))
          gate_terms.push_back(bound->term_index(p, n));
    }
    if (!gate_terms.empty()) gates.emplace(who, bound->args.mask);
  }
};

// Gradients by name, of which those by token are the rank's own; parameters and inputs that all tokens share are summed
// over the ranks.
class NamedSums {
 public:
  NamedSums(const PlanState& plan, std::span<const NamedGradient> named) {
    for (const NamedGradient& g : named) {
      const Input* const input = find_input(plan, g.name);
      const bool by_token =
          input != nullptr && (has_axis(*input, kQueries) || has_axis(*input, kKeys));
      all_.push_back({g.name, shared_.take(g.array, !by_token)});
    }
  }
  std::span<const NamedGradient> all() const noexcept { return all_; }
  void finish(const Group& group) { shared_.finish(group); }

 private:
  SharedGradients shared_;
  std::vector<NamedGradient> all_;
};

using ForwardCall = decltype(&ring_call);
void forward_of_plan(const Group& group, ForwardCall run, const LoweredAttention& lowered,
                     const AttentionArgs& call, std::span<const NamedArray> inputs,
                     const AttentionResult& result, const Executor& executor) {
  const LoweredState& s = StateAccess::of(lowered);
  CallArena arena;
  RankPlanCall plan(group.who(), s, call, inputs, arena);
  const AttentionArgs& a = plan.bound ? plan.bound->args : call;
  run(group, a, plan.bound ? plan.bound->lowered() : LoweredCall{}, result, executor, plan.problem,
      [&](KeyedCall& own) { plan.agreed(group, s, own); });
}

using BackwardCall = decltype(&ring_call_backward);
void backward_of_plan(const Group& group, BackwardCall run, const LoweredAttention& lowered,
                      const AttentionArgs& call, std::span<const NamedArray> inputs,
                      const ConstAttentionResult& result, const ConstAttentionResult& d_result,
                      const AttentionGradients& gradients, std::span<const NamedGradient> named,
                      const Executor& executor) {
  const LoweredState& s = StateAccess::of(lowered);
  CallArena arena;
  RankPlanCall plan(group.who(), s, call, inputs, arena);
  NamedSums sums(*s.plan, named);
  std::optional<PlanGradients> all;
  if (plan.bound) try {
      {
        CallArena checks;  // the caller's own arrays against each other
        PlanGradients(s, *plan.bound, gradients, named, checks).check_upstream(d_result);
      }
      all.emplace(s, *plan.bound, gradients, sums.all(), arena);
    } catch (...) {
      plan.problem = std::current_exception();
    }
  const AttentionArgs& a = plan.bound ? plan.bound->args : call;
  SummedGradients summed;
  if (plan.bound) summed = {plan.bound->first_own, plan.bound->own, s.requests.head_scale.empty()};
  run(group, a, plan.bound ? plan.bound->lowered() : LoweredCall{}, result, d_result,
      all ? all->gradients : gradients, summed, executor, plan.problem,
      [&](KeyedCall& own) { plan.agreed(group, s, own); });
  try {
    if (!all->gradients.terms.empty())
      for (const std::size_t n : plan.gate_terms)
        if (const TermGradient& g = all->gradients.terms[n]; g.key.data != nullptr)
          plan.gates->add_gradients(group, g);
    all->pull_back(s, *plan.bound);
  } catch (...) {
    group.end();
    throw;
  }
  sums.finish(group);
}

}  // namespace
}  // namespace detail

void ring_attend(const LoweredAttention& lowered, const AttentionArgs& call,
                 std::span<const NamedArray> inputs, const AttentionResult& result,
                 const Communicator& c, const RingOptions& options, const Executor& executor) {
  detail::forward_of_plan(detail::Group(detail::kRing, c, options), detail::ring_call, lowered,
                          call, inputs, result, executor);
}

void ring_attend_backward(const LoweredAttention& lowered, const AttentionArgs& call,
                          std::span<const NamedArray> inputs, const ConstAttentionResult& result,
                          const ConstAttentionResult& d_result, const AttentionGradients& gradients,
                          std::span<const NamedGradient> named, const Communicator& c,
                          const RingOptions& options, const Executor& executor) {
  detail::backward_of_plan(detail::Group(detail::kRing, c, options), detail::ring_call_backward,
                           lowered, call, inputs, result, d_result, gradients, named, executor);
}

void ulysses_attend(const LoweredAttention& lowered, const AttentionArgs& call,
                    std::span<const NamedArray> inputs, const AttentionResult& result,
                    const Communicator& c, const RingOptions& options, const Executor& executor) {
  detail::forward_of_plan(detail::Group(detail::kUlysses, c, options), detail::ulysses_call,
                          lowered, call, inputs, result, executor);
}

void ulysses_attend_backward(const LoweredAttention& lowered, const AttentionArgs& call,
                             std::span<const NamedArray> inputs, const ConstAttentionResult& result,
                             const ConstAttentionResult& d_result,
                             const AttentionGradients& gradients,
                             std::span<const NamedGradient> named, const Communicator& c,
                             const RingOptions& options, const Executor& executor) {
  detail::backward_of_plan(detail::Group(detail::kUlysses, c, options),
                           detail::ulysses_call_backward, lowered, call, inputs, result, d_result,
                           gradients, named, executor);
}

}  // namespace posenc::v0
