// SPDX-License-Identifier: Apache-2.0
// Operations that change which tokens a sequence has, or their positions. None touches a stored number.
#include "posenc/cache/key_cache.h"

#include <utility>

#include "cache/cache_state.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {

using detail::kCache;

KeyCache::KeyCache(const PagePool& pool, const RotarySpec& rotary, KeyKeeping keeping)
    : state_(std::make_unique<detail::CacheState>(pool, rotary, keeping)) {}
KeyCache::KeyCache(std::unique_ptr<detail::CacheState> state) noexcept : state_(std::move(state)) {}
KeyCache::KeyCache(KeyCache&&) noexcept = default;
KeyCache& KeyCache::operator=(KeyCache&&) noexcept = default;
KeyCache::~KeyCache() = default;

const PagePool& KeyCache::pool() const noexcept {
  return state_->public_pool;
}
const RotarySpec& KeyCache::rotary() const noexcept {
  return state_->rotation->spec;
}
KeyKeeping KeyCache::keeping() const noexcept {
  return state_->keeping;
}
Index KeyCache::size() const noexcept {
  return state_->sequence.tokens;
}
Index KeyCache::next_order() const noexcept {
  return state_->sequence.next_order;
}
Index KeyCache::moves() const noexcept {
  return state_->sequence.moves;
}

Index KeyCache::pages() const noexcept {
  const std::vector<detail::PageUse>& uses = state_->sequence.uses;
  Index n = 0;
  for (std::size_t use = 0; use < uses.size(); ++use)
    n += detail::continues_page(uses, use) ? 0 : 1;
  return n;
}

Index KeyCache::runs() const {
  std::vector<std::vector<Index>> seen;
  for (std::size_t use = 0; use < state_->sequence.uses.size(); ++use) {
    const Index* const by = state_->shift_of(use);
    seen.emplace_back(by, by + state_->axes());
  }
  std::sort(seen.begin(), seen.end());
  return std::unique(seen.begin(), seen.end()) - seen.begin();
}

std::vector<Index> KeyCache::orders() const {
  std::vector<Index> all;
  all.reserve(static_cast<std::size_t>(size()));
  for (const detail::PageUse& use : state_->sequence.uses)
    detail::for_each_slot(use.there,
                          [&](Index slot) { all.push_back(state_->order_of(use, slot)); });
  return all;
}

OwnedPositions KeyCache::positions() const {
  std::vector<Index> all;
  all.reserve(static_cast<std::size_t>(state_->axes() * size()));
  const std::vector<detail::PageUse>& uses = state_->sequence.uses;
  for (Index axis = 0; axis < state_->axes(); ++axis)
    for (std::size_t use = 0; use < uses.size(); ++use) {
      const Index* const at = state_->pool->anchors(uses[use].page, axis);
      const Index by = state_->shift_of(use)[axis];
      detail::for_each_slot(uses[use].there, [&](Index slot) { all.push_back(at[slot] + by); });
    }
  return {std::move(all), static_cast<std::int32_t>(state_->axes())};
}

KeyCache KeyCache::fork() const {
  return KeyCache(std::make_unique<detail::CacheState>(*state_));
}

void KeyCache::clear() noexcept {
  state_->clear();
}

void KeyCache::rewind(Index order) {
  if (order < 0 || order > next_order())
    refuse_field(kCache, "order", "must be from 0 to " + std::to_string(next_order()), order);
  detail::Change c = state_->without_range(order, kUnbounded);
  Index& counted = c.next.counted;
  if (c.next.tokens > 0 && order < counted)
    refuse_field(kCache, "order",
                 "must not be that of a query of attend_selective, which has masked keys; fork the "
                 "cache before. It must be at least " +
                     std::to_string(counted),
                 order);
  counted = std::min(counted, order);
  c.next.next_order = order;
  state_->commit(std::move(c));
}

void KeyCache::evict(std::span<const Index> tokens) {
  const detail::CacheState& s = *state_;
  std::vector<detail::Slots> left;
  for (const detail::PageUse& use : s.sequence.uses) left.push_back(use.there);
  std::size_t use = 0;
  for (const Index order : tokens) {
    if (use >= left.size() || order < s.first_order(use) || order > s.last_order(use))
      use = s.use_from(order);
    const Index slot = s.slot_of(use, order);
    if (slot < 0) refuse_field(kCache, "tokens", "must be there, and one is not", order);
    if (!left[use].has(slot)) refuse_field(kCache, "tokens", "must be listed once", order);
    left[use].remove(slot);
  }
  state_->commit(s.without(0, left.size(), [&](std::size_t n) { return left[n]; }));
}

namespace {

void check_order_range(const KeyCache& cache, Index first, Index end) {
  if (first < 0 || first > end)
    refuse_field(kCache, "first", "must be from 0 to the end of the range, " + std::to_string(end),
                 first);
  if (end > cache.next_order())
    refuse_field(
        kCache, "end",
        "must be at most the order of the next token, " + std::to_string(cache.next_order()), end);
}

// The order of token n of those that are there.
Index order_of_token(const detail::CacheState& s, Index n) {
  for (const detail::PageUse& use : s.sequence.uses) {
    if (const Index count = use.there.count(); n >= count) {
      n -= count;
      continue;
    }
    Index order = 0;
    detail::for_each_slot(use.there, [&](Index slot) {
      if (n-- == 0) order = s.order_of(use, slot);
    });
    return order;
  }
  return s.sequence.next_order;
}

}  // namespace

void KeyCache::evict(Index first, Index end) {
  check_order_range(*this, first, end);
  if (first < end) state_->commit(state_->without_range(first, end));
}

Index KeyCache::keep(Index sinks, Index window) {
  if (sinks < 0) refuse_field(kCache, "sinks", "must not be negative", sinks);
  if (window < 0) refuse_field(kCache, "window", "must not be negative", window);
  const Index before = size();
  if (sinks >= before || window >= before - sinks) return 0;
  evict(order_of_token(*state_, sinks), order_of_token(*state_, before - window));
  return before - size();
}

namespace detail {
namespace {

// A sequence whose uses begin and end with the tokens of a range, and the pages that are used once more.
struct Shifting {
  const CacheState& s;
  Sequence next;
  std::vector<Index> retained{}, released{};

  // From this slot of a use on, a use of its own.
  void split(std::size_t use, Index slot) {
    const auto axes = static_cast<std::ptrdiff_t>(s.axes());
    const auto at = static_cast<std::ptrdiff_t>(use);
    PageUse upper = next.uses[use];
    upper.there = upper.there & Slots::range(slot, kMostSlots);
    next.uses[use].there = next.uses[use].there & Slots::range(0, slot);
    next.uses.insert(next.uses.begin() + at + 1, upper);
    const std::vector<Index> by(next.shift.begin() + at * axes,
                                next.shift.begin() + (at + 1) * axes);
    next.shift.insert(next.shift.begin() + (at + 1) * axes, by.begin(), by.end());
    retained.push_back(upper.page);
  }
  // A use and the one before it, where they are one page with one shift.
  void join(std::size_t use) {
    if (use >= next.uses.size() || !continues_page(next.uses, use) ||
        next.uses[use].order != next.uses[use - 1].order)
      return;
    const auto axes = static_cast<std::ptrdiff_t>(s.axes());
    const auto by = next.shift.begin() + static_cast<std::ptrdiff_t>(use) * axes;
    if (!std::equal(by, by + axes, by - axes)) return;
    next.uses[use - 1].there = next.uses[use - 1].there | next.uses[use].there;
    released.push_back(next.uses[use].page);
    next.uses.erase(next.uses.begin() + static_cast<std::ptrdiff_t>(use));
    next.shift.erase(by, by + axes);
  }

  void add(Index first, Index end, std::span<const Index> delta) {
    std::size_t from = s.use_from(first), to = s.use_from(end);
    if (to < s.sequence.uses.size() && s.first_order(to) < end)
      split(to, s.slot_from(to, end)), ++to;
    if (from < s.sequence.uses.size() && s.first_order(from) < first) {
      split(from, s.slot_from(from, first));
      ++from, ++to;
    }
    for (std::size_t use = from; use < to; ++use)
      for (std::size_t a = 0; a < delta.size(); ++a) next.shift[use * delta.size() + a] += delta[a];
    join(to), join(from);
    for (std::size_t a = 0; a < delta.size(); ++a) {
      next.lowest[a] = std::min(next.lowest[a], next.lowest[a] + delta[a]);
      next.highest[a] = std::max(next.highest[a], next.highest[a] + delta[a]);
    }
    s.check_positions(next, s.rotation->spec);
  }
};

}  // namespace
}  // namespace detail

void KeyCache::shift(Index first, Index end, std::span<const Index> delta) {
  detail::CacheState& s = *state_;
  check_order_range(*this, first, end);
  detail::check_delta(s, delta);
  if (s.next_token(first) >= end ||
      std::all_of(delta.begin(), delta.end(), [](Index d) { return d == 0; }))
    return;
  detail::Shifting c{s, s.sequence};
  c.add(first, end, delta);
  for (const Index page : c.retained) s.pool->retain(page);
  s.commit({std::move(c.next), std::move(c.released)});
}

}  // namespace posenc::v0
