// SPDX-License-Identifier: Apache-2.0
#include "cache/dense_tokens.h"

#include <cstring>

#include "core/head_views.h"

namespace posenc::inline v0::detail {

void read_tokens(const CacheState& s, const ConstHeads& pages, KeyType type,
                 const Heads& to) noexcept {
  Index token = 0;
  for (const PageUse& u : s.sequence.uses)
    for_each_run(u.there, [&](Index slot, Index n) {
      read_stored(token_range(pages, u.page, slot, n), type, token_range(to, 0, token, n));
      token += n;
    });
}

Heads DenseTokens::floats(std::optional<FloatTokens>& memory, Index channels, KeyType type) const {
  const Index n = s_.sequence.tokens;
  memory.emplace(n, s_.pool->sizes.heads, channels, wide_ || type == KeyType::f64);
  return memory->view(n);
}

Heads DenseTokens::keys() {
  return floats(keys_, s_.pool->sizes.head_dim, s_.pool->sizes.key_type);
}

Heads DenseTokens::stored_keys() {
  const Heads all = keys();
  read_tokens(s_, s_.pool->keys, s_.pool->sizes.key_type, all);
  return all;
}

Heads DenseTokens::values() {
  const PoolSizes& sizes = s_.pool->sizes;
  const KeyType type = sizes.values_in_keys ? sizes.key_type : sizes.value_type;
  const Heads all = floats(values_, sizes.value_dim, type);
  read_tokens(s_, s_.pool->readable_values(), type, all);
  return all;
}

ConstTensorView DenseTokens::array(std::size_t index) {
  const TokenArray& a = s_.pool->sizes.arrays[index];
  const Index bytes = s_.pool->entry_bytes[index], n = s_.sequence.tokens;
  std::vector<double>& all = entries_.emplace_back(static_cast<std::size_t>((n * bytes + 7) / 8));
  auto* to = reinterpret_cast<std::byte*>(all.data());
  for (const PageUse& u : s_.sequence.uses)
    for_each_run(u.there, [&](Index slot, Index count) {
      std::memcpy(to, s_.pool->entry(index, u.page, slot), static_cast<std::size_t>(count * bytes));
      to += count * bytes;
    });
  std::vector<Index> shape{n};
  shape.insert(shape.end(), a.shape.begin(), a.shape.end());
  return tensor(static_cast<const void*>(all.data()), a.dtype, shape);
}

}  // namespace posenc::v0::detail
