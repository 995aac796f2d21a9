// SPDX-License-Identifier: Apache-2.0
// The arrays of a call by the names of inputs(), for bind and pull_back.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "posenc/core/parameter.h"
#include "posenc/relative/scheme.h"

namespace posenc::inline v0::detail {

// given["hidden"] is the array as the call has it. A name that inputs() does not have is a mistake of the
// scheme: std::logic_error.
class CallInputs {
 public:
  // Throws [scheme] inputs: another number of arrays than inputs() has.
  template <class S>
  CallInputs(const S& scheme, const ScoreShape& s, const CallData& call)
      : CallInputs(S::card.name, scheme.inputs(s), call.inputs) {}
  CallInputs(std::string_view who, std::vector<Input> declared,
             std::span<const ConstTensorView> given);

  const ConstTensorView& operator[](std::string_view name) const;
  bool has(std::string_view name) const noexcept;
  // Of the array that the call has.
  std::vector<Index> shape(std::string_view name) const;

 private:
  friend class InputGradients;
  std::string_view who_;
  std::vector<Input> declared_;
  std::span<const ConstTensorView> given_;
};

// d["hidden"] is the gradient of an array, dense and of its shape.
class InputGradients {
 public:
  explicit InputGradients(const CallInputs&);
  std::vector<double>& operator[](std::string_view name);
  // Throws [scheme] what accumulate would reject.
  void check(std::span<const TensorView> to) const {
    if (!to.empty()) check_gradients(who_, arrays_, to);
  }
  // Adds to the arrays of the caller, in the order of inputs(); an empty list is skipped. Throws
  // [scheme] before anything is written.
  void accumulate(std::span<const TensorView> to) const {
    if (!to.empty()) v0::accumulate(who_, arrays_, to, sums_);
  }

 private:
  std::string_view who_;
  std::vector<Parameter> arrays_;
  std::vector<std::vector<double>> sums_;
};

}  // namespace posenc::v0::detail
