// SPDX-License-Identifier: Apache-2.0
// Another rotation: keys are kept, or moved once from where they were rotated to where they are now.
#include "cache/cache_state.h"
#include "cache/dense_tokens.h"
#include "core/known_enum.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

// A page of the cache with the slots of all its uses; where its keys go.
struct MovedPage {
  std::size_t first_use, end_use;
  Slots there;
  Index page;
  bool shared;
};

struct Rescale {
  CacheState& s;
  RerotationPlan plan;
  std::vector<MovedPage> pages{};
  std::vector<Index> list{}, used{}, before{}, after{};  // of the pages; [axes][pages][slots]

  void find_pages() {
    const std::vector<PageUse>& uses = s.sequence.uses;
    for (std::size_t use = 0; use < uses.size(); ++use) {
      if (continues_page(uses, use)) {
        pages.back().there = pages.back().there | uses[use].there;
        pages.back().end_use = use + 1;
      } else {
        pages.push_back({use, use + 1, uses[use].there, uses[use].page, false});
      }
      pages.back().shared = !s.is_exclusive(use);
    }
  }

  // Shared pages are copied. Slots without a token become 0, so that the move meets only numbers.
  void copy_shared(const NewPages& copies) {
    Index next = 0;
    for (MovedPage& p : pages) {
      if (p.shared) {
        const Index to = copies[next++];
        const Index first = p.there.first();  // with the orders of holes, which ascend too
        s.pool->copy_slots(p.page, first, to, first, p.there.last() + 1 - first);
        p.page = to;
      }
      const Slots holes = Slots::range(0, p.there.last()).without(p.there);
      for_each_slot(holes, [&](Index slot) { clear_key(p.page, slot); });
      list.push_back(p.page), used.push_back(p.there.last() + 1);
    }
  }
  void clear_key(Index page, Index slot) noexcept {
    const Heads k = s.pool->key_slots(page, slot, 1);
    const Index size = size_of(k.dtype);
    for (Index h = 0; h < k.heads; ++h)
      std::fill_n(static_cast<std::byte*>(k.data) + h * k.head_stride * size, k.dim * size,
                  std::byte{0});
  }

  void find_positions() {
    const Index slots = s.page_size(), count = static_cast<Index>(pages.size());
    before.resize(static_cast<std::size_t>(s.axes() * count * slots));
    after.resize(before.size());
    for (Index axis = 0; axis < s.axes(); ++axis)
      for (Index n = 0; n < count; ++n) {
        const MovedPage& p = pages[static_cast<std::size_t>(n)];
        const auto at = static_cast<std::size_t>((axis * count + n) * slots);
        for (std::size_t use = p.first_use; use < p.end_use; ++use)
          for_each_slot(s.sequence.uses[use].there, [&](Index slot) {
            const auto to = at + static_cast<std::size_t>(slot);
            before[to] = s.pool->anchors(s.sequence.uses[use].page, axis)[slot];
            after[to] = before[to] + s.shift_of(use)[axis];
          });
      }
  }

  // Those of this sequence, for one use. Holes have that of the token before.
  void write_orders(const MovedPage& p) noexcept {
    Index* const o = s.pool->orders(p.page);
    for (std::size_t use = p.first_use; use < p.end_use; ++use)
      for_each_slot(s.sequence.uses[use].there,
                    [&](Index slot) { o[slot] += s.sequence.uses[use].order; });
    for (Index slot = p.there.first(); slot < p.there.last(); ++slot)
      if (!p.there.has(slot)) o[slot] = o[slot - 1];
  }

  Positions positions(const std::vector<Index>& at) const noexcept {
    Positions p{at.data(), DType::i64, static_cast<std::int32_t>(s.axes()), s.page_size()};
    p.batch = static_cast<Index>(pages.size());
    p.batch_stride = p.count, p.axis_stride = p.batch * p.count;
    return p;
  }

  void run(const Executor& executor) {
    find_pages();
    find_positions();
    Index shared = 0;
    for (const MovedPage& p : pages) shared += p.shared ? 1 : 0;
    NewPages copies(*s.pool, shared);
    Change c{s.sequence};
    c.next.uses.clear();
    c.next.shift.assign(pages.size() * static_cast<std::size_t>(s.axes()), 0);
    for (const MovedPage& p : pages) {
      const std::size_t keep = p.shared ? 0 : 1;
      c.released.insert(c.released.end(), p.end_use - p.first_use - keep, p.page);
    }
    copy_shared(copies);
    plan.move_pages(s.pool->keys, {.pages = list, .tokens = used}, positions(before),
                    positions(after), executor);
    for (const MovedPage& p : pages) c.next.uses.push_back({p.page, p.there});
    ++c.next.moves;
    copies.keep();
    for (const MovedPage& p : pages) write_orders(p);
    for (Index axis = 0; axis < s.axes(); ++axis)
      for (std::size_t n = 0; n < pages.size(); ++n) {
        const auto at = (static_cast<std::size_t>(axis) * pages.size() + n) *
                        static_cast<std::size_t>(s.page_size());
        std::copy_n(after.data() + at, s.page_size(), s.pool->anchors(pages[n].page, axis));
      }
    s.commit(std::move(c));
  }
};

}  // namespace
}  // namespace detail

MoveVerdict KeyCache::rescale(const RotarySpec& spec, const RescaleOptions& options,
                              const Executor& executor) {
  using namespace detail;
  CacheState& s = *state_;
  check_known(kCache, "keys", options.keys);
  check_rotation(spec, *s.pool, s.keeping);
  if (s.sequence.tokens > 0) {
    Sequence exact = s.sequence;
    s.find_bounds(exact);
    check_bounds(exact, spec);
  }
  auto rotation = std::make_shared<const CacheRotation>(spec, s.pool->sizes.key_type);
  MoveVerdict verdict = MoveVerdict::kept;
  if (s.keeping == KeyKeeping::anchored && s.sequence.tokens > 0) {
    const RotarySpec &from = s.rotation->any_length, &to = rotation->any_length;
    const Rerotation can = can_rerotate(from, to);
    if (can.verdict == MoveVerdict::refused)
      refuse_field(kCache, "rescale", "refused: " + can.reason);
    if (can.verdict == MoveVerdict::moved) {
      if (options.keys == OtherRotation::refuse)
        refuse_field(kCache, "rescale",
                     "needs keys that are moved (RescaleOptions::keys) or kept unrotated, because "
                     "the cached ones have another rotation");
      Rescale{s, RerotationPlan(from, to, s.pool->sizes.key_type, {options.cut_blocks})}.run(
          executor);
      verdict = MoveVerdict::moved;
    }
  }
  s.rotation = std::move(rotation);
  return verdict;
}

void KeyCache::read_keys(const Heads& out, const Executor& executor) const {
  using namespace detail;
  const CacheState& s = *state_;
  const PoolSizes& sizes = s.pool->sizes;
  if (out.dtype != DType::f64 && out.dtype != DType::f32)
    refuse_field(kCache, "out", "must be f64 or f32", dtype_name(out.dtype));
  if (out.batch != 1 || out.tokens != size() || out.heads != sizes.heads ||
      out.dim != sizes.head_dim || out.dim_stride != 1 || (out.data == nullptr && size() > 0))
    refuse_shape(kCache, "out",
                 "must be [1, tokens, heads, channels] with channels side by side, " +
                     sizes_text({1, size(), sizes.heads, sizes.head_dim}),
                 shape_text(out));
  const CacheRotation& r = *s.rotation;
  if (out.dtype == DType::f64 && !r.wide)
    refuse_field(kCache, "out", "must be f32 with the precision ggml", "f64");
  const OwnedPositions now = positions();
  std::vector<Index> rotated_at;
  read_tokens(s, s.pool->keys, sizes.key_type, out);
  if (!r.rotates || size() == 0) return;
  if (s.keeping == KeyKeeping::unrotated) {
    const RotaryPlan& plan = out.dtype == DType::f64 ? *r.wide : r.narrow;
    return plan.apply(QK{{}, out}, now, RotateMode::forward, executor);
  }
  for (Index axis = 0; axis < s.axes(); ++axis)
    for (const PageUse& u : s.sequence.uses)
      for_each_slot(u.there,
                    [&](Index slot) { rotated_at.push_back(s.pool->anchors(u.page, axis)[slot]); });
  const OwnedPositions before{std::move(rotated_at), static_cast<std::int32_t>(s.axes())};
  rerotate(out, r.any_length, before, r.any_length, now, executor);
}

}  // namespace posenc::v0
