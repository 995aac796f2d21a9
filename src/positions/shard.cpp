// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/shard.h"

#include <algorithm>

#include "positions/exact.h"

namespace posenc::inline v0 {
namespace {

void check_rank(Index ranks, Index rank) {
  if (ranks < 1) refuse_field("shard", "ranks", "must be positive", ranks);
  if (rank < 0 || rank >= ranks) refuse_field("shard", "rank", "must lie below ranks", rank);
}

// Appends first + (what `rank` owns of `tokens`).
void append(std::vector<Index>& out, Index first, Index tokens, Index ranks, Index rank,
            ShardLayout layout) {
  const Index pieces = layout == ShardLayout::zigzag ? multiply_exact(2, ranks, "shard") : ranks;
  if (tokens < 0) refuse_field("shard", "tokens", "must not be negative", tokens);
  if (tokens % pieces != 0)
    refuse_field("shard", "tokens",
                 layout == ShardLayout::zigzag ? "must be a multiple of 2 x ranks"
                                               : "must be a multiple of ranks",
                 tokens);
  const Index size = tokens / pieces;
  const auto chunk = [&](Index number) {
    for (Index t = number * size; t < (number + 1) * size; ++t) out.push_back(first + t);
  };
  switch (layout) {
    case ShardLayout::contiguous:
      chunk(rank);
      break;
    case ShardLayout::zigzag:
      chunk(rank);
      chunk(pieces - 1 - rank);
      break;
    case ShardLayout::striped:
      for (Index t = rank; t < tokens; t += ranks) out.push_back(first + t);
      break;
  }
}

template <class Owner>
std::vector<Index> all_ranks(Index ranks, const Owner& owner) {
  if (ranks < 1) refuse_field("shard", "ranks", "must be positive", ranks);
  std::vector<Index> order;
  for (Index r = 0; r < ranks; ++r) {
    const std::vector<Index> part = owner(r);
    order.insert(order.end(), part.begin(), part.end());
  }
  return order;
}

}  // namespace

std::vector<Index> shard_tokens(Index tokens, Index ranks, Index rank, ShardLayout layout) {
  check_rank(ranks, rank);
  std::vector<Index> out;
  append(out, 0, tokens, ranks, rank, layout);
  return out;
}

std::vector<Index> shard_tokens(std::span<const Index> cu, Index ranks, Index rank,
                                ShardLayout layout) {
  check_rank(ranks, rank);
  check_cu_seqlens(cu, "shard");
  std::vector<Index> out;
  for (std::size_t d = 1; d < cu.size(); ++d)
    append(out, cu[d - 1], cu[d] - cu[d - 1], ranks, rank, layout);
  return out;
}

OwnedPositions shard_positions(Index tokens, Index ranks, Index rank, ShardLayout layout,
                               Index first) {
  std::vector<Index> v = shard_tokens(tokens, ranks, rank, layout);
  for (Index& p : v) p = add_exact(p, first, "shard");
  return own(std::move(v));
}

OwnedPositions shard_positions(std::span<const Index> cu, Index ranks, Index rank,
                               ShardLayout layout) {
  check_rank(ranks, rank);
  check_cu_seqlens(cu, "shard");
  std::vector<Index> out;
  for (std::size_t d = 1; d < cu.size(); ++d)
    append(out, 0, cu[d] - cu[d - 1], ranks, rank, layout);
  return own(std::move(out));
}

std::vector<Index> shard_permutation(Index tokens, Index ranks, ShardLayout layout) {
  return all_ranks(ranks, [&](Index r) { return shard_tokens(tokens, ranks, r, layout); });
}
std::vector<Index> shard_permutation(std::span<const Index> cu, Index ranks, ShardLayout layout) {
  return all_ranks(ranks, [&](Index r) { return shard_tokens(cu, ranks, r, layout); });
}

std::vector<Index> inverse_permutation(std::span<const Index> order) {
  const Index n = static_cast<Index>(order.size());
  std::vector<Index> inverse(order.size(), -1);
  for (Index i = 0; i < n; ++i) {
    const Index t = order[static_cast<std::size_t>(i)];
    if (t < 0 || t >= n)
      refuse_field("inverse_permutation", "numbers", "must lie below the size", t);
    Index& at = inverse[static_cast<std::size_t>(t)];
    if (at >= 0) refuse("inverse_permutation", "every number must occur once, twice came", t);
    at = i;
  }
  return inverse;
}

PackedRun packed_run(std::span<const Index> cu, Index ranks, Index rank, bool causal) {
  check_rank(ranks, rank);
  check_cu_seqlens(cu, "shard");
  if (cu.back() % ranks != 0)
    refuse_field("shard", "tokens", "must be a multiple of ranks", cu.back());
  const Index size = cu.back() / ranks, first = rank * size, last = first + size;
  PackedRun run;
  run.query_cu_seqlens.push_back(0);
  run.key_cu_seqlens.push_back(0);
  run.first_key = run.last_key = first;
  for (std::size_t d = 1; d < cu.size(); ++d) {
    const Index begin = std::max(first, cu[d - 1]), end = std::min(last, cu[d]);
    if (begin >= end) continue;
    if (run.query_cu_seqlens.size() == 1) run.first_key = cu[d - 1];
    run.last_key = causal ? end : cu[d];
    const Index queries = end - begin, keys = run.last_key - cu[d - 1];
    run.query_cu_seqlens.push_back(run.query_cu_seqlens.back() + queries);
    run.key_cu_seqlens.push_back(run.key_cu_seqlens.back() + keys);
    run.longest_query = std::max(run.longest_query, queries);
    run.longest_key = std::max(run.longest_key, keys);
  }
  return run;
}

}  // namespace posenc::v0
