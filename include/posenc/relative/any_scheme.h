// SPDX-License-Identifier: Apache-2.0
// A relative scheme of any type, by value: of the registry, or defined by a program.
#pragma once
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

class AnyRelativeScheme {
 public:
  template <RelativeScheme S>
  AnyRelativeScheme(S scheme)
      : scheme_(std::make_shared<const S>(std::move(scheme))), operations_(&kOperations<S>) {}

  const Card& card() const noexcept { return *operations_->card; }
  std::vector<Parameter> parameters(const ScoreShape& s) const {
    return operations_->parameters(scheme_.get(), s);
  }
  // Of a scheme that reads nothing of a call: empty.
  std::vector<Input> inputs(const ScoreShape& s) const {
    return operations_->inputs(scheme_.get(), s);
  }
  void lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
    operations_->lower(scheme_.get(), s, p, out);
  }
  void bind(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
            std::span<Term> terms, TermStore& store) const {
    operations_->bind(scheme_.get(), s, p, call, terms, store);
  }
  void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                 const LoweredGradient& g, std::span<const TensorView> d_parameters,
                 std::span<const TensorView> d_inputs) const {
    operations_->pull_back(scheme_.get(), s, p, call, g, d_parameters, d_inputs);
  }

 private:
  struct Operations {
    const Card* card;
    std::vector<Parameter> (*parameters)(const void*, const ScoreShape&);
    std::vector<Input> (*inputs)(const void*, const ScoreShape&);
    void (*lower)(const void*, const ScoreShape&, std::span<const ConstTensorView>, LoweredTerms&);
    void (*bind)(const void*, const ScoreShape&, std::span<const ConstTensorView>, const CallData&,
                 std::span<Term>, TermStore&);
    void (*pull_back)(const void*, const ScoreShape&, std::span<const ConstTensorView>,
                      const CallData&, const LoweredGradient&, std::span<const TensorView>,
                      std::span<const TensorView>);
  };
  template <class S>
  static const S& as(const void* x) noexcept {
    return *static_cast<const S*>(x);
  }
  template <class S>
  static std::vector<Input> inputs_of(const void* x, const ScoreShape& s) {
    if constexpr (BindsInputs<S>)
      return as<S>(x).inputs(s);
    else
      return {};
  }
  template <class S>
  static void bind_to(const void* x, const ScoreShape& s, std::span<const ConstTensorView> p,
                      const CallData& call, std::span<Term> terms, TermStore& store) {
    if constexpr (BindsInputs<S>) as<S>(x).bind(s, p, call, terms, store);
  }
  template <class S>
  static constexpr Operations kOperations{
      &S::card,
      [](const void* x, const ScoreShape& s) { return as<S>(x).parameters(s); },
      &inputs_of<S>,
      [](const void* x, const ScoreShape& s, std::span<const ConstTensorView> p,
         LoweredTerms& out) { as<S>(x).lower(s, p, out); },
      &bind_to<S>,
      [](const void* x, const ScoreShape& s, std::span<const ConstTensorView> p,
         const CallData& call, const LoweredGradient& g, std::span<const TensorView> dp,
         std::span<const TensorView> di) { as<S>(x).pull_back(s, p, call, g, dp, di); }};

  std::shared_ptr<const void> scheme_;
  const Operations* operations_ = nullptr;
};

}  // namespace posenc::v0
