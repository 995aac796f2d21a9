// SPDX-License-Identifier: Apache-2.0
// What a pool holds: keys and values, what belongs to each token besides, and who uses a page.
#pragma once
#include <atomic>
#include <mutex>
#include <span>
#include <vector>

#include "core/huge_pages.h"
#include "core/state_access.h"
#include "posenc/cache/page_pool.h"

namespace posenc::inline v0::detail {

inline constexpr std::string_view kPool = "page_pool", kCache = "key_cache";

struct PoolState {
  PoolState(const PoolSizes&, const Heads* keys, const Heads* values);

  PoolSizes sizes;
  Heads keys, values;  // [pages, page size, heads, channels]
  // Of each slot: the number of its token in its first sequence, and the position at which its key was rotated
  // [page][axis][slot].
  std::vector<Index> order, anchor;
  std::vector<std::vector<std::byte>> arrays;  // [page][slot][entry]
  std::vector<Index> entry_bytes;              // of an entry of each array

  // Throws OutOfPages and takes none. A page belongs to one use.
  std::vector<Index> take(Index pages);
  void retain(Index page) noexcept;
  void release(std::span<const Index> pages) noexcept {
    release(pages.size(), [&](std::size_t n) { return pages[n]; });
  }
  template <class F>
  void release(std::size_t count, const F& page) noexcept;
  Index references(Index page) const noexcept;
  Index free_pages() const;

  Index* orders(Index page) noexcept { return order.data() + page * sizes.page_size; }
  const Index* orders(Index page) const noexcept { return order.data() + page * sizes.page_size; }
  Index* anchors(Index page, Index axis) noexcept {
    return anchor.data() + (page * sizes.axes + axis) * sizes.page_size;
  }
  const Index* anchors(Index page, Index axis) const noexcept {
    return anchor.data() + (page * sizes.axes + axis) * sizes.page_size;
  }
  std::byte* entry(std::size_t array, Index page, Index slot) noexcept {
    return arrays[array].data() + (page * sizes.page_size + slot) * entry_bytes[array];
  }
  const std::byte* entry(std::size_t array, Index page, Index slot) const noexcept {
    return arrays[array].data() + (page * sizes.page_size + slot) * entry_bytes[array];
  }
  // Key, value, anchor and entries of n slots of a pool whose tokens are of the same sizes, and their orders, to which
  // `order` is added. Slots of one page may overlap if they move down.
  void copy_slots(const PoolState& pool, Index from_page, Index from, Index to_page, Index to,
                  Index n, Index order) noexcept;
  void copy_slots(Index from_page, Index from, Index to_page, Index to, Index n) noexcept {
    copy_slots(*this, from_page, from, to_page, to, n, 0);
  }
  // n slots of a page as [1, n, heads, channels].
  Heads key_slots(Index page, Index slot, Index n) const noexcept;
  Heads value_slots(Index page, Index slot, Index n) const noexcept;
  // The values as attend reads them: those of their own, or channels of the keys.
  ConstHeads readable_values() const noexcept;
  bool stores_values() const noexcept { return sizes.value_dim > 0 && !sizes.values_in_keys; }

 private:
  std::vector<std::byte, UnwrittenPages<std::byte>> key_memory_, value_memory_;
  std::vector<std::atomic<std::int32_t>> uses_;
  mutable std::mutex mutex_;
  std::vector<Index> free_;
};

// What a sequence wrote or read of a page happens before another one that sees it alone, or takes it, writes it.
template <class F>
void PoolState::release(std::size_t count, const F& page) noexcept {
  if (count == 0) return;
  const std::lock_guard lock(mutex_);
  for (std::size_t n = 0; n < count; ++n)
    if (uses_[static_cast<std::size_t>(page(n))].fetch_sub(1, std::memory_order_acq_rel) == 1)
      free_.push_back(page(n));  // there is room for all pages
}

// Channels of a head as they are stored: bytes of q8_0, else numbers.
Index stored_channels(KeyType, Index channels) noexcept;
DType stored_dtype(KeyType) noexcept;

// Pages that no sequence holds yet: given back unless they are kept.
class NewPages {
 public:
  NewPages(PoolState& pool, Index n) : pool_(&pool), pages_(pool.take(n)) {}
  NewPages(const NewPages&) = delete;
  NewPages& operator=(const NewPages&) = delete;
  ~NewPages() {
    if (!kept_) pool_->release(pages_);
  }
  std::size_t size() const noexcept { return pages_.size(); }
  Index operator[](Index n) const noexcept { return pages_[static_cast<std::size_t>(n)]; }
  void keep() noexcept { kept_ = true; }

 private:
  PoolState* pool_;
  std::vector<Index> pages_;
  bool kept_ = false;
};

}  // namespace posenc::v0::detail
