// SPDX-License-Identifier: Apache-2.0
// The cached keys and values of one sequence and layer, in pages of a pool. Operations state what they do to stored
// keys: kept (not touched), moved (rotated to other positions or frequencies and rounded again, once) or refused.
//
//   anchored   A key is rotated once, at its append. A shift of tokens is a number s: attend rotates the query by
//              position - s for each distinct s, and merges the results. Exact in every type, and pages can be shared
//              at different positions.
//   unrotated  Keys are stored as they come, and attend rotates them in each call. They follow any change of the
//              rotation.
//
// Order (the number of a token in its sequence, from 0) defines masks and names tokens. It never changes and is not
// given again, except to tokens after a rewind. Positions define distances and rotations.
//
// One thread at a time may change a sequence; attend, fork and other const functions may run at once. Sequences of one
// pool are independent. A call that throws changes nothing.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "posenc/attention/path.h"
#include "posenc/attention/plan.h"
#include "posenc/attention/selective.h"
#include "posenc/cache/page_pool.h"

namespace posenc::inline v0 {

namespace detail {
struct CacheState;
}  // namespace detail

enum class KeyKeeping : std::uint8_t { anchored, unrotated };
template <>
struct EnumNames<KeyKeeping> {
  static constexpr std::array<std::string_view, 2> value{"anchored", "unrotated"};
};

// Tokens to append. k is not rotated; biases and norms of k are applied.
struct NewTokens {
  ConstHeads k{};  // [1, tokens, heads, head_dim], any float type
  ConstHeads v{};  // [1, tokens, heads, value_dim]; empty for keys only, and for values in keys
  // One for each token, whole numbers of at most 2^37 in magnitude, on the axes of the pool.
  Positions positions{};
  std::span<const NamedArray>
      arrays{};  // all token arrays of the pool, [tokens, shape of an entry]
};

// A token array that a term of a call reads: an integer array as key_class of its pair, another one as its factor of
// the key (key.given).
struct KeyInput {
  Index term = 0;  // of AttentionArgs::terms
  std::string_view array;
};

// What happens to keys that another rotation has rotated.
enum class OtherRotation : std::uint8_t { refuse, move };
template <>
struct EnumNames<OtherRotation> {
  static constexpr std::array<std::string_view, 2> value{"refuse", "move"};
};
struct RescaleOptions {
  OtherRotation keys = OtherRotation::refuse;
  bool cut_blocks = false;  // RerotationOptions
};

class KeyCache {
 public:
  // `rotary` rotates keys and queries; without blocks nothing rotates (ALiBi, T5). Resolve scalings by length before.
  // Throws [key_cache]: a rotation that does not fit the pool.
  POSENC_API KeyCache(const PagePool&, const RotarySpec& rotary, KeyKeeping = KeyKeeping::anchored);
  POSENC_API KeyCache(KeyCache&&) noexcept;
  POSENC_API KeyCache& operator=(KeyCache&&) noexcept;
  POSENC_API ~KeyCache();

  POSENC_API const PagePool& pool() const noexcept POSENC_LIFETIME_BOUND;
  POSENC_API const RotarySpec& rotary() const noexcept POSENC_LIFETIME_BOUND;
  POSENC_API KeyKeeping keeping() const noexcept;
  POSENC_API Index size() const noexcept;        // tokens that are there
  POSENC_API Index next_order() const noexcept;  // of the next token
  POSENC_API Index pages() const noexcept;
  // Distinct shifts, each of which costs attend a call of its own (anchored keys).
  POSENC_API Index runs() const;
  // How often stored keys were moved at most. Their error is within RerotationPlan::bound(moves() + 1).
  POSENC_API Index moves() const noexcept;
  // Of the tokens that are there, in their order.
  POSENC_API std::vector<Index> orders() const;
  POSENC_API OwnedPositions positions() const;

  // Keys are rotated by the shift of the last token, so that they continue its run, and rounded once. Throws
  // [key_cache]: tensors, positions or arrays that do not fit; positions at or beyond valid_to of the rotation;
  // OutOfPages.
  POSENC_API void append(const NewTokens&, const Executor& = default_executor());

  // The tokens of another cache behind those that are here. delta, a number for each axis (empty: 0), is added to their
  // positions. The order of a token is next_order() + its order in the other cache, which stays as it is. Pages of the
  // same pool are shared until one of the two writes them, so that no page is taken; those of another pool are copied.
  // Keys follow this cache's rotation as by rescale: kept, moved (in pages of this cache) or refused. So they do between
  // keepings, unless nothing rotates: unrotated keys are rotated in pages of an anchored cache, the stored numbers that
  // append(NewTokens) would store if it were given those of the other cache; anchored keys are turned back for an
  // unrotated cache. Either way they are rounded once more. Token arrays come along unchanged: sums of gates of the
  // other cache begin where it began. Throws [key_cache]: sizes, types or token arrays of another pool that differ; what
  // shift and rescale refuse; anchored keys of xPos for an unrotated cache; [rerotate]: q8_0 blocks that rotate in part,
  // without cut_blocks; OutOfPages.
  POSENC_API MoveVerdict append(const KeyCache& other, std::span<const Index> delta = {},
                                const RescaleOptions& = {}, const Executor& = default_executor());
  MoveVerdict append(const KeyCache& other, Index delta, const RescaleOptions& options = {},
                     const Executor& executor = default_executor()) {
    return append(other, std::span<const Index>(&delta, 1), options, executor);
  }

  // attend of a call whose keys are the cache's. q is [1, Tq, H, head_dim] and not rotated. The call has no k, v,
  // block_table, key_positions and prepare, and of the mask no keys: the cache knows their order and, if query_document
  // is set, their documents in the token array "document".
  // Queries are by default the last Tq tokens, with their positions; set mask.query_order and query_positions of
  // others. Neither query_offset nor cu_seqlens. Terms with arrays by key read token arrays (`inputs`).
  // Schemes that sum over the keys in between (gates, kernels over keys, stick-breaking) need all tokens from the first
  // that is there on, at one shift. Terms that read rotated q or k need anchored keys without a shift. Throws
  // [key_cache], [attention].
  POSENC_API void attend(const AttentionArgs&, std::span<const KeyInput> inputs,
                         const AttentionResult&, const Executor& = default_executor()) const;
  void attend(const AttentionArgs& call, const AttentionResult& result,
              const Executor& executor = default_executor()) const {
    attend(call, {}, result, executor);
  }
  // With the schemes of a plan, which must not be rotary. Inputs by key are the token arrays of the same name, the
  // others are given.
  POSENC_API void attend(const LoweredAttention&, const AttentionArgs&,
                         std::span<const NamedArray> inputs, const AttentionResult&,
                         const Executor& = default_executor()) const;

  // PaTH over the tokens of a cache that does not rotate. The call has q, scale, gates_scaled and window_left; its
  // queries are the last tokens. w, beta and log_gate (optional) are token arrays of these names: [W, head_dim], [W]
  // and [F]. Only the oldest tokens may be evicted, because every token in between reflects. In double, from copies of
  // keys and values. Throws [key_cache], [path].
  POSENC_API void attend_path(const PathArgs&, const AttentionResult&,
                              const Executor& = default_executor()) const;

  // Selective attention over the tokens of the cache: as attend, with a mask that is causal and no more, and q of f64
  // or f32. Queries are all tokens since the last call, so that each masks keys once; what they masked is in the token
  // array "masked" (f64, one number; append it as 0). Pages that others share are copied, because it is written. In
  // double, from copies of keys and values. Throws [key_cache], [selective], OutOfPages.
  POSENC_API void attend_selective(const AttentionArgs&, const AttentionResult&,
                                   const SelectiveOptions& = {},
                                   const Executor& = default_executor());

  // A sequence with the same tokens, which shares the pages until one of the two writes them.
  POSENC_API KeyCache fork() const;
  // Drops the tokens from this order on; it is then that of the next token. Throws [key_cache]: tokens that masked keys
  // of others (attend_selective).
  POSENC_API void rewind(Index order);
  // Drops these tokens, by order, or all from `first` up to `end`. Throws [key_cache]: a token that is not there, or
  // listed twice.
  POSENC_API void evict(std::span<const Index> tokens);
  POSENC_API void evict(Index first, Index end);
  // Keeps the first `sinks` and the last `window` tokens. Returns how many left.
  POSENC_API Index keep(Index sinks, Index window);
  // Adds delta, a number for each axis, to the positions of the tokens of order first up to end. Keys are kept.
  // Throws [key_cache]: positions beyond 2^37, or at or beyond valid_to; anchored keys of a compatibility precision,
  // whose rotation depends on more than the distance.
  POSENC_API void shift(Index first, Index end, std::span<const Index> delta);
  void shift(Index first, Index end, Index delta) {
    shift(first, end, std::span<const Index>(&delta, 1));
  }
  // Another rotation, for example for another length of a dynamic scaling. Unrotated keys are kept. Anchored keys that
  // it rotates alike are kept, others moved to their positions, which ends all shifts, or refused. Throws [key_cache].
  POSENC_API MoveVerdict rescale(const RotarySpec&, const RescaleOptions& = {},
                                 const Executor& = default_executor());
  // Frees the memory of evicted tokens. Keys are copied as they are.
  POSENC_API void compact();
  POSENC_API void clear() noexcept;

  // The stored keys rotated to their positions: [1, size, heads, head_dim], f64 or f32. Throws [key_cache].
  POSENC_API void read_keys(const Heads&, const Executor& = default_executor()) const;

 private:
  friend struct detail::StateAccess;
  explicit KeyCache(std::unique_ptr<detail::CacheState>) noexcept;
  std::unique_ptr<detail::CacheState> state_;
};

}  // namespace posenc::v0
