// SPDX-License-Identifier: Apache-2.0
// A sequence of a cache: which slots of which pages are its tokens, and how far they were shifted.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "cache/pool_state.h"
#include "cache/slots.h"
#include "posenc/cache/key_cache.h"
#include "posenc/rotary/plan.h"

namespace posenc::inline v0::detail {

inline constexpr Index kMostPosition = Index{1} << 37;

// Slots of one page with one shift. A page whose tokens have two shifts has two uses, one after the other. So has a page
// whose tokens were appended twice, and then slots of the second one may come before those of the first.
struct PageUse {
  Index page = 0;
  Slots there;
  Index order = 0;  // added to the orders of the page
};

struct Sequence {
  // Ascending by order, without empty ones. shift: of each use and axis.
  std::vector<PageUse> uses;
  std::vector<Index> shift;
  Index tokens = 0, next_order = 0, moves = 0;
  Index counted = 0;  // queries of orders below have masked keys (attend_selective)
  // Positions are within these, of each axis. They need not occur.
  std::vector<Index> lowest, highest;
};

// The use has later slots of the page of the use before it.
inline bool continues_page(const std::vector<PageUse>& uses, std::size_t use) noexcept {
  return use > 0 && uses[use].page == uses[use - 1].page &&
         uses[use - 1].there.last() < uses[use].there.first();
}
// Slots behind those of the last use, of which they become a part if they are its page with its shift and order.
void add_use(Sequence&, const PageUse&, const Index* shift);

struct Change {
  Sequence next;
  std::vector<Index> released{};  // pages, one for each use that ends
};

// A rotation, prepared. Lengths are checked by the cache: a chunk of a prefill may be short, and a query is rotated by
// its position minus a shift.
struct CacheRotation {
  explicit CacheRotation(const RotarySpec&, KeyType);

  RotarySpec spec;
  RotarySpec any_length;  // the same without a range of lengths
  bool rotates = false;
  bool any_shift = true;              // its rotation depends on distances only
  RotaryPlan narrow;                  // f32
  std::optional<RotaryPlan> wide;     // f64, which ggml's precision does not have
  std::optional<RotaryPlan> sixteen;  // of keys in 16 bits
};

struct CacheState {
  std::shared_ptr<PoolState> pool;
  PagePool public_pool;
  KeyKeeping keeping;
  std::shared_ptr<const CacheRotation> rotation;
  Sequence sequence;

  CacheState(const PagePool&, const RotarySpec&, KeyKeeping);
  CacheState(const CacheState&);  // shares the pages
  CacheState& operator=(const CacheState&) = delete;
  ~CacheState() { clear(); }

  Index axes() const noexcept { return pool->sizes.axes; }
  Index page_size() const noexcept { return pool->sizes.page_size; }
  const Index* shift_of(std::size_t use) const noexcept {
    return sequence.shift.data() + use * static_cast<std::size_t>(axes());
  }
  Index order_of(const PageUse& use, Index slot) const noexcept {
    return pool->orders(use.page)[slot] + use.order;
  }
  Index first_order(std::size_t use) const noexcept;
  Index last_order(std::size_t use) const noexcept;
  // The first use with a token of this order or a later one.
  std::size_t use_from(Index order) const noexcept;
  // The first slot of a use with this order or a later one.
  Index slot_from(std::size_t use, Index order) const noexcept;
  // The order of the first token that is there from this order on; kUnbounded: none.
  Index next_token(Index order) const noexcept;
  // The slot of a token that is there; -1: it is not.
  Index slot_of(std::size_t use, Index order) const noexcept;
  // Uses of the same page in a row, this one the last.
  Index uses_of_page(std::size_t use) const noexcept;
  bool is_exclusive(std::size_t use) const noexcept {
    return pool->references(sequence.uses[use].page) == uses_of_page(use);
  }

  // A sequence that is not the cache's yet, and what its pages lose: keep(use) of the slots of a use that stay.
  template <class F>
  Change without(std::size_t first_use, std::size_t end_use, const F& keep) const;
  Change without_range(Index first, Index end) const;
  void commit(Change&&) noexcept;
  // Of new pages, each held once: those with several uses are held once for each.
  void retain_parts() noexcept;
  void clear() noexcept;
  // The smallest and the largest position of each axis that occur.
  void find_bounds(Sequence&) const;
  // Throws [key_cache]: positions that the rotation does not allow. Looks at the tokens only if the bounds do not tell.
  void check_positions(Sequence&, const RotarySpec&) const;
};

template <class F>
Change CacheState::without(std::size_t first_use, std::size_t end_use, const F& keep) const {
  Change c{sequence};
  std::size_t to = first_use;
  const auto count = static_cast<std::size_t>(axes());
  for (std::size_t use = first_use; use < sequence.uses.size(); ++use) {
    PageUse left = sequence.uses[use];
    if (use < end_use) {
      left.there = keep(use);
      c.next.tokens -= sequence.uses[use].there.without(left.there).count();
    }
    if (!left.there.any()) {
      c.released.push_back(left.page);
      continue;
    }
    c.next.uses[to] = left;
    std::copy_n(shift_of(use), count, c.next.shift.begin() + static_cast<Index>(to * count));
    ++to;
  }
  c.next.uses.resize(to), c.next.shift.resize(to * count);
  return c;
}

// The shift of new tokens, whose positions are within these: that of the last token, which bounds how many shifts there
// are, unless keys would be rotated at positions beyond 2^37 or depend on more than the distance.
std::vector<Index> shift_of_new(const CacheState&, const std::vector<Index>& lowest,
                                const std::vector<Index>& highest);
void check_rotation(const RotarySpec&, const PoolState&, KeyKeeping);
// The index of a token array of the pool; their number: there is none.
std::size_t token_array_index(const CacheState&, std::string_view name) noexcept;
// Throws [key_cache]: tokens in between are missing; `why` needs them.
void check_in_a_row(const CacheState&, std::string_view why);
// Throws [key_cache]: what cannot be added to the positions of tokens.
void check_delta(const CacheState&, std::span<const Index> delta);
// Throws [key_cache]: positions within the bounds that the cache or its rotation does not allow.
void check_bounds(const Sequence&, const RotarySpec&);
// Each slot of a use with its token, in order.
template <class F>
void for_each_slot(const Slots& s, const F& f) {
  for (std::size_t w = 0; w < s.bits.size(); ++w)
    for (std::uint64_t b = s.bits[w]; b != 0; b &= b - 1)
      f(static_cast<Index>(64 * w) + std::countr_zero(b));
}
// Runs of neighbouring slots: f(first, count).
template <class F>
void for_each_run(const Slots& s, const F& f) {
  Index first = -1, next = -1;
  for_each_slot(s, [&](Index slot) {
    if (slot != next) {
      if (first >= 0) f(first, next - first);
      first = slot;
    }
    next = slot + 1;
  });
  if (first >= 0) f(first, next - first);
}

// All tokens one behind the other, in pieces within pages of this size: f(use, slot, token, count).
template <class F>
void for_each_piece(const CacheState& s, Index page_size, const F& f) {
  Index token = 0;
  for (std::size_t use = 0; use < s.sequence.uses.size(); ++use)
    for_each_run(s.sequence.uses[use].there, [&](Index slot, Index n) {
      while (n > 0) {
        const Index part = std::min(n, page_size - token % page_size);
        f(use, slot, token, part);
        token += part, slot += part, n -= part;
      }
    });
}

}  // namespace posenc::v0::detail
