// SPDX-License-Identifier: Apache-2.0
#include "attention/exact/call_view.h"

#include "attention/exact/load_keys.h"
#include "attention/exact/regions.h"

namespace posenc::inline v0::detail {
namespace {

std::span<const double> mix_of(const ConstTensorView& v, CallArena& arena) {
  if (v.empty()) return {};
  const std::span<double> x = arena.objects<double>(v.shape[0] * v.shape[1]);
  std::size_t n = 0;
  for (Index h = 0; h < v.shape[0]; ++h)
    for (Index g = 0; g < v.shape[1]; ++g) x[n++] = read_number(v, h, g);
  return x;
}

}  // namespace

CallView::CallView(const ReadyCall& call, const LoweredCall& prepared, bool backward,
                   CallArena& arena, const Executor& executor)
    : ReadyCall(call), lowered(prepared) {
  load_keys(*this, backward, arena, executor);
  q = load_by_heads(args.q, arena, executor);
  load_regions(*this, arena, executor);
  run_stages(*this, backward, arena, executor);
  make_key_tiles(*this, backward, arena, executor);
  terms = arena.made<TermView>(static_cast<Index>(args.terms.size()), [&](Index n) {
    return view_of(*this, static_cast<std::size_t>(n), backward, arena);
  });
  mix_before = mix_of(args.mix_before, arena);
  mix_after = mix_of(args.mix_after, arena);
}

}  // namespace posenc::v0::detail
