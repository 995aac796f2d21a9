// SPDX-License-Identifier: Apache-2.0
// All tokens of a cache as dense tensors, for attention that reads no pages.
#pragma once
#include <optional>
#include <vector>

#include "cache/cache_state.h"
#include "cache/stored_numbers.h"

namespace posenc::inline v0::detail {

// Of pages of keys or values, all tokens to [1, tokens, heads, channels] of f64 or f32.
void read_tokens(const CacheState&, const ConstHeads& pages, KeyType, const Heads& to) noexcept;

class DenseTokens {
 public:
  // In f64 if `wide`, else in f32 unless f64 is stored.
  DenseTokens(const CacheState& state, bool wide) : s_(state), wide_(wide) {}

  // [1, tokens, heads, channels], exactly what is stored.
  Heads stored_keys();
  Heads values();
  // Memory for keys, as KeyCache::read_keys fills it.
  Heads keys();
  // The entries of a token array, [tokens, shape of an entry].
  ConstTensorView array(std::size_t index);

 private:
  Heads floats(std::optional<FloatTokens>&, Index channels, KeyType) const;

  const CacheState& s_;
  bool wide_;
  std::optional<FloatTokens> keys_, values_;
  std::vector<std::vector<double>> entries_;  // bytes, aligned for every type
};

}  // namespace posenc::v0::detail
