// SPDX-License-Identifier: Apache-2.0
// The tokens of another cache: its pages with another shift and order, or copies if they are in another pool or their
// keys are moved.
#include "cache/rotated_keys.h"
#include "core/known_enum.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

constexpr Index kMostOrder = Index{1} << 62;

void check_same(const char* what, Index got, Index want) {
  if (got != want)
    refuse_field(kCache, what,
                 "of the other cache must be that of this one, " + std::to_string(want), got);
}
void check_same(const char* what, std::string_view got, std::string_view want) {
  if (got != want)
    refuse_field(kCache, what, "of the other cache must be that of this one, " + std::string(want),
                 got);
}

void check_tokens(const PoolSizes& got, const PoolSizes& want) {
  check_same("heads", got.heads, want.heads);
  check_same("head_dim", got.head_dim, want.head_dim);
  check_same("value_dim", got.value_dim, want.value_dim);
  check_same("values_in_keys", got.values_in_keys ? 1 : 0, want.values_in_keys ? 1 : 0);
  check_same("axes", got.axes, want.axes);
  check_same("key_type", enum_text(got.key_type), enum_text(want.key_type));
  if (want.value_dim > 0 && !want.values_in_keys)
    check_same("value_type", enum_text(got.value_type), enum_text(want.value_type));
  check_same("arrays", static_cast<Index>(got.arrays.size()),
             static_cast<Index>(want.arrays.size()));
  for (std::size_t a = 0; a < want.arrays.size(); ++a) {
    check_same("arrays", got.arrays[a].name, want.arrays[a].name);
    const std::string name = "array " + want.arrays[a].name;
    check_same(name.c_str(), dtype_name(got.arrays[a].dtype), dtype_name(want.arrays[a].dtype));
    check_same(name.c_str(), sizes_text(got.arrays[a].shape), sizes_text(want.arrays[a].shape));
  }
}

// The same tokens in new pages of a pool.
std::unique_ptr<CacheState> copy_to(const PagePool& to, const CacheState& from) {
  auto copy = std::make_unique<CacheState>(to, from.rotation->spec, from.keeping);
  const Index size = copy->page_size();
  NewPages pages(*copy->pool, (from.sequence.tokens + size - 1) / size);
  Sequence q = from.sequence;
  q.uses.clear(), q.shift.clear();
  for_each_piece(from, size, [&](std::size_t use, Index slot, Index token, Index n) {
    const PageUse& u = from.sequence.uses[use];
    const Index page = pages[token / size], at = token % size;
    copy->pool->copy_slots(*from.pool, u.page, slot, page, at, n, u.order);
    add_use(q, {page, Slots::range(at, at + n)}, from.shift_of(use));
  });
  pages.keep();
  copy->sequence = std::move(q);
  copy->retain_parts();
  return copy;
}

// Whether keys of the other cache, which has this keeping, are rewritten as those of this one, which has the other.
bool turns_keys(const CacheState& other, const CacheState& s, KeyKeeping keeping) {
  const CacheState& anchored = keeping == KeyKeeping::anchored ? other : s;
  return other.keeping == keeping && s.keeping != keeping && other.sequence.tokens > 0 &&
         anchored.rotation->rotates;
}

void add_delta(Sequence& q, std::span<const Index> delta) noexcept {
  for (std::size_t n = 0; n < q.shift.size(); ++n) q.shift[n] += delta[n % delta.size()];
  for (std::size_t a = 0; a < delta.size(); ++a) q.lowest[a] += delta[a], q.highest[a] += delta[a];
}

// Queries before `counted` have masked keys, those from there on have not.
Index counted_of_both(const Sequence& s, const Sequence& more) {
  if (more.counted == 0) return s.counted;
  if (s.counted != s.next_order)
    refuse_field(kCache, "other",
                 "must have no queries of attend_selective, or this cache all of its own; queries",
                 s.counted);
  return s.next_order + more.counted;
}

// All uses of a part, which then has none.
void take_tokens(CacheState& s, CacheState& part) {
  Sequence next = s.sequence, &more = part.sequence;
  next.counted = counted_of_both(next, more);
  for (PageUse use : more.uses) {
    use.order += next.next_order;
    next.uses.push_back(use);
  }
  next.shift.insert(next.shift.end(), more.shift.begin(), more.shift.end());
  if (more.tokens > 0)
    for (std::size_t a = 0; a < next.lowest.size(); ++a) {
      next.lowest[a] = next.tokens == 0 ? more.lowest[a] : std::min(next.lowest[a], more.lowest[a]);
      next.highest[a] =
          next.tokens == 0 ? more.highest[a] : std::max(next.highest[a], more.highest[a]);
    }
  next.tokens += more.tokens, next.next_order += more.next_order;
  next.moves = std::max(next.moves, more.moves);
  more.uses.clear(), more.shift.clear();
  s.sequence = std::move(next);
}

}  // namespace
}  // namespace detail

MoveVerdict KeyCache::append(const KeyCache& other, std::span<const Index> delta,
                             const RescaleOptions& options, const Executor& executor) {
  using namespace detail;
  CacheState& s = *state_;
  const CacheState& o = *other.state_;
  check_known(kCache, "keys", options.keys);
  check_tokens(o.pool->sizes, s.pool->sizes);
  const bool turned_back = turns_keys(o, s, KeyKeeping::anchored),
             rotated = turns_keys(o, s, KeyKeeping::unrotated);
  if ((turned_back || rotated) && options.keys == OtherRotation::refuse)
    refuse_field(kCache, "keeping",
                 "of the other cache must be that of this one, " +
                     std::string(enum_text(s.keeping)) +
                     ", unless keys may be moved (RescaleOptions::keys)",
                 enum_text(o.keeping));
  if (o.sequence.next_order > kMostOrder - s.sequence.next_order)
    refuse_field(kCache, "other", "must lead to orders of at most 2^62, next order",
                 o.sequence.next_order);
  const bool shares = o.pool == s.pool && !turned_back && !rotated;
  KeyCache part(shares ? std::make_unique<CacheState>(o) : copy_to(s.public_pool, o));
  CacheState& p = *part.state_;
  if (turned_back) turn_back_part(p, options.cut_blocks, executor);
  if (o.keeping != s.keeping) p.keeping = KeyKeeping::unrotated;  // until they are rotated
  if (!delta.empty()) check_delta(p, delta);
  if (!delta.empty()) add_delta(p.sequence, delta);
  MoveVerdict verdict = MoveVerdict::kept;
  if (p.rotation == s.rotation || p.rotation->spec == s.rotation->spec)
    p.check_positions(p.sequence, s.rotation->spec);
  else
    verdict = part.rescale(s.rotation->spec, options, executor);
  if (rotated) rotate_part(p, s, options.cut_blocks, executor);
  take_tokens(s, p);
  return turned_back || rotated ? MoveVerdict::moved : verdict;
}

}  // namespace posenc::v0
