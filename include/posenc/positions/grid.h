// SPDX-License-Identifier: Apache-2.0
// Positions of patches of images and videos: several axes, tokens row by row, the last axis of the
// shape running fastest. Axis a of the result is coordinate a: (row, column), (frame, row, column).
// Most vision towers are one of these, put together:
//   Qwen2-VL            merge_blocks(grid({rows, columns}), rows, columns, 2)
//   Gemma-4, RoPE-ViT   swap_xy(grid({rows, columns}))
//   Llama-4             with_special_tokens(swap_xy(grid({rows, columns}, 1)), 0, 1)
//   EVA-02, timm        scaled_grid({rows, columns}, {16, 16})
//   DINOv3              with_special_tokens(patch_centres(rows, columns), 1 + registers, 0)
#pragma once
#include <initializer_list>
#include <span>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/positions/view.h"

namespace posenc::inline v0 {

// Integer coordinates first, first + 1, ... on every axis ("ij" order). Throws [grid]: no axis,
// more than 8, negative size, more than 2^40 tokens.
POSENC_API OwnedPositions grid(std::span<const Index> shape, Index first = 0);
POSENC_API OwnedPositions grid(std::initializer_list<Index> shape, Index first = 0);

// (index + offset) / shape * reference on every axis: patches of another resolution at the
// coordinates of the one trained on. EVA-02 (arXiv:2303.11331), timm's ref_feat_shape and
// grid_offset. In double, in this order of operations. Throws [scaled_grid].
POSENC_API OwnedPositions scaled_grid(std::span<const Index> shape,
                                      std::span<const double> reference, double offset = 0);

// linspace(low, high, n) on every axis (lucidrains' axial and timm's pixel grids: -1 to 1); a
// single point is at low. Throws [linspace_grid].
POSENC_API OwnedPositions linspace_grid(std::span<const Index> shape, double low = -1,
                                        double high = 1);

// Patch centres in [-1, 1]: 2 (i + 1/2) / n - 1 with n the axis's own size, the larger or the
// smaller of the two for both. DINOv3 (arXiv:2508.10104), timm's "centered". Throws
// [patch_centres].
enum class CentreNormalisation : std::uint8_t { separate, max, min };
template <>
struct EnumNames<CentreNormalisation> {
  static constexpr std::array<std::string_view, 3> value{"separate", "max", "min"};
};
POSENC_API OwnedPositions patch_centres(Index rows, Index columns,
                                        CentreNormalisation = CentreNormalisation::separate);

// DINOv3's training-time augmentation with the numbers that were drawn, in its order: plus shift,
// times exp(log_jitter), an axis each; times exp(log_rescale), all axes. Throws [augmented].
struct GridAugmentation {
  std::vector<double> shift, log_jitter;  // one an axis; empty: none
  double log_rescale = 0;
};
POSENC_API OwnedPositions augmented(const Positions&, const GridAugmentation&);

// The last two axes exchanged: column before row ("xy" order). Tokens stay row by row.
POSENC_API OwnedPositions swap_xy(const Positions&);

// Running counts of the visible pixels along each axis, from 1, axes (row, column): DETR
// (arXiv:2005.12872, appendix A.4) and its descendants. mask [b, rows, columns] of u8, i32 or i64,
// 1 = visible. Normalised: count / (last count of the column or row + eps) * scale; a row that is
// all padding stays near 0. Throws [counted_grid].
struct CountedGrid {
  bool normalise = true;
  double scale = 6.283185307179586, eps = 1e-6;
};
POSENC_API OwnedPositions counted_grid(const ConstTensorView& mask, const CountedGrid& = {});

// c / size[axis] * (high - low) + low: points in pixels to coordinates (SAM: -1 to 1). Throws
// [normalised]: one size an axis, finite and not 0.
POSENC_API OwnedPositions normalised(const Positions&, std::span<const double> size,
                                     double low = -1, double high = 1);

// Every coordinate rounded to float32, as in programs that compute grids in float32 (diffusers' sincos
// grids, whose table is computed in double).
POSENC_API OwnedPositions in_float32(const Positions&);

// Tokens of each frame in the order of merge x merge blocks (blocks row by row, inside a block row
// by row), as the patch mergers of Qwen2-VL and its descendants require. A batch entry has
// frames x rows x columns tokens. Throws [merge_blocks]: sizes that merge does not
// divide.
POSENC_API OwnedPositions merge_blocks(const Positions&, Index rows, Index columns, Index merge);

}  // namespace posenc::v0
