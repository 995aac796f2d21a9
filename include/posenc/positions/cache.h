// SPDX-License-Identifier: Apache-2.0
// Positions counted inside a cache that drops tokens.
#pragma once
#include <vector>

#include "posenc/positions/view.h"

namespace posenc::inline v0 {

// StreamingLLM (arXiv:2309.17453, section 3.2): of `seen` tokens the first `sinks` and the last
// `recent` stay. Their numbers in the stream, by slot. Throws [sink_cache]: negative arguments.
POSENC_API std::vector<Index> sink_cache_tokens(Index seen, Index sinks, Index recent);

// Keys that were cached before rotation have the position of their slot, 0 .. cached + incoming - 1; a
// query has that of its own key. Llama-4 counts its temperature the same way. Throws [cache_slots].
struct CacheSlots {
  OwnedPositions query, key;
};
POSENC_API CacheSlots cache_slots(Index cached, Index incoming);

}  // namespace posenc::v0
