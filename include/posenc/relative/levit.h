// SPDX-License-Identifier: Apache-2.0
// A learned number a head and absolute offset on a grid. LeViT, Graham et al., arXiv:2104.01136,
// section 4.2: S_ij += T[h, |dy| width + |dx|], dy and dx on axis 0 and axis 1 of the positions.
// Programs number the rows in the order of a scan of the grid, which is this one.
// Subsampled queries keep their positions on the grid of the keys (0, 2, 4 ..).
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct Levit {
  static constexpr Card card{"levit", "learned bias by absolute offset on a grid",
                             "arXiv:2104.01136", "sec. 4.2"};
  Index height = 14, width = 14;
  bool heads_first = true;

  Index rows() const noexcept { return height * width; }

  // table [heads, rows] (heads_first false: [rows, heads]), zeros.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Levit&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("height", s.height, Field{.doc = "rows of the grid of the keys", .min = 1, .max = 4096});
    v("width", s.width, Field{.doc = "columns of the grid of the keys", .min = 1, .max = 4096});
    v("heads_first", s.heads_first, Field{.doc = "the table is [heads, rows]"});
  }
};

}  // namespace posenc::v0
