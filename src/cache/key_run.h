// SPDX-License-Identifier: Apache-2.0
// The tokens of a cache with one shift, as keys of a call; and the call of all runs.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "cache/cache_state.h"
#include "posenc/attention/plan.h"

namespace posenc::inline v0::detail {

class FloatTokens;
struct ChunkMemory;

// Key j of a run is slot j % page size of its page j / page size.
struct KeyRun {
  std::vector<Index> shift;
  std::vector<std::size_t> uses;  // of the sequence
};
// all: as one run, whatever the shifts are. An empty cache has one run without pages.
std::vector<KeyRun> key_runs(const CacheState&, bool all);

struct CacheCall {
  CacheCall(const CacheState&, const AttentionArgs&, std::span<const KeyInput>,
            const LoweredState*);
  void run(const AttentionResult&, std::span<const NamedArray>, const Executor&) const;

  const CacheState& s;
  const AttentionArgs& call;
  std::span<const KeyInput> inputs;
  const LoweredState* plan;                   // null: a call of its own
  const LoweredAttention* lowered = nullptr;  // the same
  std::vector<KeyRun> runs;
  std::vector<Index> query_order, query_position;  // [queries], [axes][queries]
  bool by_position = false;                        // the call reads positions
  // The tokens of unrotated keys in pieces, each of which is rotated before its own call; the results are merged.
  bool chunked = false;
  // Dense copies, because free slots between and after the tokens would be keys for kernels over keys.
  bool packed = false;

 private:
  void find_queries();
  bool turns_keys() const;
  void find_chunks();
  void run_chunks(const AttentionResult&, std::span<const NamedArray>, const Executor&) const;
  void take_positions();
  void check_between() const;
  void check_parts() const;
  void check_result(const AttentionResult&) const;
  std::size_t array_index(std::string_view name) const;
  ConstHeads rotated_query(const KeyRun&, FloatTokens*) const;
  void attend_run(const KeyRun&, const ConstHeads& q, std::span<const NamedArray>,
                  const AttentionResult&, const Executor&, ChunkMemory* = nullptr) const;
};

// What belongs to the cache, or would need keys that are not in pages. Throws [key_cache].
void check_free_call(const CacheState&, const AttentionArgs&);
// Why the keys of a call must be all tokens in a row: the score of one needs those in between. Empty: they need not.
std::string sums_between(const AttentionArgs&, const LoweredState*);

// Rotated keys of a chunk and, unless its pages lie side by side, its values.
struct ChunkMemory {
  std::vector<float> keys;
  std::vector<std::byte> values;
};
// Keys at positions [axes][stride], n pages from first on: [1, tokens, heads, channels].
Heads rotate_chunk(const CacheState&, const std::vector<Index>& pages, Index tokens,
                   const std::vector<Index>& positions, ChunkMemory&);
ConstHeads values_of_chunk(const CacheState&, const std::vector<Index>& pages, Index tokens,
                           ChunkMemory&);

}  // namespace posenc::v0::detail
