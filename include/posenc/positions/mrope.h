// SPDX-License-Identifier: Apache-2.0
// Positions of text mixed with images and videos: three streams (time, height, width). Qwen2-VL,
// arXiv:2409.12191, section 2.1; Qwen2.5-VL, arXiv:2502.13923; Qwen3-VL, arXiv:2511.21631.
//   text      consecutive integers, equal on the three streams
//   vision    (start + trunc(frame * interval), start + row, start + column) on the merged grid
#pragma once
#include <span>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/positions/view.h"

namespace posenc::inline v0 {

// Where the text after a vision block continues: at start + max(rows, columns) of the merged grid,
// regardless of the number of frames (transformers 5), or after the largest position of the block on
// any stream (Qwen's own code, transformers 4, vLLM). They differ for long videos only.
enum class NextText : std::uint8_t { after_space, after_all_axes };
template <>
struct EnumNames<NextText> {
  static constexpr std::array<std::string_view, 2> value{"after_space", "after_all_axes"};
};
// The delta is the largest position + 1 minus a number of tokens: the real tokens of the batch entry
// (transformers 5), or all of them including padding (transformers 4).
enum class DeltaCount : std::uint8_t { real_tokens, all_tokens };
template <>
struct EnumNames<DeltaCount> {
  static constexpr std::array<std::string_view, 2> value{"real_tokens", "all_tokens"};
};

struct MropeRule {
  Index merge = 2;               // spatial_merge_size
  double tokens_per_second = 1;  // frames of a video are interval = this * seconds apart
  NextText next_text = NextText::after_space;
  DeltaCount delta_count = DeltaCount::real_tokens;
  Index padded = 0;            // at masked tokens: 0 (transformers 5) or 1 (4)
  bool frames_apart = false;   // Qwen3-VL: each frame is a grid of its own; times are text
  bool whole_seconds = false;  // some releases cut the seconds to an integer first
  bool float32_times = false;  // products of seconds in float32, as transformers 5.23 forms them
  bool operator==(const MropeRule&) const = default;
};
// The rules as programs run them. tokens_per_second of Qwen2.5-VL is a number of its config.
POSENC_API MropeRule qwen2_vl_rule();                            // transformers 5.23
POSENC_API MropeRule qwen2_vl_classic_rule();                    // transformers 4, vLLM
POSENC_API MropeRule qwen2_5_vl_rule(double tokens_per_second);  // transformers 5.23
POSENC_API MropeRule qwen3_vl_rule();                            // transformers 5.23

// Grid of one image or video BEFORE merging: image_grid_thw, video_grid_thw. seconds: time between
// frames (second_per_grid_ts), videos only.
struct VisionGrid {
  Index frames = 1, rows = 0, columns = 0;
  double seconds = 1;
};

struct MropePositions {
  OwnedPositions positions;  // [3][batch][tokens]
  std::vector<Index> delta;  // by batch entry: decode position = cache length + delta, all streams
};

// token_types [b, t] (i32, i64, u8): 0 text, 1 image, 2 video; mask [b, t], 1 = real token, or an
// empty view. Images and videos are used in order over the batch. A run of image (video) tokens contains
// whole grids.
// Throws [mrope]: shapes that disagree, another token type, a grid that merge does not divide or
// that does not fill its run, missing or unused grids, seconds that are negative or not finite.
POSENC_API MropePositions mrope_positions(const MropeRule&, const ConstTensorView& token_types,
                                          const ConstTensorView& mask,
                                          std::span<const VisionGrid> images,
                                          std::span<const VisionGrid> videos);

}  // namespace posenc::v0
