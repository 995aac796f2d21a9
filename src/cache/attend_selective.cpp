// SPDX-License-Identifier: Apache-2.0
// Selective attention over cached tokens. What earlier queries masked is a number for each key (attention/selective.h),
// which each call reads and writes.
#include "posenc/attention/selective.h"

#include <cstring>
#include <optional>

#include "cache/dense_tokens.h"
#include "cache/key_run.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

void check_selective_call(const CacheState& s, const AttentionArgs& a, const SelectiveOptions& o) {
  check_free_call(s, a);
  const auto absent = [](bool given, std::string_view what) {
    if (given)
      refuse_field(kCache, what, "must be absent: attend_selective of a cache does not support it");
  };
  const Mask& m = a.mask;
  absent(m.window_left != kUnbounded || m.window_right != kUnbounded, "mask.window");
  absent(m.chunk != 0, "mask.chunk");
  absent(!m.head_side.empty(), "mask.head_side");
  absent(!m.prefix.empty(), "mask.prefix");
  absent(m.sink_tokens != 0, "mask.sink_tokens");
  absent(!m.query_order.empty(), "mask.query_order");
  absent(!m.query_document.empty(), "mask.query_document");
  absent(a.query_positions.data != nullptr, "query_positions");
  if (!o.masked.empty())
    refuse_field(kCache, "masked", "must be absent: it is the token array of this name");
  if (a.q.dtype != DType::f64 && a.q.dtype != DType::f32)
    refuse_field(kCache, "q", "must be f64 or f32", dtype_name(a.q.dtype));
  const Sequence& q = s.sequence;
  if (a.q.tokens != q.next_order - q.counted)
    refuse_field(
        kCache, "q",
        "must be all tokens since the last call, " + std::to_string(q.next_order - q.counted),
        a.q.tokens);
  for (Index order = q.counted; order < q.next_order; ++order)
    if (s.next_token(order) != order)
      refuse_field(kCache, "q", "must be tokens of the cache, and one was evicted", order);
}

std::size_t masked_array(const CacheState& s) {
  const std::vector<TokenArray>& all = s.pool->sizes.arrays;
  const std::size_t n = token_array_index(s, "masked");
  if (n == all.size() || all[n].dtype != DType::f64 || !all[n].shape.empty())
    refuse_field(kCache, "masked", "must be a token array of the pool, one number of f64");
  return n;
}

// The same tokens in pages that nobody shares.
class OwnPages {
 public:
  explicit OwnPages(CacheState& s) : s_(s), change_{s.sequence} {
    const std::vector<PageUse>& uses = s.sequence.uses;
    for (std::size_t use = 0; use < uses.size(); ++use) {
      if (!continues_page(uses, use)) firsts_.push_back(use);
      const bool last = use + 1 == uses.size() || !continues_page(uses, use + 1);
      if (last && s.is_exclusive(use)) firsts_.pop_back();
    }
    new_.emplace(*s.pool, static_cast<Index>(firsts_.size()));
    for (std::size_t n = 0; n < firsts_.size(); ++n) {
      std::size_t use = firsts_[n];
      do {
        change_.released.push_back(uses[use].page);
        change_.next.uses[use].page = (*new_)[static_cast<Index>(n)];
      } while (++use < uses.size() && continues_page(uses, use));
    }
  }
  void commit(Index counted) noexcept {
    const std::vector<PageUse>& uses = s_.sequence.uses;
    for (const std::size_t first : firsts_)
      for (std::size_t use = first;
           use == first || (use < uses.size() && continues_page(uses, use)); ++use) {
        const Index to = change_.next.uses[use].page, slot = uses[use].there.first();
        s_.pool->copy_slots(uses[use].page, slot, to, slot, uses[use].there.last() + 1 - slot);
        if (use != first) s_.pool->retain(to);
      }
    new_->keep();
    change_.next.counted = counted;
    s_.commit(std::move(change_));
  }

 private:
  CacheState& s_;
  Change change_;
  std::vector<std::size_t> firsts_;  // uses that begin a shared page
  std::optional<NewPages> new_;
};

}  // namespace
}  // namespace detail

void KeyCache::attend_selective(const AttentionArgs& call, const AttentionResult& result,
                                const SelectiveOptions& options, const Executor& executor) {
  using namespace detail;
  CacheState& s = *state_;
  const std::size_t array = masked_array(s);
  check_selective_call(s, call, options);
  OwnPages pages(s);
  const Index n = s.sequence.tokens, count = call.q.tokens;
  const bool wide = call.q.dtype == DType::f64;
  DenseTokens dense(s, wide);
  FloatTokens query(count, call.q.heads, call.q.dim, wide);
  const Heads q = query.view(count), k = dense.keys();
  read_keys(k, executor);
  read_stored(call.q, KeyType::f64, q);
  const OwnedPositions all = positions();
  Positions at = all;
  at.data = static_cast<const Index*>(at.data) + (n - count) * at.token_stride, at.count = count;
  if (s.rotation->rotates)
    (wide ? *s.rotation->wide : s.rotation->narrow)
        .apply(QK{q, {}}, at, RotateMode::forward, executor);
  AttentionArgs a = call;
  a.q = q, a.k = k, a.v = dense.values();
  a.mask.query_offset = n - count;
  std::vector<double> masked(static_cast<std::size_t>(n));
  if (n > 0) std::memcpy(masked.data(), dense.array(array).data, masked.size() * sizeof(double));
  SelectiveOptions o = options;
  o.keep_first = o.keep_first && n > 0 && s.first_order(0) == 0;
  o.masked = tensor(masked.data(), {1, n});
  posenc::attend_selective(a, result, o, executor);
  pages.commit(s.sequence.next_order);
  std::size_t token = 0;
  for (const PageUse& u : s.sequence.uses)
    for_each_slot(u.there, [&](Index slot) {
      std::memcpy(s.pool->entry(array, u.page, slot), &masked[token++], sizeof(double));
    });
}

}  // namespace posenc::v0
