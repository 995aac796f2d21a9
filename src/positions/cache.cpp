// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/cache.h"

#include "posenc/positions/sequence.h"
#include "positions/exact.h"

namespace posenc::inline v0 {

std::vector<Index> sink_cache_tokens(Index seen, Index sinks, Index recent) {
  if (seen < 0) refuse_field("sink_cache", "seen", "must not be negative", seen);
  if (sinks < 0) refuse_field("sink_cache", "sinks", "must not be negative", sinks);
  if (recent < 0) refuse_field("sink_cache", "recent", "must not be negative", recent);
  std::vector<Index> kept;
  const bool all = sinks >= seen || recent >= seen - sinks;
  for (Index t = 0; t < (all ? seen : sinks); ++t) kept.push_back(t);
  if (!all)
    for (Index t = seen - recent; t < seen; ++t) kept.push_back(t);
  return kept;
}

CacheSlots cache_slots(Index cached, Index incoming) {
  if (cached < 0) refuse_field("cache_slots", "cached", "must not be negative", cached);
  if (incoming < 0) refuse_field("cache_slots", "incoming", "must not be negative", incoming);
  return {arange(cached, incoming), arange(0, add_exact(cached, incoming, "cache_slots"))};
}

}  // namespace posenc::v0
