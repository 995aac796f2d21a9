// SPDX-License-Identifier: Apache-2.0
// A window inside the sentence. OUR OWN DEFINITION (absolute/paragraph_offset.h says why): of query
// i and key j, delta = query - key,
//   b_h(i, j) = near[h, delta + window]  where both stand in one sentence and |delta| <= window
//             = far[h]                   elsewhere
// near and far start at 0. The sentence of every query and key comes with the call, as the classes
// of the term's pair.
// What computes it stands in src/relative/local_window.cpp.
#pragma once
#include "posenc/relative/term.h"

namespace posenc::inline v0 {

struct LocalWindow {
  static constexpr Card card{"local_window", "window inside the sentence", "posenc",
                             "own definition"};
  Index window = 1;
  Index sentences = 1;  // sentence ids are 0 .. sentences - 1

  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;

  // Rows of the table: the window, then what is far; another sentence shifts behind all of it.
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;

  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            std::span<const TermGradient> g, std::span<const TensorView> dp) const;

  bool operator==(const LocalWindow&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("window", s.window,
      Field{
          .doc = "tokens to both sides", .unit = "tokens", .min = 0, .max = 1e6, .required = true});
    v("sentences", s.sentences,
      Field{.doc = "sentence ids of a call", .min = 1, .max = 4096, .required = true});
  }

 private:
  void check_fields() const;
};
static_assert(RelativeScheme<LocalWindow>);

}  // namespace posenc::v0
