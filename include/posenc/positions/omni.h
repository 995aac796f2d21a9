// SPDX-License-Identifier: Apache-2.0
// Positions of text mixed with sound, images and videos: three streams (time, height, width), sound
// and video on one clock. TMRoPE, Qwen2.5-Omni, arXiv:2503.20215, section 2.2; Qwen3-Omni,
// arXiv:2509.17765. Times may be real numbers: the 26th position of a second is no integer frame.
//   text, sound   one position a token, equal on the three streams
//   vision        (start + frame * seconds * positions_per_second, start + row, start + column)
//   a video with its sound: both start together and their tokens are interleaved
#pragma once
#include <span>
#include <vector>

#include "posenc/positions/mrope.h"

namespace posenc::inline v0 {

// How the tokens of a video and its sound are interleaved: in chunks of some seconds, first the frames,
// then the sound (Qwen2.5-Omni); or each frame at its time, before the sound of that time (Qwen3-Omni).
enum class SoundInterleave : std::uint8_t { by_chunk, by_time };
template <>
struct EnumNames<SoundInterleave> {
  static constexpr std::array<std::string_view, 2> value{"by_chunk", "by_time"};
};

struct OmniRule {
  Index merge = 2;                  // spatial_merge_size
  double positions_per_second = 0;  // position_id_per_seconds, a number of the config
  SoundInterleave interleave = SoundInterleave::by_time;
  double seconds_per_chunk = 2;  // by_chunk
  // Times truncated to integers, or kept in float32, in which the program then counts everything.
  bool whole_positions = false;
  // The two tokens that open a video with sound share one position, and so do the two that close it.
  bool shared_marks = false;
  Index padded = 0, padded_without_grids = 1;  // at masked tokens; in calls without any grid
  bool operator==(const OmniRule&) const = default;
};
// As transformers 5.23 runs them.
POSENC_API OmniRule qwen2_5_omni_rule(double positions_per_second, double seconds_per_chunk);
POSENC_API OmniRule qwen3_omni_rule(double positions_per_second);

// Tokens of a recording, from its mel frames. Throws [omni]: frames negative.
POSENC_API Index qwen2_5_omni_sound_tokens(Index frames);
POSENC_API Index qwen3_omni_sound_tokens(Index frames, Index window = 50);  // n_window

struct OmniPositions {
  OwnedPositions positions;   // [3][batch][tokens]; doubles unless whole_positions
  std::vector<double> delta;  // by batch entry: decode position = cache length + delta, all streams
};

// token_types [b, t] (i32, i64, u8): 0 text, 1 image, 2 video, 3 sound; mask [b, t], 1 = real
// token, or an empty view. Images and videos are used in order over the batch. Every run of one kind is
// one image, one video or one recording between an opening and a closing token (two of each around a
// video with sound, whose run has types 2 and 3 in the order of the rule). The text after a video with
// sound continues after the last piece of either.
// Throws [omni]: shapes that disagree, another token type, a grid that merge does not divide or
// that does not fill its run, an order that is not the rule's, missing opening or closing tokens,
// missing or unused grids, numbers that are negative or not finite.
POSENC_API OmniPositions omni_positions(const OmniRule&, const ConstTensorView& token_types,
                                        const ConstTensorView& mask,
                                        std::span<const VisionGrid> images,
                                        std::span<const VisionGrid> videos);

}  // namespace posenc::v0
