// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees. Masks by order are bounds of a range of keys, unless given orders do not ascend;
// the other masks are read for each key inside the bounds.
#pragma once
#include <span>

#include "attention/call/ready_call.h"
#include "kernels/attention/args.h"

namespace posenc::inline v0::detail {

// At most two runs, in storage order: no key outside them is visible.
struct VisibleBounds {
  Run run[2];
  std::size_t count = 0;
  Runs runs() const& noexcept { return {run, count}; }
  Runs runs() const&& = delete;  // a view of a temporary
};
VisibleBounds visible_bounds(const ReadyCall&, Index b, Index h, const QueryPlace&) noexcept;
// Where orders do not ascend: runs of places in OrderView::ranks, of the keys whose orders a query may see.
struct RankRuns {
  std::int32_t begin[2] = {0, 0}, end[2] = {0, 0};
};
RankRuns rank_runs(const ReadyCall&, Index b, Index h, const QueryPlace&) noexcept;
// Whether place(b, i), but for its row, and the bounds of a query are the same for every b.
bool are_places_alike(const ReadyCall&) noexcept;

// The keys that query i of head h sees, in storage order; those of `keys` alone. Runs that a query may have:
// most_runs; among n keys at most n / 2 + 2.
using RunList = BoundedList<Run>;
Index most_runs(const ReadyCall&) noexcept;
void find_visible(const ReadyCall&, Index b, Index h, Index i, const QueryPlace&,
                  RunList& runs) noexcept;
void find_visible(const ReadyCall&, Index b, Index h, Index i, const QueryPlace&, Run keys,
                  RunList& runs) noexcept;
// Whether it sees any.
bool sees_any(const ReadyCall&, Index b, Index h, Index i, const QueryPlace&) noexcept;
// Whether a mask is read for each key of the bounds; whether one is that may differ from query to query.
bool reads_keys(const ReadyCall&) noexcept;
bool reads_pairs(const ReadyCall&) noexcept;
// Whether orders that do not ascend are the only mask that is read for each pair, and rank_runs say which are shown.
bool reads_ranks(const ReadyCall&) noexcept;

// A block of queries x keys: all pairs hidden, all visible, or some of each. The keys are those of
// each query's own row of keys. A block without pairs is hidden.
enum class MaskBlock : std::uint8_t { hidden, whole, mixed };
MaskBlock mask_block(const ReadyCall&, Index b, Index h, Run queries, Run keys) noexcept;

// Tiles of keys that any query may see, one flag a tile: [R, tiles of a row]. With `own` the keys of
// the queries' own orders too.
std::span<const std::uint8_t> tiles_seen(const ReadyCall&, bool own, CallArena&);

}  // namespace posenc::v0::detail
