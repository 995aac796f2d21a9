// SPDX-License-Identifier: Apache-2.0
// An offset a token from a table of distance rows, added to the position embedding before the first
// layer. POSENC'S OWN DEFINITION: surveys mention it without a formula. For token i of a document of n
//   offset_i = mean over visible j of E[clip(i - j, -window, window) + window],
// E [2 window + 1, width] learned (N(0, 0.02)); visible are the tokens j <= i (causal) or all of
// the document. O(tokens x width) by prefix sums over the rows of E, whatever the window.
// Implementation: src/absolute/distance_offset.cpp.
#pragma once
#include <span>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/core/parameter.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

struct DistanceOffset {
  static constexpr Card card{"distance_offset", "mean of learned rows by distance", "posenc",
                             "own definition"};
  Index width = 0;  // 0: as wide as the table of the call
  Index window = 0;
  bool causal = false;
  double init = 0.02;

  // table [2 window + 1, width].
  POSENC_API std::vector<Parameter> parameters() const;

  bool operator==(const DistanceOffset&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width, Field{.doc = "channels", .min = 1, .max = 1e6, .required = true});
    v("window", s.window,
      Field{.doc = "largest distance that has its own row",
            .unit = "tokens",
            .min = 0,
            .max = 1 << 30});
    v("causal", s.causal, Field{.doc = "a token sees itself and earlier tokens"});
    v("init", s.init, Field{.doc = "initial deviation of the table", .min = 0});
  }
};

// y = x + offset for tokens of documents packed in one sequence (cu_seqlens as in positions/sequence.h;
// a batch of equal lengths is 0, n, 2n ...). x and y [tokens, width] of f64 or f32, y may be x; x
// empty: the offsets themselves. table [2 window + 1, width] of f64 or f32. In double, rounded
// once. Throws [distance_offset]: shapes, dtypes, a width that is not the
// table's, boundaries, window negative or above 2^30.
POSENC_API void add_distance_offset(const DistanceOffset&, const ConstTensorView& table,
                                    const ConstTensorView& x, std::span<const Index> cu_seqlens,
                                    const TensorView& y);
// d_table [2 window + 1, width], f64 or f32, accumulated; d x is d y.
POSENC_API void distance_offset_gradient(const DistanceOffset&, const ConstTensorView& d_y,
                                         std::span<const Index> cu_seqlens,
                                         const TensorView& d_table);

}  // namespace posenc::v0
