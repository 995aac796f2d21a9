// SPDX-License-Identifier: Apache-2.0
// A relative scheme at drawn distances: distance d is read at past[d], and at -d at
// -future[d]. Ruoss et al., arXiv:2305.16843, as their code makes relative and ALiBi encodings
// "noisy": distances are drawn once (random_distances, positions/random.h), so the bias stays one
// number a distance, unlike that of differences of drawn positions. future empty: as past.
//   S_ij += b(past[i - j]) for j <= i,   b(-future[j - i]) else
// The scheme S is any with terms by whole distance on axis 0; one that reads positions by themselves
// (FIRE) or real distances is rejected. What computes it is in src/relative/drawn_distances.cpp.
#pragma once
#include <algorithm>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

namespace detail {
// The shape with the distances that are read. Throws [drawn_distances]: lists that do not start at
// 0, do not rise or do not reach as far as the call.
POSENC_API ScoreShape drawn_shape(const ScoreShape&, std::span<const Index> past,
                                  std::span<const Index> future);
// Terms from `first` on that were lowered for drawn_shape, as terms of the call's own distances.
POSENC_API void redraw_terms(LoweredTerms&, std::size_t first, const ScoreShape&,
                             std::span<const Index> past, std::span<const Index> future);
// The gradients of redrawn terms as those of the terms they were made of.
struct DrawnGradient {
  std::vector<TermGradient> terms;
  std::vector<std::vector<double>> values;
};
POSENC_API DrawnGradient undraw_gradient(std::span<const Term> terms, const LoweredGradient&,
                                         const ScoreShape&, std::span<const Index> past,
                                         std::span<const Index> future);
}  // namespace detail

template <RelativeScheme S>
struct DrawnDistances {
  static constexpr Card card{"drawn_distances", "a scheme at drawn distances", "arXiv:2305.16843",
                             "code"};
  S scheme{};
  std::vector<Index> past{0}, future{};

  std::vector<Parameter> parameters(const ScoreShape& s) const {
    return scheme.parameters(drawn(s));
  }
  std::vector<Input> inputs(const ScoreShape& s) const {
    if constexpr (BindsInputs<S>)
      return scheme.inputs(drawn(s));
    else
      return {};
  }
  void lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
    const std::size_t first = out.terms.size();
    scheme.lower(drawn(s), p, out);
    detail::redraw_terms(out, first, s, past, ahead());
  }
  void bind(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
            std::span<Term> terms, TermStore& store) const {
    if constexpr (BindsInputs<S>) scheme.bind(drawn(s), p, call, terms, store);
  }
  void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                 const LoweredGradient& g, std::span<const TensorView> dp,
                 std::span<const TensorView> d_inputs) const {
    LoweredTerms own;
    scheme.lower(drawn(s), p, own);
    const detail::DrawnGradient d = detail::undraw_gradient(own.terms, g, s, past, ahead());
    scheme.pull_back(drawn(s), p, call, {d.terms, g.head_scale}, dp, d_inputs);
  }

  bool operator==(const DrawnDistances&) const = default;
  template <class T, class V>
  static constexpr void describe(T& s, V&& v) {
    v("past", s.past, Field{.doc = "the distance that stands for each, from 0 on"});
    v("future", s.future, Field{.doc = "the same of keys after the query; none: as past"});
  }

 private:
  std::span<const Index> ahead() const { return future.empty() ? past : future; }
  // A plan queries parameters before it knows distances.
  ScoreShape drawn(const ScoreShape& s) const {
    return s.distance.empty() ? s : detail::drawn_shape(s, past, ahead());
  }
};

}  // namespace posenc::v0
