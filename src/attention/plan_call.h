// SPDX-License-Identifier: Apache-2.0
// One call of a plan: the caller's arguments with the schemes' terms bound, and the way back of the
// gradients.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <vector>

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
const NamedArray* find_array(std::span<const NamedArray>, const std::string& name);
void check_known_names(std::span<const NamedArray>, std::span<const std::string> known,
                       std::string_view what);

struct Extent {
  double min, max;
};
Extent extent_of(const Positions&, std::int32_t axis);
DistanceRange distance_between(const Extent& query, const Extent& key);

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

  void fill_positions();
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

  TensorView zeros(std::span<const Index> shape);
  TensorView like(const ConstTensorView&);
  Heads like(const ConstHeads&);
  TermGradient of_term(const Term&);
  void find_wanted(const PlanState&, std::span<const NamedGradient>, const AttentionGradients&);
  void place_terms(const PlanState&, const PlanCall&, const AttentionGradients& own);
};

}  // namespace detail
}  // namespace posenc::v0
