// SPDX-License-Identifier: Apache-2.0
// A window's table with a class token. BEiT, Bao et al., arXiv:2106.08254, after Swin's
// (relative/swin.h): n = (2 height - 1) (2 width - 1) rows for two patches, then
//   n class to patch, n + 1 patch to class, n + 2 class to class (the first is the query)
// The inputs are query_class and key_class, 1 for a class token; its position is not read.
// transformers exchanges height and width where a window is not square.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct Beit {
  static constexpr Card card{"beit", "bias by offset in a window, class token", "arXiv:2106.08254",
                             "code"};
  Index height = 14, width = 14;
  bool heads_first = false;

  Index rows() const noexcept { return (2 * height - 1) * (2 * width - 1) + 3; }

  // table [rows, heads] (heads_first: [heads, rows]), zeros.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Beit&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("height", s.height, Field{.doc = "rows of the window", .min = 1, .max = 4096});
    v("width", s.width, Field{.doc = "columns of the window", .min = 1, .max = 4096});
    v("heads_first", s.heads_first, Field{.doc = "the table is [heads, rows]"});
  }
};

}  // namespace posenc::v0
