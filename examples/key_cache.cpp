// SPDX-License-Identifier: Apache-2.0
// A conversation without end in a cache of 64 tokens: sinks and a window, keys in bfloat16 that are rotated once, and
// never again although their positions change at each step.
#include "posenc/cache/key_cache.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "posenc/posenc.h"

using namespace posenc;

namespace {

constexpr Index kHeads = 4, kKeyHeads = 2, kDim = 32, kSinks = 4, kWindow = 60, kSteps = 2000;

// What a model's projections would compute for a token.
std::vector<float> project(Index token, Index kind, Index count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i)
    x[static_cast<std::size_t>(i)] = std::sin(float(5 * token + 7 * kind + i * i));
  return x;
}

void append(KeyCache& cache, Index token, Index position) {
  const std::vector<float> k = project(token, 1, kKeyHeads * kDim);
  const std::vector<float> v = project(token, 2, kKeyHeads * kDim);
  const OwnedPositions at = arange(position, 1);
  NewTokens tokens;
  tokens.k = heads(k.data(), 1, kKeyHeads, kDim), tokens.v = heads(v.data(), 1, kKeyHeads, kDim);
  tokens.positions = at;
  cache.append(tokens);
}

// The output of the last token.
std::vector<float> attend_last(const KeyCache& cache, Index token) {
  const std::vector<float> q = project(token, 0, kHeads * kDim);
  std::vector<float> out(q.size());
  AttentionArgs call;
  call.q = heads(q.data(), 1, kHeads, kDim);
  call.scale = 1 / std::sqrt(double(kDim)), call.mask.causal = true;
  cache.attend(call, {heads(out.data(), 1, kHeads, kDim), {}});
  return out;
}

}  // namespace

int main() {
  const RotarySpec rope = resolve(Rope{.head_dim = kDim, .pairing = Pairing::half_split});
  PoolSizes sizes;
  sizes.pages = 12, sizes.heads = kKeyHeads, sizes.head_dim = sizes.value_dim = kDim;
  sizes.key_type = sizes.value_type = KeyType::bf16;
  const PagePool pool(sizes);
  KeyCache cache(pool, rope);
  std::vector<float> out;
  for (Index token = 0; token < kSteps; ++token) {
    if (cache.keep(kSinks, kWindow - 1) > 0)        // the oldest token behind the sinks leaves,
      cache.shift(kSinks, cache.next_order(), -1);  // and those behind it move up
    append(cache, token, std::min(token, kSinks + kWindow - 1));
    out = attend_last(cache, token);
    if (pool.free_pages() < 2) cache.compact();
  }
  // The same tokens, appended at their positions of today.
  const PagePool other(sizes);
  KeyCache fresh(other, rope);
  Index position = 0;
  for (const Index token : cache.orders()) append(fresh, token, position++);
  const std::vector<float> want = attend_last(fresh, kSteps - 1);
  float worst = 0;
  for (std::size_t i = 0; i < out.size(); ++i) worst = std::max(worst, std::abs(out[i] - want[i]));
  std::printf(
      "%d tokens seen, %d cached in %d pages, %d shifts of keys that were never rewritten; largest "
      "difference from "
      "a fresh cache %.1e\n",
      int(kSteps), int(cache.size()), int(cache.pages()), int(cache.runs()), double(worst));
  return worst < 0.01f && cache.moves() == 0 ? 0 : 1;
}
