// SPDX-License-Identifier: Apache-2.0
// Keys of one keeping that become those of the other.
#pragma once
#include "cache/cache_state.h"

namespace posenc::inline v0::detail {

// Every key of a part, whose pages nobody shares, is rewritten once. cut_blocks: RerotationOptions.
// Unrotated ones are rotated at position - shift of the last token of `before`, whose run they continue.
void rotate_part(CacheState& part, const CacheState& before, bool cut_blocks, const Executor&);
// Anchored ones are turned back from where they were rotated. Throws [key_cache]: xPos.
void turn_back_part(CacheState& part, bool cut_blocks, const Executor&);

}  // namespace posenc::v0::detail
