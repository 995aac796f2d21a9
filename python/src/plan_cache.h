// SPDX-License-Identifier: Apache-2.0
// Plans of the last calls, and what they lowered to: a step of training and its backward pass, or the
// layers of a model that share their parameters, lower once.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "posenc/attention/plan.h"

namespace posenc::python {

// One plan with the last two things it lowered to.
class KeptPlan {
 public:
  explicit KeptPlan(AttentionPlan plan);
  ~KeptPlan();
  const AttentionPlan& plan() const noexcept { return plan_; }
  // plan().lower of these, or what an earlier call with equal numbers and distances lowered. From any
  // thread. Throws what AttentionPlan::lower throws.
  LoweredAttention lower(std::span<const NamedArray> parameters,
                         std::span<const DistanceRange> distance);

 private:
  struct Recent;
  AttentionPlan plan_;
  std::unique_ptr<Recent> recent_;
};

// Everything that a plan of encodings depends on.
std::string plan_key(const std::vector<std::string>& texts, const AttentionSizes&, Index length);
// The plan of an earlier call whose key was equal; `make` makes it where there is none. At most 32 are
// kept. From any thread.
std::shared_ptr<KeptPlan> kept_plan(const std::string& key,
                                    const std::function<AttentionPlan()>& make);
// How often this process lowered encodings that no cache had: of `attend` and at the input.
std::uint64_t lowered_count() noexcept;
void count_lowering() noexcept;

}  // namespace posenc::python
