// SPDX-License-Identifier: Apache-2.0
// Tokens move down into the slots of evicted ones, bytes as they are. Page n of the result is page n of the sequence
// if nobody shares it: its tokens, and only earlier ones, are read before its slots are written. Else it is a new page.
#include "cache/cache_state.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

// A page of the sequence with all its uses.
struct SourcePage {
  std::size_t first_use, end_use;
  Index tokens;
  bool dense;  // from slot 0 on
};

struct Compaction {
  CacheState& s;
  std::vector<SourcePage> sources{};
  std::size_t kept = 0;  // pages that are full, from the first on
  std::vector<Index> targets{};
  Change change{};
  std::vector<Index> retained{};

  void find_sources() {
    const std::vector<PageUse>& uses = s.sequence.uses;
    for (std::size_t use = 0; use < uses.size(); ++use) {
      if (!continues_page(uses, use)) sources.push_back({use, use, 0, true});
      SourcePage& p = sources.back();
      const Index n = uses[use].there.count();
      p.dense = p.dense && uses[use].there == Slots::range(p.tokens, p.tokens + n);
      p.tokens += n, p.end_use = use + 1;
    }
    while (kept < sources.size() && sources[kept].tokens == s.page_size()) ++kept;
  }
  bool is_compact() const {
    return kept == sources.size() || (kept + 1 == sources.size() && sources[kept].dense);
  }
  bool stays(std::size_t source) const {
    return source < kept || s.is_exclusive(sources[source].end_use - 1);
  }

  void run() {
    find_sources();
    if (is_compact()) return;
    const auto size = static_cast<std::size_t>(s.page_size());
    const std::size_t count = (static_cast<std::size_t>(s.sequence.tokens) + size - 1) / size;
    Index needed = 0;
    for (std::size_t n = 0; n < count; ++n) needed += stays(n) ? 0 : 1;
    NewPages pages(*s.pool, needed);
    for (std::size_t n = 0; n < count; ++n)
      targets.push_back(stays(n) ? s.sequence.uses[sources[n].first_use].page : pages[--needed]);
    place(false);
    count_uses();
    place(true);
    pages.keep();
    for (const Index page : retained) s.pool->retain(page);
    s.commit(std::move(change));
  }

  // Which uses there will be, or the copies themselves.
  void place(bool copies) {
    if (!copies) change.next = s.sequence, change.next.uses.clear(), change.next.shift.clear();
    for_each_piece(s, s.page_size(), [&](std::size_t use, Index slot, Index token, Index n) {
      const PageUse& u = s.sequence.uses[use];
      const auto target = static_cast<std::size_t>(token / s.page_size());
      const Index page = targets[target], to = token % s.page_size();
      const bool written = target >= kept;  // then its orders are those of this sequence
      if (!copies)
        add_use(change.next, {page, Slots::range(to, to + n), written ? 0 : u.order},
                s.shift_of(use));
      else if (written)
        s.pool->copy_slots(*s.pool, u.page, slot, page, to, n, u.order);
    });
  }

  // A page is held once for each use: one more for each new use, one less for each old one. A new page is held once.
  void count_uses() {
    for (const PageUse& u : change.next.uses) retained.push_back(u.page);
    for (const PageUse& u : s.sequence.uses) change.released.push_back(u.page);
    for (std::size_t n = 0; n < targets.size(); ++n)
      if (!stays(n)) change.released.push_back(targets[n]);
  }
};

}  // namespace
}  // namespace detail

void KeyCache::compact() {
  detail::Compaction{*state_}.run();
}

}  // namespace posenc::v0
