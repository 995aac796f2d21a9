// SPDX-License-Identifier: Apache-2.0
// What strips read and write soon is requested from memory while others are computed, a few tokens at a time: tokens of
// a head lie a token of all heads apart, which the processor does not foresee, and those of a block wait for each other
// if they are requested at once.
//
// All of it is inlined: compilers leave out calls of functions that only prefetch.
#pragma once
#include <cstdint>

#include "attention/fast/work.h"

namespace posenc::inline v0::detail {

// Tokens of one head that are not requested yet.
class Prefetch {
 public:
  Prefetch() = default;
  // None where channels are not adjacent.
  template <class View>
  Prefetch(const View& x, Index row, Index head, Run tokens) noexcept {
    if (x.dim_stride != 1 || tokens.begin >= tokens.end) return;
    const Index size = size_of(x.dtype);
    at_ = reinterpret_cast<std::uintptr_t>(x.data) +
          static_cast<std::uintptr_t>(
              (row * x.batch_stride + tokens.begin * x.token_stride + head * x.head_stride) * size);
    step_ = static_cast<std::uintptr_t>(x.token_stride * size);
    bytes_ = static_cast<std::uintptr_t>(x.dim * size);
    count_ = tokens.end - tokens.begin;
  }
  // The next `most` of them. kLocality: 3 for the first cache, 2 for the second one.
  template <int kLocality>
  [[gnu::always_inline]] void request(Index most) noexcept {
    for (; most > 0 && count_ > 0; --most, --count_, at_ += step_)
      for (std::uintptr_t line = at_ & ~(kLine - 1); line < at_ + bytes_; line += kLine)
        __builtin_prefetch(reinterpret_cast<const void*>(line), 0, kLocality);
  }

 private:
  static constexpr std::uintptr_t kLine = 64;
  std::uintptr_t at_ = 0, step_ = 0, bytes_ = 0;
  Index count_ = 0;
};

// Of a block of rows.
class ReadAhead {
 public:
  // next: the block that is computed after this one; null: it is not known.
  ReadAhead(const FastCall& c, const FastRowBlock& block, const FastRowBlock* next,
            std::span<const RowGroup> groups) noexcept
      : c_(c), block_(block), next_(next), groups_(groups), reads_(!is_cached(c)) {}
  // Before the strips of a block of keys, which `behind` follows; empty: the next block of rows begins with `first`.
  void begin_keys(Run behind, Run first) noexcept {
    keys_ = values_ = {};
    const bool same = behind.begin < behind.end;
    const FastRowBlock* of = same ? &block_ : next_;
    if (!reads_ || of == nullptr || !c_.args.block_table.empty()) return;
    const Run keys = same ? behind : first;
    keys_ = Prefetch(c_.k, of->row, c_.group(of->head), keys);
    values_ = Prefetch(c_.given_v, of->row, c_.group(of->head), keys);
    some_ = block_count(keys.end - keys.begin, static_cast<Index>(groups_.size()));
  }
  // Before a strip: a part of those keys and values; q of the next group, where this one begins; where it ends, the rows
  // of the output.
  [[gnu::always_inline]] void begin_strip(const RowGroup& g, const Heads* out) noexcept {
    if (!reads_) return;
    keys_.request<2>(some_), values_.request<2>(some_);
    if (!g.begun) {
      Prefetch q = queries_behind(g);
      q.request<3>(c_.strips.rows);
    }
    if (out != nullptr) {
      Prefetch rows(*out, g.row->b, g.row->h, {g.row->i, g.row->i + g.count});
      rows.request<3>(g.count);
    }
  }

 private:
  // Such a call does not wait for memory, and a request takes a few cycles.
  static bool is_cached(const FastCall& c) noexcept {
    constexpr Index kMostBytes = 4 << 20;
    return size_of(c.q.dtype) * (c.B * c.H * c.Tq + c.R * c.G * c.Tk) * (c.D + c.V) <= kMostBytes;
  }
  Prefetch queries_behind(const RowGroup& g) const noexcept {
    if (const RowGroup* n = &g + 1; n < groups_.data() + groups_.size())
      return {c_.q, n->row->b, n->row->h, {n->row->i, n->row->i + n->count}};
    if (next_ == nullptr) return {};
    return {c_.q, next_->b, next_->head, {next_->begin, next_->end}};
  }

  const FastCall& c_;
  const FastRowBlock& block_;
  const FastRowBlock* next_;
  std::span<const RowGroup> groups_;
  bool reads_;
  Index some_ = 0;
  Prefetch keys_, values_;
};

}  // namespace posenc::v0::detail
