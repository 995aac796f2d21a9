// SPDX-License-Identifier: Apache-2.0
// Tokens into pages: free slots of the last page, then new pages. Keys are rotated and rounded once.
#include <cstring>

#include "cache/cache_state.h"
#include "cache/stored_numbers.h"
#include "core/element.h"
#include "core/extent.h"
#include "core/head_views.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

struct Append {
  CacheState& s;
  const NewTokens& tokens;
  const Executor& executor;
  Index n = tokens.k.tokens;
  std::vector<const NamedArray*> arrays{};
  std::vector<Index> anchors{};            // [axes][n]
  std::vector<Index> lowest{}, highest{};  // of the positions
  std::vector<Index> shift{};
  // Where they go: free slots behind those of the last use, of which a shared page is copied first.
  Index slot = 0, room = 0;
  bool copies = false, continues = false;

  void check() {
    const PoolSizes& sizes = s.pool->sizes;
    check_heads("k", tokens.k, sizes.head_dim);
    if (s.pool->stores_values())
      check_heads("v", tokens.v, sizes.value_dim);
    else if (tokens.v.data != nullptr)
      refuse_field(kCache, "v", "must be empty, because the pool stores no values");
    check_positions();
    check_arrays();
  }

  void check_heads(std::string_view what, const ConstHeads& h, Index channels) const {
    if (!is_float(h.dtype))
      refuse_field(kCache, what, "must be f64, f32, f16 or bf16", dtype_name(h.dtype));
    check_extent(kCache, what, h);
    if (h.batch != 1 || h.tokens != n || h.heads != s.pool->sizes.heads || h.dim != channels)
      refuse_shape(kCache, what,
                   "must be [1, tokens, heads, channels], " +
                       sizes_text({1, n, s.pool->sizes.heads, channels}),
                   shape_text(h));
    if (h.data == nullptr && n > 0) refuse_field(kCache, what, "must have memory");
  }

  void check_positions() {
    const Positions& p = tokens.positions;
    check_positions_view(kCache, "positions", p);
    if (p.type == DType::f64)
      refuse_field(kCache, "positions", "must be whole numbers, i64 or i32", dtype_name(p.type));
    if (p.axes != s.axes())
      refuse_field(kCache, "positions", "must have " + axes_text(s.axes()), Index{p.axes});
    if (p.count != n || p.batch != 1)
      refuse_shape(kCache, "positions", "must be one for each of " + std::to_string(n) + " tokens",
                   sizes_text({p.batch, p.count}));
    for (Index axis = 0; axis < s.axes(); ++axis) {
      Index low = kUnbounded, high = -kUnbounded;
      for (Index t = 0; t < n; ++t) {
        const Index at = integer_position(p, axis, 0, t);
        low = std::min(low, at), high = std::max(high, at);
      }
      lowest.push_back(low), highest.push_back(high);
    }
    Sequence of_new;
    of_new.tokens = n, of_new.lowest = lowest, of_new.highest = highest;
    check_bounds(of_new, s.rotation->spec);
  }

  void check_arrays() {
    const std::vector<TokenArray>& wanted = s.pool->sizes.arrays;
    for (const NamedArray& a : tokens.arrays)
      if (std::none_of(wanted.begin(), wanted.end(),
                       [&](const TokenArray& w) { return w.name == a.name; }))
        refuse_field(kCache, "arrays", "must be token arrays of the pool", a.name);
    for (const TokenArray& w : wanted) {
      const auto is_it = [&](const NamedArray& a) { return a.name == w.name; };
      const auto a = std::find_if(tokens.arrays.begin(), tokens.arrays.end(), is_it);
      if (a == tokens.arrays.end() ||
          std::count_if(tokens.arrays.begin(), tokens.arrays.end(), is_it) > 1)
        refuse_field(kCache, "arrays", "must have each token array of the pool once", w.name);
      std::vector<Index> shape{n};
      shape.insert(shape.end(), w.shape.begin(), w.shape.end());
      const ConstTensorView& v = a->array;
      if (v.dtype != w.dtype || v.rank != static_cast<std::int32_t>(shape.size()) ||
          !std::equal(shape.begin(), shape.end(), v.shape.begin()))
        refuse_shape(kCache, w.name,
                     "must be " + sizes_text(shape) + " of " + std::string(dtype_name(w.dtype)), v);
      check_extent(kCache, w.name, v);
      if (v.device != Device::cpu || (v.empty() && n > 0))
        refuse_field(kCache, w.name, "must be in the CPU's memory");
      arrays.push_back(&*a);
    }
  }

  void choose_shift() {
    const auto axes = static_cast<std::size_t>(s.axes());
    shift = shift_of_new(s, lowest, highest);
    const Sequence& q = s.sequence;
    continues =
        !q.uses.empty() && std::equal(shift.begin(), shift.end(), s.shift_of(q.uses.size() - 1));
    anchors.resize(axes * static_cast<std::size_t>(n));
    for (std::size_t a = 0; a < axes; ++a)
      for (Index t = 0; t < n; ++t)
        anchors[a * static_cast<std::size_t>(n) + static_cast<std::size_t>(t)] =
            integer_position(tokens.positions, static_cast<Index>(a), 0, t) - shift[a];
  }

  void find_room() {
    if (s.sequence.uses.empty()) return;
    const std::size_t last = s.sequence.uses.size() - 1;
    slot = s.sequence.uses[last].there.last() + 1;
    room = s.page_size() - slot;
    copies = room > 0 && !s.is_exclusive(last);
  }

  void run() {
    check();
    if (n == 0) return;
    choose_shift();
    find_room();
    const Index in_last = std::min(room, n), size = s.page_size();
    NewPages pages(*s.pool, (copies ? 1 : 0) + (n - in_last + size - 1) / size);
    Sequence& q = s.sequence;
    if (const std::size_t most = q.uses.size() + pages.size() + 1; q.uses.capacity() < most) {
      q.uses.reserve(2 * most);
      q.shift.reserve(2 * most * shift.size());
    }
    if (in_last > 0) write_last(copies ? pages[0] : q.uses.back().page);
    Index next = copies ? 1 : 0;
    for (Index first = in_last; first < n; first += size)
      write(first, pages[next++], 0, std::min(size, n - first), 0);
    commit(pages);
  }

  // Free slots of the last page, or of its copy.
  void write_last(Index page) {
    const PageUse& use = s.sequence.uses.back();
    const Index first = use.there.first();
    if (copies) s.pool->copy_slots(use.page, first, page, first, slot - first);
    write(0, page, slot, std::min(room, n), use.order);
  }

  void commit(NewPages& pages) noexcept {
    Sequence& q = s.sequence;
    Index next = 0;
    if (copies) {
      s.pool->release({&q.uses.back().page, 1});
      q.uses.back().page = pages[next++];
    }
    const Index in_last = std::min(room, n), size = s.page_size();
    if (in_last > 0) {
      const Slots added = Slots::range(slot, slot + in_last);
      if (continues) {
        q.uses.back().there = q.uses.back().there | added;
      } else {
        s.pool->retain(q.uses.back().page);
        add_last({q.uses.back().page, added, q.uses.back().order});
      }
    }
    for (Index first = in_last; first < n; first += size)
      add_last({pages[next++], Slots::range(0, std::min(size, n - first))});
    pages.keep();
    for (std::size_t a = 0; a < shift.size(); ++a) {
      q.lowest[a] = q.tokens == 0 ? lowest[a] : std::min(q.lowest[a], lowest[a]);
      q.highest[a] = q.tokens == 0 ? highest[a] : std::max(q.highest[a], highest[a]);
    }
    q.tokens += n, q.next_order += n;
  }

  void add_last(const PageUse& use) noexcept {
    s.sequence.uses.push_back(use);
    s.sequence.shift.insert(s.sequence.shift.end(), shift.begin(), shift.end());
  }

  // `count` tokens from `first` on, to slots of a page of whose use the order is.
  void write(Index first, Index page, Index to, Index count, Index order) {
    PoolState& p = *s.pool;
    write_keys(first, p.key_slots(page, to, count));
    if (p.stores_values())
      store_numbers(token_range(tokens.v, 0, first, count), p.sizes.value_type,
                    p.value_slots(page, to, count));
    for (Index t = 0; t < count; ++t)
      p.orders(page)[to + t] = s.sequence.next_order + first + t - order;
    for (Index axis = 0; axis < s.axes(); ++axis)
      std::copy_n(anchors.data() + axis * n + first, count, p.anchors(page, axis) + to);
    for (std::size_t a = 0; a < arrays.size(); ++a)
      for (Index t = 0; t < count; ++t)
        write_entry(arrays[a]->array, first + t, p.entry(a, page, to + t));
  }

  void write_keys(Index first, const Heads& to) {
    const KeyType type = s.pool->sizes.key_type;
    const ConstHeads k = token_range(tokens.k, 0, first, to.tokens);
    const CacheRotation& r = *s.rotation;
    if (s.keeping == KeyKeeping::unrotated || !r.rotates) return store_numbers(k, type, to);
    Positions at{anchors.data() + first, DType::i64, static_cast<std::int32_t>(s.axes()),
                 to.tokens};
    at.axis_stride = n;
    const bool as_stored = k.dtype == to.dtype && (k.dtype != DType::f64 || r.wide);
    if (as_stored) {
      const RotaryPlan& plan = k.dtype == DType::f64   ? *r.wide
                               : k.dtype == DType::f32 ? r.narrow
                                                       : *r.sixteen;
      return plan.apply(ConstQK{{}, k}, QK{{}, to}, at, RotateMode::forward, executor);
    }
    const bool wide = r.wide && (k.dtype == DType::f64 || type == KeyType::f64);
    FloatTokens rotated(to.tokens, k.heads, k.dim, wide);
    const Heads floats = rotated.view(to.tokens);
    read_stored(k, static_cast<KeyType>(k.dtype), floats);
    (wide ? *r.wide : r.narrow).apply(QK{{}, floats}, at, RotateMode::forward, executor);
    store_numbers(floats, type, to);
  }

  static void write_entry(const ConstTensorView& v, Index token, std::byte* to) noexcept {
    const Index size = size_of(v.dtype);
    const auto* const from = static_cast<const std::byte*>(v.data) + token * v.stride[0] * size;
    const Index rows = v.rank > 1 ? v.shape[1] : 1, columns = v.rank > 2 ? v.shape[2] : 1;
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j)
        std::memcpy(
            to + (i * columns + j) * size,
            from + ((v.rank > 1 ? i * v.stride[1] : 0) + (v.rank > 2 ? j * v.stride[2] : 0)) * size,
            static_cast<std::size_t>(size));
  }
};

}  // namespace
}  // namespace detail

void KeyCache::append(const NewTokens& tokens, const Executor& executor) {
  detail::Append{*state_, tokens, executor}.run();
}

}  // namespace posenc::v0
