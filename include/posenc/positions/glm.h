// SPDX-License-Identifier: Apache-2.0
// Positions of GLM (arXiv:2103.10360, section 2.1), two streams. The context counts 0, 1, ... and
// its second stream is 0. After it, each masked span is written out: its first stream stays at the
// position of its mask, its second counts 1, 2, ... The rotation is chatglm_2d of rotary/axial.h.
#pragma once
#include <span>
#include <vector>

#include "posenc/positions/view.h"

namespace posenc::inline v0 {

struct GlmSpan {
  Index mask = 0;    // index of its [MASK], [sMASK] or [gMASK] in the context
  Index tokens = 0;  // of the span, the one that starts it counted
};
// [2][1][context + tokens of the spans], spans in the order in which they are written out.
// Throws [glm]: context or tokens negative, a mask outside the context.
POSENC_API OwnedPositions glm_positions(Index context, std::span<const GlmSpan>);

// ChatGLM-6B: one span, after the start token, which the token ids contain.
struct ChatGlmTokens {
  Index start = 130004;  // <sop>, bos_token_id
  Index mask = 130000, gmask = 130001, smask = 130002;
  bool operator==(const ChatGlmTokens&) const = default;
};
struct ChatGlmRule {
  ChatGlmTokens tokens;
  bool two_streams = true;  // position_encoding_2d; false: the first stream only
  // true: the first stream continues to count after [gMASK] (the released code with one stream, and early
  // code with two). false: it stays at the mask, as after the other masks.
  bool gmask_counts_on = false;
  Index padded = 0;  // at masked tokens; real tokens count from 0
  bool operator==(const ChatGlmRule&) const = default;
};
// ids [t] or [b, t] of i32 or i64; mask [b, t], 1 = real token, or an empty view. The context ends
// at the first start token; the mask is the first of its kind. A decoded token has the position that
// it would have in the whole batch entry. Throws [chatglm]: a batch entry without start token, or
// before it without a mask, or with masks of two kinds (programs disagree which one counts); shapes.
POSENC_API OwnedPositions chatglm_positions(const ChatGlmRule&, const ConstTensorView& ids,
                                            const ConstTensorView& mask = {});

}  // namespace posenc::v0
