// SPDX-License-Identifier: Apache-2.0
// Memory of cached keys and values: pages of equal size, which sequences (key_cache.h) share and release. Keys and
// values are [pages, page size, heads, channels], the layout that attend reads through a block_table.
#pragma once
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "posenc/rotary/rerotation_plan.h"

namespace posenc::inline v0 {

namespace detail {
struct PoolState;
struct StateAccess;
}  // namespace detail

// An array with an entry for each cached token, which belongs to its key: the document, a class, a sum of
// forgetting gates. Entries follow their keys when these are shared, evicted or copied.
struct TokenArray {
  std::string name;
  DType dtype = DType::i64;    // i64, i32, f64 or f32
  std::vector<Index> shape{};  // of one token's entry, at most 2 axes; {}: one number
};

struct PoolSizes {
  Index pages = 0;
  Index page_size = 16;  // tokens, 16 .. 256
  Index heads = 0;       // of the keys
  Index head_dim = 0;    // channels of a key
  Index value_dim = 0;   // channels of a value; 0: keys only
  // MLA: the value is the first value_dim channels of its key, and no values are stored.
  bool values_in_keys = false;
  KeyType key_type = KeyType::f32;
  KeyType value_type = KeyType::f32;
  Index axes = 1;  // of the positions, 1 .. 16
  std::vector<TokenArray> arrays{};
};

// A pool has fewer free pages than an operation needs. Nothing has changed.
class POSENC_API OutOfPages : public std::runtime_error {
 public:
  OutOfPages(Index needed, Index free);
  Index needed() const noexcept { return needed_; }
  Index free() const noexcept { return free_; }

 private:
  Index needed_, free_;
};

// Copies share the pool. Threads may use one pool at once, each with sequences of its own.
class PagePool {
 public:
  // The library's memory. Throws [page_pool]: sizes; OutOfMemory.
  POSENC_API explicit PagePool(const PoolSizes&);
  // The caller's memory, which must outlive the pool: [pages, page size, heads, channels] with the channels of a head
  // side by side; q8_0 by key_blocks. `values` is empty without values, or with values_in_keys. Contents are not read
  // before they are written. Throws [page_pool].
  POSENC_API PagePool(const PoolSizes&, const Heads& keys, const Heads& values = {});

  POSENC_API const PoolSizes& sizes() const noexcept POSENC_LIFETIME_BOUND;
  POSENC_API Index free_pages() const;
  // Sequences that hold a page, a page with two shifts counted twice. Throws [page_pool]: no such page.
  POSENC_API Index references(Index page) const;
  // All pages. Write them through sequences only. values(): empty for keys only.
  POSENC_API ConstHeads keys() const noexcept;
  POSENC_API ConstHeads values() const noexcept;

 private:
  friend struct detail::StateAccess;
  std::shared_ptr<detail::PoolState> state_;
};

}  // namespace posenc::v0
