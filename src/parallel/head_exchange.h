// SPDX-License-Identifier: Apache-2.0
// All tokens of some heads instead of some tokens of all heads (Jacobs et
// al., arXiv:2309.14509), and back.
#pragma once
#include <vector>

#include "parallel/exchange.h"
#include "parallel/key_packet.h"

namespace posenc::inline v0::detail {

// The tokens of all ranks in their order.
class TokenPlaces {
 public:
  // order: [1, T] of this rank, as many on each. Throws [ulysses], on every
  // rank: orders that do not count up over all ranks.
  TokenPlaces(const Group&, const ConstTensorView& order);

  Index first() const noexcept { return first_; }
  Index each() const noexcept { return each_; }  // of a rank
  Index all() const noexcept { return each_ * ranks_; }
  Index of(Index rank, Index t) const noexcept {
    return place_[static_cast<std::size_t>(rank * each_ + t)];
  }

 private:
  Index first_ = 0, each_ = 0, ranks_ = 1;
  std::vector<Index> place_;
};

// own [B, T, H, D] of each rank -> [B, all tokens, H / ranks, D] of the same
// type, in memory.
Heads exchange_heads(const Group&, const TokenPlaces&, const ConstHeads& own, PacketBytes& memory);
// The way back, into tensors of f64, f32 or 16 bits: to += what came, or to =
// it.
void return_heads(const Group&, const TokenPlaces&, const ConstHeads& all, const Heads& own,
                  bool add);
// Rows [rows, T] of all ranks -> [rows, all tokens].
std::vector<std::byte> gather_rows(const Group&, const TokenPlaces&, std::span<const std::byte> own,
                                   Index rows, Index element);

}  // namespace posenc::inline v0::detail
