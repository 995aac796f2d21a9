// SPDX-License-Identifier: Apache-2.0
// A window inside the sentence. POSENC'S OWN DEFINITION (see absolute/paragraph_offset.h): of query
// i and key j, delta = query - key,
//   b_h(i, j) = near[h, delta + window]  if both are in one sentence and |delta| <= window
//             = far[h]                   elsewhere
// near and far start at 0. Axes of the positions of the call: 0 the token, 1 its sentence (any whole
// numbers), as in paragraph_offset.
// Implementation: src/relative/local_window.cpp.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct LocalWindow {
  static constexpr Card card{"local_window", "window inside the sentence", "posenc",
                             "own definition"};
  Index window = 1;

  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;

  // Two terms of one table of the window's rows and the far one: inside a sentence a row by
  // distance, across sentences the far row; each is disabled where the other applies.
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;

  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const LocalWindow&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("window", s.window,
      Field{
          .doc = "tokens on both sides", .unit = "tokens", .min = 0, .max = 1e6, .required = true});
  }

 private:
  void check_fields() const;
};

}  // namespace posenc::v0
