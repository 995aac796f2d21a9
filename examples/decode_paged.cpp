// SPDX-License-Identifier: Apache-2.0
// Decoding with a paged cache: keys are rotated once, when they are written, and attention finds
// them through a table of pages. Two sequences of different lengths grow side by side.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "posenc/attention/attend.h"
#include "posenc/posenc.h"

using namespace posenc;

namespace {

constexpr Index kSequences = 2, kHeads = 4, kKeyHeads = 2, kDim = 16;
constexpr Index kPageSize = 4, kPages = 8, kPagesOfRow = 4, kSteps = 6;
constexpr Index kToken = kKeyHeads * kDim;  // floats of a token's key
constexpr Index kPrompt[kSequences] = {5, 2};

// What a model's projections would compute for a token.
void project(Index sequence, Index position, Index kind, float* to, Index count) {
  for (Index i = 0; i < count; ++i)
    to[i] = std::sin(float(3 * sequence + 5 * position + 7 * kind + i));
}

struct Cache {
  std::vector<float> k = std::vector<float>(kPages * kPageSize * kToken), v = k;
  std::vector<Index> table = std::vector<Index>(kSequences * kPagesOfRow);  // [sequences, pages]
  std::vector<Index> lengths = std::vector<Index>(kSequences);
  Index used = 0;  // pages

  // Rotated key and value of the sequence's next token.
  void append(Index sequence, const float* key, const float* value) {
    const Index at = lengths[sequence]++;
    if (at % kPageSize == 0) table[sequence * kPagesOfRow + at / kPageSize] = used++;
    const Index page = table[sequence * kPagesOfRow + at / kPageSize];
    const Index slot = (page * kPageSize + at % kPageSize) * kToken;
    std::copy(key, key + kToken, &k[slot]);
    std::copy(value, value + kToken, &v[slot]);
  }
};

// One sequence at once, without a cache: the output of its last token.
std::vector<float> whole(const RotaryPlan& rope, Index sequence, Index tokens) {
  std::vector<float> q(tokens * kHeads * kDim), k(tokens * kToken), v(k.size()), out(q.size());
  for (Index t = 0; t < tokens; ++t) {
    project(sequence, t, 0, &q[t * kHeads * kDim], kHeads * kDim);
    project(sequence, t, 1, &k[t * kToken], kToken);
    project(sequence, t, 2, &v[t * kToken], kToken);
  }
  rope.apply(heads(q.data(), tokens, kHeads, kDim), heads(k.data(), tokens, kKeyHeads, kDim),
             arange(0, tokens));
  AttentionArgs call;
  call.q = heads(q.data(), tokens, kHeads, kDim);
  call.k = heads(k.data(), tokens, kKeyHeads, kDim);
  call.v = heads(v.data(), tokens, kKeyHeads, kDim);
  call.scale = 1 / std::sqrt(double(kDim));
  call.mask.causal = true;
  attend(call, {heads(out.data(), tokens, kHeads, kDim), {}});
  return {out.end() - kHeads * kDim, out.end()};
}

}  // namespace

int main() {
  const RotaryPlan rope(resolve(Rope{.head_dim = kDim, .pairing = Pairing::half_split}),
                        DType::f32);
  Cache cache;
  std::vector<float> q(kSequences * kHeads * kDim), k(kSequences * kToken), v(k.size()),
      out(q.size());
  const auto rows = [](std::vector<float>& x, Index n) {  // [sequences, 1, heads, dim]
    return heads(tensor(x.data(), {kSequences, 1, n, kDim}), HeadsLayout::bthd);
  };
  const auto pages = [](const std::vector<float>& x) {  // [pages, page size, heads, dim]
    return heads(tensor(x.data(), {kPages, kPageSize, kKeyHeads, kDim}), HeadsLayout::bthd);
  };
  for (Index s = 0; s < kSequences; ++s)  // prompts; an engine computes them in one call
    for (Index t = 0; t < kPrompt[s]; ++t) {
      project(s, t, 1, k.data(), kToken);
      project(s, t, 2, v.data(), kToken);
      rope.apply(heads(k.data(), 1, kKeyHeads, kDim), arange(t, 1));
      cache.append(s, k.data(), v.data());
    }
  for (Index step = 0; step < kSteps; ++step) {
    for (Index s = 0; s < kSequences; ++s) {
      project(s, cache.lengths[s], 0, &q[s * kHeads * kDim], kHeads * kDim);
      project(s, cache.lengths[s], 1, &k[s * kToken], kToken);
      project(s, cache.lengths[s], 2, &v[s * kToken], kToken);
    }
    rope.apply(rows(q, kHeads), rows(k, kKeyHeads), decode_positions(cache.lengths));
    for (Index s = 0; s < kSequences; ++s) cache.append(s, &k[s * kToken], &v[s * kToken]);
    AttentionArgs call;
    call.q = rows(q, kHeads);
    call.k = pages(cache.k);
    call.v = pages(cache.v);
    call.block_table = tensor(std::as_const(cache.table).data(), {kSequences, kPagesOfRow});
    call.mask.key_length = tensor(std::as_const(cache.lengths).data(), {kSequences});
    call.scale = 1 / std::sqrt(double(kDim));
    attend(call, {rows(out, kHeads), {}});
  }
  float worst = 0;
  for (Index s = 0; s < kSequences; ++s) {
    const std::vector<float> want = whole(rope, s, cache.lengths[s]);
    for (Index i = 0; i < kHeads * kDim; ++i)
      worst = std::max(worst, std::abs(out[s * kHeads * kDim + i] - want[i]));
  }
  std::printf("%d and %d tokens in %d pages; largest difference from the whole sequences %.1e\n",
              int(cache.lengths[0]), int(cache.lengths[1]), int(cache.used), double(worst));
  return worst < 1e-6f ? 0 : 1;
}
