// SPDX-License-Identifier: Apache-2.0
// All tokens of some heads instead of some tokens of all heads (Jacobs et
// al., arXiv:2309.14509), and back.
//
// Of E heads, rank r of R has max(1, E / R) from r E / R on: its own where R divides E, one that it shares with
// other ranks where E divides R (grouped keys, vectors of one head).
#pragma once
#include <algorithm>
#include <deque>
#include <vector>

#include "parallel/exchange.h"
#include "parallel/key_packet.h"

namespace posenc::inline v0::detail {

// The tokens of all ranks. In the order of their sequence where every row has the same; else by rank.
class TokenPlaces {
 public:
  // Of this rank's tokens, as many on each: their order [1 or B, T] and cu_seqlens [sequences + 1], empty where they are
  // one sequence.
  TokenPlaces(const Group&, Index tokens, const ConstTensorView& order, const ConstTensorView& cu);

  Index each() const noexcept { return each_; }  // of a rank
  Index all() const noexcept { return each_ * ranks_; }
  Index of(Index rank, Index t) const noexcept {
    return place_[static_cast<std::size_t>(rank * each_ + t)];
  }
  // Of all tokens; empty: they are one sequence.
  const std::vector<Index>& cu_seqlens() const noexcept { return cu_; }
  // Of each sequence, where orders count up by one; else empty.
  struct Counted {
    Index first = 0, count = 0;
  };
  const std::vector<Counted>& counted() const noexcept { return counted_; }

 private:
  Index each_, ranks_;
  std::vector<Index> place_, cu_;
  std::vector<Counted> counted_;
  struct Token {
    Index sequence, order;
  };
  void sort(const std::vector<Token>&);
};

// Entries of an axis of heads, of which a rank has [first, first + count).
struct HeadBlock {
  Index first, count;
};
inline HeadBlock head_block(Index heads, Index rank, Index ranks) noexcept {
  return {rank * heads / ranks, std::max<Index>(1, heads / ranks)};
}
template <class Data>
BasicHeads<Data> block_of(const BasicHeads<Data>& h, Index rank, Index ranks) {
  if (h.data == nullptr) return h;
  const HeadBlock block = head_block(h.heads, rank, ranks);
  return slice_heads(h, block.first, block.count);
}
template <class Data>
BasicTensorView<Data> block_of(const BasicTensorView<Data>& v, std::size_t axis, Index rank,
                               Index ranks) {
  if (v.empty()) return v;
  const HeadBlock block = head_block(v.shape[axis], rank, ranks);
  return narrowed(v, axis, {block.first, 0, block.count});
}

// Sums [B, H, T] as heads of one channel, and back.
template <class Data>
BasicHeads<Data> heads_of(const BasicTensorView<Data>& v) {
  if (v.empty()) return {};
  return {v.data,      v.shape[0],  v.shape[2],  v.shape[1], 1,
          v.stride[0], v.stride[2], v.stride[1], 1,          v.dtype};
}
inline TensorView sums_of(const Heads& h) {
  TensorView v;
  v.data = h.data, v.dtype = h.dtype, v.rank = 3;
  v.shape = {h.batch, h.heads, h.tokens, 0, 0};
  v.stride = {h.batch_stride, h.head_stride, h.token_stride, 0, 0};
  return v;
}

// own [B, T, E, D] of each rank -> [B, all tokens, max(1, E / ranks), D] of the same type, in memory.
Heads exchange_heads(const Group&, const TokenPlaces&, const ConstHeads& own, PacketBytes& memory);
// The way back, into tensors of f64, f32 or 16 bits: to += what came, or to = it, where no head is shared.
void return_heads(const Group&, const TokenPlaces&, const ConstHeads& all, const Heads& own,
                  bool add);

// What is by token and of all heads: orders, documents, classes, positions. One exchange for all of them.
class GatheredTokens {
 public:
  // To be [rows, all tokens].
  void add(ConstTensorView&, const TokenPlaces&);
  void add(Positions&, const TokenPlaces&);
  // Sets what was added to the tokens of all ranks.
  void gather(const Group&);

 private:
  struct Rows {
    const void** data;
    const TokenPlaces* places;
    Index rows, element;
  };
  void add_rows(const void* data, Index rows, Index row_stride, Index tokens, Index stride,
                Index element);
  std::vector<Rows> list_;
  std::vector<std::byte> own_;
  std::deque<std::vector<std::byte>> all_;
};

}  // namespace posenc::inline v0::detail
