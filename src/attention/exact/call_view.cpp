// SPDX-License-Identifier: Apache-2.0
#include "attention/exact/call_view.h"

#include <limits>

#include "core/extent.h"
#include "core/memory_limit.h"

namespace posenc::inline v0::detail {
namespace {

Numbers tiles_of(const Numbers& x, Index slabs, Index tokens, Index channels) {
  const Index size = tiles_size(tokens, channels);
  Numbers tiles(static_cast<std::size_t>(slabs * size));
  for (Index s = 0; s < slabs; ++s)
    make_tiles(x.data() + s * tokens * channels, tokens, channels, tiles.data() + s * size);
  return tiles;
}

Numbers mix_of(const ConstTensorView& v) {
  Numbers x;
  for (Index h = 0; !v.empty() && h < v.shape[0]; ++h)
    for (Index g = 0; g < v.shape[1]; ++g) x.push_back(read_number(v, h, g));
  return x;
}

// The copies that a call makes of q, k and v, k twice and v twice in a backward pass.
void check_copies(const CallView& c, bool backward) {
  Index bytes = 0;
  for (const Index n :
       {saturated_product({c.B, c.H, c.Tq, c.D, 8}), saturated_product({c.R, c.G, c.Tk, c.D, 16}),
        saturated_product({c.R, c.G, c.Tk, c.V, backward ? 16 : 8})})
    if (__builtin_add_overflow(bytes, n, &bytes)) bytes = std::numeric_limits<Index>::max();
  check_memory("attention", "q, k and v in double", static_cast<std::size_t>(bytes));
}

}  // namespace

CallView::CallView(const AttentionArgs& a, bool backward, const Executor& executor) : ReadyCall(a) {
  check_copies(*this, backward);
  q = by_heads(a.q);
  load_keys(*this);
  run_stages(*this, backward, executor);
  k_tiles = tiles_of(k, R * G, Tk, D);
  if (backward) v_tiles = tiles_of(v, R * G, Tk, V);
  for (const Term& t : a.terms) terms.push_back(view_of(*this, t));
  for (const ScoreRegion& r : a.regions)
    regions.push_back({by_heads(r.qk.q), by_heads(r.qk.k), r.qk.k.heads});
  mix_before = mix_of(a.mix_before);
  mix_after = mix_of(a.mix_after);
}

}  // namespace posenc::v0::detail
