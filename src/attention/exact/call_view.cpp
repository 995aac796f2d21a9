// SPDX-License-Identifier: Apache-2.0
#include "attention/exact/call_view.h"

#include "attention/exact/load_keys.h"

namespace posenc::inline v0::detail {
namespace {

Numbers mix_of(const ConstTensorView& v) {
  Numbers x;
  for (Index h = 0; !v.empty() && h < v.shape[0]; ++h)
    for (Index g = 0; g < v.shape[1]; ++g) x.push_back(read_number(v, h, g));
  return x;
}

}  // namespace

CallView::CallView(const AttentionArgs& a, const LoweredCall& prepared, bool backward,
                   const Executor& executor)
    : ReadyCall(a), lowered(prepared) {
  load_keys(*this, backward, executor);
  q = load_by_heads(a.q, executor);
  run_stages(*this, backward, executor);
  make_key_tiles(*this, backward, executor);
  for (std::size_t n = 0; n < a.terms.size(); ++n) terms.push_back(view_of(*this, n, backward));
  for (const ScoreRegion& r : a.regions)
    regions.push_back(
        {load_by_heads(r.qk.q, executor), load_by_heads(r.qk.k, executor), r.qk.k.heads});
  mix_before = mix_of(a.mix_before);
  mix_after = mix_of(a.mix_after);
}

}  // namespace posenc::v0::detail
