// SPDX-License-Identifier: Apache-2.0
// Positions of text mixed with images in three or four streams: HunYuan's XD-RoPE (HunYuan-VL,
// HunYuan-OCR in transformers and vLLM). The rotation is xd_rope of rotary/mrope.h.
//   text    its number in the batch entry, equal on all streams
//   image   (number in the batch entry,) column, row, number of the image; each row of patches ends with a
//           token one column further
// The first numbers continue after an image as if it were text.
#pragma once
#include "posenc/positions/mrope.h"

namespace posenc::inline v0 {

// Images are numbered through the whole batch (transformers 5.23), or in each batch entry (per_row).
enum class ImageNumber : std::uint8_t { over_batch, per_row };
template <>
struct EnumNames<ImageNumber> {
  static constexpr std::array<std::string_view, 2> value{"over_batch", "per_row"};
};

struct XdRopeRule {
  Index axes = 4;   // 4, or 3: without the number in the batch entry
  Index merge = 2;  // spatial_merge_size
  ImageNumber image_number = ImageNumber::over_batch;
  Index padded = 0;  // at masked tokens
  bool operator==(const XdRopeRule&) const = default;
};

// token_types [b, t] (i32, i64, u8): 0 text, 1 image; mask [b, t], 1 = real token, or an empty
// view; images (of one frame, sizes BEFORE merging) are used in order over the batch. A run of
// image tokens is one image: rows * (columns + 1) tokens after merging, or two more, which open and
// close it and count as text. delta: largest position + 1 - real tokens of the batch entry.
// Throws [xd_rope]: shapes that disagree, another token type, a run of another length, an image
// that merge does not divide or of several frames, missing or unused images.
POSENC_API MropePositions xd_rope_positions(const XdRopeRule&, const ConstTensorView& token_types,
                                            const ConstTensorView& mask,
                                            std::span<const VisionGrid> images);

}  // namespace posenc::v0
