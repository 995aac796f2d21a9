// SPDX-License-Identifier: Apache-2.0
// Which tokens, and so which positions, each rank of a context-parallel group owns.
//   contiguous  rank r owns chunk r of `ranks`                             (ring attention)
//   zigzag      rank r owns chunks r and 2 ranks - 1 - r of 2 ranks         (head-tail: causal work
//               is the same for every rank)
//   striped     rank r owns the tokens = r mod ranks                        (striped attention)
#pragma once
#include <span>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/positions/view.h"

namespace posenc::inline v0 {

enum class ShardLayout : std::uint8_t { contiguous, zigzag, striped };
template <>
struct EnumNames<ShardLayout> {
  static constexpr std::array<std::string_view, 3> value{"contiguous", "zigzag", "striped"};
};

// Numbers of the tokens that a rank owns, in its order. Throws [shard]: ranks not positive, rank
// outside them, tokens that the layout does not divide (by ranks; zigzag by 2 ranks).
POSENC_API std::vector<Index> shard_tokens(Index tokens, Index ranks, Index rank, ShardLayout);
// Packed documents, each split by itself, so that every rank owns a piece of every document.
POSENC_API std::vector<Index> shard_tokens(std::span<const Index> cu_seqlens, Index ranks,
                                           Index rank, ShardLayout);

// Their positions: the token's number plus `first`, or its number in its document.
POSENC_API OwnedPositions shard_positions(Index tokens, Index ranks, Index rank, ShardLayout,
                                          Index first = 0);
POSENC_API OwnedPositions shard_positions(std::span<const Index> cu_seqlens, Index ranks,
                                          Index rank, ShardLayout);
// The positions of any tokens, picked: what the rank holds of explicit ids, M-RoPE too.
POSENC_API OwnedPositions picked(const Positions&, std::span<const Index> tokens);

// All ranks' tokens after each other: gathered[i] is token shard_permutation[i]; and the way back:
// token t is at inverse[t].
POSENC_API std::vector<Index> shard_permutation(Index tokens, Index ranks, ShardLayout);
POSENC_API std::vector<Index> shard_permutation(std::span<const Index> cu_seqlens, Index ranks,
                                                ShardLayout);
// Throws [inverse_permutation] when a number is missing, twice, or outside.
POSENC_API std::vector<Index> inverse_permutation(std::span<const Index>);

// Packed documents cut into `ranks` equal runs of tokens regardless of their borders (the Llama-3
// report's way): boundaries of the queries a rank owns, and of the keys it needs of all tokens
// [first_key, last_key). causal: with the bottom-right rule. Throws [shard].
struct PackedRun {
  std::vector<Index> query_cu_seqlens, key_cu_seqlens;
  Index first_key = 0, last_key = 0;
  Index longest_query = 0, longest_key = 0;
};
POSENC_API PackedRun packed_run(std::span<const Index> cu_seqlens, Index ranks, Index rank,
                                bool causal);

}  // namespace posenc::v0
