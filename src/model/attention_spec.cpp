// SPDX-License-Identifier: Apache-2.0
#include "posenc/model/attention_spec.h"

#include <algorithm>

namespace posenc::inline v0 {

std::vector<Index> token_blocks(const TokenMask& mask, std::span<const Index> types) {
  std::vector<Index> blocks;
  Index block = -1;
  bool before = false;
  for (const Index type : types) {
    const bool is = std::ranges::find(mask.types, type) != mask.types.end();
    if (is && (mask.runs ? !before : block < 0)) ++block;
    blocks.push_back(is ? block : -1);
    before = is;
  }
  return blocks;
}

bool sees(const AttentionSpec& a, std::span<const Index> blocks, Index i, Index j) {
  const bool near = !a.left || i - j <= *a.left;
  const bool chunk = !a.chunk || i / *a.chunk == j / *a.chunk;
  if (!a.by_token_type) return near && chunk && (!a.right || j - i <= *a.right);
  const Index own = blocks[static_cast<std::size_t>(i)];
  const bool together = own >= 0 && own == blocks[static_cast<std::size_t>(j)];
  if (together && (near || !a.by_token_type->within_window)) return true;
  return near && chunk && j <= i;
}

}  // namespace posenc::v0
