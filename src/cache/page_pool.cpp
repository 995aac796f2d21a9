// SPDX-License-Identifier: Apache-2.0
#include "posenc/cache/page_pool.h"

#include <algorithm>
#include <cstring>

#include "cache/pool_state.h"
#include "cache/slots.h"
#include "core/extent.h"
#include "core/head_views.h"
#include "core/known_enum.h"
#include "core/memory_limit.h"
#include "core/overlap.h"
#include "core/shape.h"
#include "kernels/q8_0.h"
#include "kernels/token.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

void check_between(std::string_view field, Index got, Index least, Index most) {
  if (got < least || got > most)
    refuse_field(kPool, field,
                 "must be from " + std::to_string(least) + " to " + std::to_string(most), got);
}

void check_blocks(std::string_view field, KeyType type, Index channels) {
  if (type == KeyType::q8_0 && channels % kQ8Numbers != 0)
    refuse_field(kPool, field, "must be a multiple of 32 where it is stored in q8_0", channels);
}

void check_token_array(const TokenArray& a, const PoolSizes& sizes) {
  if (a.name.empty()) refuse_field(kPool, "arrays", "must have names");
  Index same = 0;
  for (const TokenArray& other : sizes.arrays) same += other.name == a.name ? 1 : 0;
  if (same > 1) refuse_field(kPool, "arrays", "must have different names", a.name);
  if (a.dtype != DType::i64 && a.dtype != DType::i32 && a.dtype != DType::f64 &&
      a.dtype != DType::f32)
    refuse_field(kPool, a.name, "must be i64, i32, f64 or f32", dtype_name(a.dtype));
  if (a.shape.size() > 2)
    refuse_field(kPool, a.name, "must have at most 2 axes for a token",
                 static_cast<Index>(a.shape.size()));
  for (const Index n : a.shape)
    if (n < 1 || n > 65536) refuse_field(kPool, a.name, "must have axes of 1 to 65536", n);
}

void check_sizes(const PoolSizes& s) {
  check_known(kPool, "key_type", s.key_type);
  check_known(kPool, "value_type", s.value_type);
  check_between("pages", s.pages, 1, Index{1} << 40);
  check_between("page_size", s.page_size, 16, kMostSlots);
  check_between("heads", s.heads, 1, 65536);
  check_between("head_dim", s.head_dim, 1, 65536);
  check_between("value_dim", s.value_dim, 0, s.values_in_keys ? s.head_dim : Index{65536});
  check_between("axes", s.axes, 1, kMaxAxes);
  check_blocks("head_dim", s.key_type, s.head_dim);
  check_blocks("value_dim", s.values_in_keys ? s.key_type : s.value_type, s.value_dim);
  if (s.values_in_keys && s.value_dim == 0)
    refuse_field(kPool, "value_dim", "must be set with values_in_keys", s.value_dim);
  for (const TokenArray& a : s.arrays) check_token_array(a, s);
}

Index head_bytes(KeyType type, Index channels) noexcept {
  return stored_channels(type, channels) * size_of(stored_dtype(type));
}

std::size_t pool_bytes(const PoolSizes& s, std::string_view what, Index bytes_a_token) {
  Index bytes = 0;
  if (__builtin_mul_overflow(s.pages * s.page_size, bytes_a_token, &bytes))
    refuse_memory(kPool, what, SIZE_MAX);
  check_memory(kPool, what, static_cast<std::size_t>(bytes));
  return static_cast<std::size_t>(bytes);
}

Heads pages_of(void* data, const PoolSizes& s, KeyType type, Index channels) {
  const Index shape[] = {s.pages, s.page_size, s.heads, stored_channels(type, channels)};
  const TensorView v = tensor(data, stored_dtype(type), shape);
  return type == KeyType::q8_0 ? key_blocks(v, HeadsLayout::bthd) : heads(v, HeadsLayout::bthd);
}

void check_pages(const PoolSizes& s, const Heads& h, KeyType type, Index channels,
                 std::string_view what) {
  const Index dim = stored_channels(type, channels);
  if (h.data == nullptr || h.batch != s.pages || h.tokens != s.page_size || h.heads != s.heads ||
      h.dim != dim)
    refuse_shape(kPool, what,
                 "must have memory of [pages, page size, heads, channels], " +
                     sizes_text({s.pages, s.page_size, s.heads, dim}),
                 shape_text(h));
  if (h.dtype != stored_dtype(type))
    refuse_field(kPool, what, "must be of " + std::string(dtype_name(stored_dtype(type))),
                 dtype_name(h.dtype));
  if (h.dim_stride != 1)
    refuse_field(kPool, what, "must have the channels of a head side by side, stride",
                 h.dim_stride);
  check_extent(kPool, what, h);
  check_no_self_overlap(kPool, {what, memory_of(h)});
}

// Heads of slots, down or apart.
void copy_heads(const Heads& from, const Heads& to) noexcept {
  const auto dense = [](const Heads& h) { return h.head_stride == h.dim || h.heads == 1; };
  const Index size = size_of(to.dtype), token = to.heads * to.dim;
  const bool tokens = dense(from) && dense(to);  // each as one row
  const auto copy = [&](Index slot, Index head, Index numbers) {
    const auto at = [&](const Heads& h) {
      return static_cast<std::byte*>(h.data) +
             (slot * h.token_stride + head * h.head_stride) * size;
    };
    std::memmove(at(to), at(from), static_cast<std::size_t>(numbers * size));
  };
  if (tokens && from.token_stride == token && to.token_stride == token)
    return copy(0, 0, to.tokens * token);
  for (Index slot = 0; slot < to.tokens; ++slot)
    for (Index head = 0; head < (tokens ? 1 : to.heads); ++head)
      copy(slot, head, tokens ? token : to.dim);
}

}  // namespace

Index stored_channels(KeyType type, Index channels) noexcept {
  return type == KeyType::q8_0 ? channels / kQ8Numbers * kQ8Bytes : channels;
}
DType stored_dtype(KeyType type) noexcept {
  return type == KeyType::q8_0 ? DType::u8 : static_cast<DType>(type);
}

PoolState::PoolState(const PoolSizes& of, const Heads* k, const Heads* v) : sizes(of) {
  check_sizes(of);
  const bool own_values = of.value_dim > 0 && !of.values_in_keys;
  if (k != nullptr) {
    check_pages(of, *k, of.key_type, of.head_dim, "keys");
    keys = *k;
    if (own_values) {
      check_pages(of, *v, of.value_type, of.value_dim, "values");
      check_separate(kPool, {"keys", memory_of(*k)}, {"values", memory_of(*v)});
      values = *v;
    } else if (v->data != nullptr) {
      refuse_field(kPool, "values", "must be empty for keys only, and for values in keys");
    }
  } else {
    key_memory_.resize(pool_bytes(of, "keys", of.heads * head_bytes(of.key_type, of.head_dim)));
    keys = pages_of(key_memory_.data(), of, of.key_type, of.head_dim);
    if (own_values) {
      value_memory_.resize(
          pool_bytes(of, "values", of.heads * head_bytes(of.value_type, of.value_dim)));
      values = pages_of(value_memory_.data(), of, of.value_type, of.value_dim);
    }
  }
  order.resize(pool_bytes(of, "orders", 8) / 8);
  anchor.resize(pool_bytes(of, "positions", 8 * of.axes) / 8);
  for (const TokenArray& a : of.arrays) {
    Index bytes = size_of(a.dtype);
    for (const Index n : a.shape) bytes *= n;
    entry_bytes.push_back(bytes);
    arrays.emplace_back(pool_bytes(of, a.name, bytes));
  }
  uses_ = std::vector<std::atomic<std::int32_t>>(static_cast<std::size_t>(of.pages));
  free_.resize(static_cast<std::size_t>(of.pages));
  for (Index page = 0; page < of.pages; ++page)  // the first page is taken first
    free_[static_cast<std::size_t>(page)] = of.pages - 1 - page;
}

std::vector<Index> PoolState::take(Index pages) {
  std::vector<Index> taken(static_cast<std::size_t>(pages));
  const std::lock_guard lock(mutex_);
  if (taken.size() > free_.size()) throw OutOfPages(pages, static_cast<Index>(free_.size()));
  for (Index& page : taken) {
    page = free_.back();
    free_.pop_back();
    uses_[static_cast<std::size_t>(page)].store(1, std::memory_order_relaxed);
  }
  return taken;
}

void PoolState::retain(Index page) noexcept {
  uses_[static_cast<std::size_t>(page)].fetch_add(1, std::memory_order_relaxed);
}

Index PoolState::references(Index page) const noexcept {
  return uses_[static_cast<std::size_t>(page)].load(std::memory_order_acquire);
}

Index PoolState::free_pages() const {
  const std::lock_guard lock(mutex_);
  return static_cast<Index>(free_.size());
}

void PoolState::copy_slots(const PoolState& pool, Index from_page, Index from, Index to_page,
                           Index to, Index n, Index order_by) noexcept {
  Index* const to_order = orders(to_page) + to;
  const auto bytes = static_cast<std::size_t>(n) * sizeof(Index);
  if (&pool != this || from_page != to_page || from != to) {
    copy_heads(pool.key_slots(from_page, from, n), key_slots(to_page, to, n));
    if (stores_values())
      copy_heads(pool.value_slots(from_page, from, n), value_slots(to_page, to, n));
    std::memmove(to_order, pool.orders(from_page) + from, bytes);
    for (Index axis = 0; axis < sizes.axes; ++axis)
      std::memmove(anchors(to_page, axis) + to, pool.anchors(from_page, axis) + from, bytes);
    for (std::size_t a = 0; a < arrays.size(); ++a)
      std::memmove(entry(a, to_page, to), pool.entry(a, from_page, from),
                   static_cast<std::size_t>(n * entry_bytes[a]));
  }
  for (Index slot = 0; slot < n; ++slot) to_order[slot] += order_by;
}

Heads PoolState::key_slots(Index page, Index slot, Index n) const noexcept {
  return token_range(keys, page, slot, n);
}
Heads PoolState::value_slots(Index page, Index slot, Index n) const noexcept {
  return token_range(values, page, slot, n);
}
ConstHeads PoolState::readable_values() const noexcept {
  if (!sizes.values_in_keys) return values;
  ConstHeads v = keys;
  v.dim = stored_channels(sizes.key_type, sizes.value_dim);
  return v;
}

}  // namespace detail

OutOfPages::OutOfPages(Index needed, Index free)
    : std::runtime_error("[page_pool] the operation needs " + std::to_string(needed) +
                         (needed == 1 ? " page" : " pages") + ", and " + std::to_string(free) +
                         (free == 1 ? " is free" : " are free")),
      needed_(needed),
      free_(free) {}

PagePool::PagePool(const PoolSizes& sizes)
    : state_(std::make_shared<detail::PoolState>(sizes, nullptr, nullptr)) {}
PagePool::PagePool(const PoolSizes& sizes, const Heads& keys, const Heads& values)
    : state_(std::make_shared<detail::PoolState>(sizes, &keys, &values)) {}

const PoolSizes& PagePool::sizes() const noexcept {
  return state_->sizes;
}
Index PagePool::free_pages() const {
  return state_->free_pages();
}
Index PagePool::references(Index page) const {
  if (page < 0 || page >= state_->sizes.pages)
    refuse_field(detail::kPool, "page",
                 "must be within the " + std::to_string(state_->sizes.pages) + " pages of the pool",
                 page);
  return state_->references(page);
}
ConstHeads PagePool::keys() const noexcept {
  return state_->keys;
}
ConstHeads PagePool::values() const noexcept {
  return state_->readable_values();
}

}  // namespace posenc::v0
