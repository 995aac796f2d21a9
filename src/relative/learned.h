// SPDX-License-Identifier: Apache-2.0
// The learned arrays of a scheme by name, for lower, bind and pull_back.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "posenc/core/parameter.h"
#include "posenc/relative/scheme.h"

namespace posenc::inline v0::detail {

// value["w_r"] is the array in double, row-major. A name that parameters() does not have is a mistake
// of the scheme: std::logic_error, which every call of the scheme throws.
class LearnedValues {
 public:
  // Throws [scheme]: another number of arrays than parameters() has.
  template <class S>
  LearnedValues(const S& scheme, const ScoreShape& s, std::span<const ConstTensorView> p)
      : LearnedValues(S::card.name, scheme.parameters(s), p) {}
  LearnedValues(std::string_view who, std::vector<Parameter> declared,
                std::span<const ConstTensorView> p);

  // Throws [scheme]: another shape, or not f64 or f32.
  std::vector<double> operator[](std::string_view name) const;
  // Empty where the fields of the scheme leave it out.
  std::vector<double> if_any(std::string_view name) const;
  bool has(std::string_view name) const noexcept;
  const ArrayShape& shape(std::string_view name) const;

 private:
  friend class LearnedGradients;
  std::string_view who_;
  std::vector<Parameter> declared_;
  std::span<const ConstTensorView> given_;
};

// d["w_r"] is the gradient of a parameter, as the caller of pull_back gets it. One that stays empty is
// zeros.
class LearnedGradients {
 public:
  explicit LearnedGradients(const LearnedValues& of)
      : who_(of.who_), declared_(of.declared_), sums_(declared_.size()) {}
  std::vector<double>& operator[](std::string_view name);
  // Throws [scheme] what accumulate would reject.
  void check(std::span<const TensorView> to) const { check_gradients(who_, declared_, to); }
  // Adds to the arrays of the caller, in the order of parameters(). Throws [scheme] before anything
  // is written.
  void accumulate(std::span<const TensorView> to);

 private:
  std::string_view who_;
  std::vector<Parameter> declared_;
  std::vector<std::vector<double>> sums_;
};

}  // namespace posenc::v0::detail
