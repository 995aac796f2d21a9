// SPDX-License-Identifier: Apache-2.0
// A learned number a head and offset inside a window. Swin, Liu et al., arXiv:2103.14030, equation 4:
//   S_ij += T[(dy + height - 1) (2 width - 1) + dx + width - 1, h]
// dy, dx: query minus key on axis 0 (row) and axis 1 (column) of the positions. MaxViT's ported
// tables (timm) count key minus query and are kept [heads, 2 height - 1, 2 width - 1]. The number is
// not scaled with q.k; torchvision's MaxViT scales q.k by the width of the model. The mask of shifted
// windows is the call's.
#pragma once
#include "posenc/relative/clipped.h"

namespace posenc::inline v0 {

// [rows, heads], [heads, rows], [heads, 2 height - 1, 2 width - 1].
enum class WindowTable : std::uint8_t { rows, heads_first, grid };
template <>
struct EnumNames<WindowTable> {
  static constexpr std::array<std::string_view, 3> value{"rows", "heads_first", "grid"};
};

struct Swin {
  static constexpr Card card{"swin", "learned bias by offset in a window", "arXiv:2103.14030",
                             "eq. 4"};
  Index height = 7, width = 7;
  DistanceSign sign = DistanceSign::query_minus_key;
  WindowTable table = WindowTable::rows;

  Index rows() const noexcept { return (2 * height - 1) * (2 * width - 1); }
  // Row of an offset query - key.
  POSENC_API Index row(Index dy, Index dx) const noexcept;

  // table, truncated normal of deviation 0.02.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Swin&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("height", s.height, Field{.doc = "rows of the window", .min = 1, .max = 4096});
    v("width", s.width, Field{.doc = "columns of the window", .min = 1, .max = 4096});
    v("sign", s.sign, Field{.doc = "offset by which the rows of the table are ordered"});
    v("table", s.table, Field{.doc = "the axes of the table"});
  }
};

}  // namespace posenc::v0
