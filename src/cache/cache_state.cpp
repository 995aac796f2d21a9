// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_state.h"

#include "core/known_enum.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {

namespace {

RotarySpec for_any_length(RotarySpec s) {
  for (RotaryBlock& b : s.blocks) b.spectrum.valid_from = 0, b.spectrum.valid_to = kUnbounded;
  return s;
}

}  // namespace

CacheRotation::CacheRotation(const RotarySpec& s, KeyType type)
    : spec(s),
      any_length(for_any_length(s)),
      rotates(!s.blocks.empty()),
      any_shift(s.precision == Precision::exact),
      narrow(any_length, DType::f32) {
  if (s.precision != Precision::ggml) wide.emplace(any_length, DType::f64);
  if (type == KeyType::f16 || type == KeyType::bf16)
    sixteen.emplace(any_length, static_cast<DType>(type));
}

void check_rotation(const RotarySpec& s, const PoolState& pool, KeyKeeping keeping) {
  const PoolSizes& sizes = pool.sizes;
  check_rotary(s);
  if (s.head_dim != sizes.head_dim)
    refuse_field(kCache, "head_dim",
                 "of the rotation must be that of the pool, " + std::to_string(sizes.head_dim),
                 s.head_dim);
  if (!s.blocks.empty() && s.axes() != sizes.axes)
    refuse_field(kCache, "axes",
                 "of the rotation must be those of the pool, " + std::to_string(sizes.axes),
                 s.axes());
  for (const RotaryBlock& b : s.blocks) {
    if (b.spectrum.heads > 1 && b.spectrum.heads != sizes.heads)
      refuse_field(
          kCache, "heads",
          "of a spectrum for each head must be those of the keys, " + std::to_string(sizes.heads),
          b.spectrum.heads);
    if (sizes.values_in_keys && keeping == KeyKeeping::anchored && b.offset < sizes.value_dim)
      refuse_field(kCache, "values_in_keys",
                   "needs values that do not rotate, below channel " +
                       std::to_string(sizes.value_dim) + ", but a rotary block begins at channel",
                   b.offset);
  }
}

CacheState::CacheState(const PagePool& of, const RotarySpec& rotary, KeyKeeping how)
    : pool(StateAccess::shared(of)), public_pool(of), keeping(how) {
  check_known(kCache, "keeping", how);
  check_rotation(rotary, *pool, how);
  rotation = std::make_shared<const CacheRotation>(rotary, pool->sizes.key_type);
  sequence.lowest.resize(static_cast<std::size_t>(axes()));
  sequence.highest = sequence.lowest;
}

CacheState::CacheState(const CacheState& other)
    : pool(other.pool),
      public_pool(other.public_pool),
      keeping(other.keeping),
      rotation(other.rotation),
      sequence(other.sequence) {
  for (const PageUse& use : sequence.uses) pool->retain(use.page);
}

Index CacheState::first_order(std::size_t use) const noexcept {
  const PageUse& u = sequence.uses[use];
  return order_of(u, u.there.first());
}
Index CacheState::last_order(std::size_t use) const noexcept {
  const PageUse& u = sequence.uses[use];
  return order_of(u, u.there.last());
}

std::size_t CacheState::use_from(Index order) const noexcept {
  std::size_t low = 0, high = sequence.uses.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (last_order(middle) < order)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Orders of a page ascend, also those of slots that are no longer there.
Index CacheState::slot_from(std::size_t use, Index order) const noexcept {
  const PageUse& u = sequence.uses[use];
  const Index* const o = pool->orders(u.page);
  return std::lower_bound(o + u.there.first(), o + u.there.last() + 1, order - u.order) - o;
}

Index CacheState::next_token(Index order) const noexcept {
  const std::size_t use = use_from(order);
  if (use == sequence.uses.size()) return kUnbounded;
  const PageUse& u = sequence.uses[use];
  return order_of(u, (u.there & Slots::range(slot_from(use, order), kMostSlots)).first());
}

Index CacheState::slot_of(std::size_t use, Index order) const noexcept {
  if (use >= sequence.uses.size() || order < first_order(use)) return -1;
  const Index slot = slot_from(use, order);
  const PageUse& u = sequence.uses[use];
  return u.there.has(slot) && order_of(u, slot) == order ? slot : -1;
}

Index CacheState::uses_of_page(std::size_t use) const noexcept {
  Index n = 1;
  for (; continues_page(sequence.uses, use); --use) ++n;
  return n;
}

Change CacheState::without_range(Index first, Index end) const {
  const std::size_t begin = use_from(first), stop = use_from(end);
  return without(begin, std::min(stop + 1, sequence.uses.size()), [&](std::size_t use) {
    if (use > begin && use < stop) return Slots{};  // all of it, without a look at its orders
    const Slots there = sequence.uses[use].there;
    const Index from = first <= first_order(use) ? 0 : slot_from(use, first);
    const Index to = end > last_order(use) ? kMostSlots : slot_from(use, end);
    return there & (Slots::range(0, from) | Slots::range(to, kMostSlots));
  });
}

void CacheState::commit(Change&& c) noexcept {
  sequence = std::move(c.next);
  pool->release(c.released);
}

void CacheState::retain_parts() noexcept {
  for (std::size_t use = 1; use < sequence.uses.size(); ++use)
    if (continues_page(sequence.uses, use)) pool->retain(sequence.uses[use].page);
}

void CacheState::clear() noexcept {
  pool->release(sequence.uses.size(), [&](std::size_t n) { return sequence.uses[n].page; });
  sequence.uses.clear(), sequence.shift.clear();
  sequence.tokens = sequence.next_order = sequence.moves = sequence.counted = 0;
}

void CacheState::find_bounds(Sequence& s) const {
  for (Index axis = 0; axis < axes(); ++axis) {
    Index low = kUnbounded, high = -kUnbounded;
    for (std::size_t use = 0; use < s.uses.size(); ++use) {
      const Index* const at = pool->anchors(s.uses[use].page, axis);
      const Index by =
          s.shift[use * static_cast<std::size_t>(axes()) + static_cast<std::size_t>(axis)];
      for_each_slot(s.uses[use].there, [&](Index slot) {
        low = std::min(low, at[slot] + by), high = std::max(high, at[slot] + by);
      });
    }
    s.lowest[static_cast<std::size_t>(axis)] = low,
    s.highest[static_cast<std::size_t>(axis)] = high;
  }
}

void CacheState::check_positions(Sequence& s, const RotarySpec& spec) const {
  const Index most = std::min(kMostPosition, spec.valid_to() - 1);
  bool beyond = false;
  for (std::size_t a = 0; a < s.lowest.size(); ++a)
    beyond = beyond || s.lowest[a] < -kMostPosition || s.highest[a] > most;
  if (!beyond || s.tokens == 0) return;
  find_bounds(s);
  check_bounds(s, spec);
}

void add_use(Sequence& s, const PageUse& use, const Index* shift) {
  const auto axes = s.lowest.size();
  if (!s.uses.empty()) {
    PageUse& last = s.uses.back();
    if (last.page == use.page && last.order == use.order &&
        std::equal(shift, shift + axes, s.shift.end() - static_cast<std::ptrdiff_t>(axes))) {
      last.there = last.there | use.there;
      return;
    }
  }
  s.uses.push_back(use);
  s.shift.insert(s.shift.end(), shift, shift + axes);
}

std::vector<Index> shift_of_new(const CacheState& s, const std::vector<Index>& lowest,
                                const std::vector<Index>& highest) {
  const auto axes = static_cast<std::size_t>(s.axes());
  const std::size_t uses = s.sequence.uses.size();
  if (uses == 0 || (s.keeping == KeyKeeping::anchored && !s.rotation->any_shift))
    return std::vector<Index>(axes);
  const Index* const last = s.shift_of(uses - 1);
  for (std::size_t a = 0; a < axes; ++a)
    if (lowest[a] - last[a] < -kMostPosition || highest[a] - last[a] > kMostPosition)
      return std::vector<Index>(axes);
  return {last, last + axes};
}

std::size_t token_array_index(const CacheState& s, std::string_view name) noexcept {
  const std::vector<TokenArray>& all = s.pool->sizes.arrays;
  std::size_t n = 0;
  while (n < all.size() && all[n].name != name) ++n;
  return n;
}

void check_in_a_row(const CacheState& s, std::string_view why) {
  if (s.sequence.tokens == 0) return;
  const Index last = s.last_order(s.sequence.uses.size() - 1);
  if (const Index missing = last - s.first_order(0) + 1 - s.sequence.tokens; missing != 0)
    refuse_field(kCache, why,
                 "sums over the keys in between, so only the oldest tokens may be evicted; missing",
                 missing);
}

void check_delta(const CacheState& s, std::span<const Index> delta) {
  if (static_cast<Index>(delta.size()) != s.axes())
    refuse_field(kCache, "delta", "must have " + axes_text(s.axes()),
                 static_cast<Index>(delta.size()));
  const bool shifts = std::any_of(delta.begin(), delta.end(), [](Index d) { return d != 0; });
  if (shifts && s.keeping == KeyKeeping::anchored && !s.rotation->any_shift)
    refuse_field(kCache, "shift",
                 "of anchored keys needs the precision exact, because others rotate by more than "
                 "the distance; keep such keys unrotated. The precision is",
                 enum_text(s.rotation->spec.precision));
  for (const Index d : delta)
    if (d < -2 * kMostPosition || d > 2 * kMostPosition)
      refuse_field(kCache, "delta", "must be at most 2^38 in magnitude", d);
}

void check_bounds(const Sequence& s, const RotarySpec& spec) {
  if (s.tokens == 0) return;
  const Index valid = spec.valid_to();
  for (std::size_t axis = 0; axis < s.lowest.size(); ++axis) {
    if (s.lowest[axis] < -kMostPosition)
      refuse_field(kCache, "positions", "must be at least -2^37", s.lowest[axis]);
    if (s.highest[axis] > kMostPosition)
      refuse_field(kCache, "positions", "must be at most 2^37", s.highest[axis]);
    if (s.highest[axis] >= valid)
      refuse_field(kCache, "positions",
                   "must be below " + std::to_string(valid) +
                       ", the length up to which the frequencies hold",
                   s.highest[axis]);
  }
}

}  // namespace posenc::v0::detail
