// SPDX-License-Identifier: Apache-2.0
#include "attention/engines/engine.h"
#include "core/element.h"
#include "parallel/ring.h"

namespace posenc::inline v0::detail {
namespace {

// The result so far, in the type of sums.
struct RingResult {
  RingResult(const RingCall& call, const AttentionResult& to)
      : out(to.out.dtype == call.type ? to.out : new_heads(to.out, call.type, out_memory)),
        sums(!to.log_sum_exp.empty() && to.log_sum_exp.dtype == DType::f64
                 ? to.log_sum_exp
                 : new_sums(to.out, sum_memory)) {}
  AttentionResult some(const TokenRun& run) const noexcept {
    return {narrowed(out, run), narrowed(sums, 2, run)};
  }
  // Rounds it to what the caller wants.
  void put(const AttentionResult& to) const {
    if (!out_memory.empty()) copy_heads(to.out, out);
    if (to.log_sum_exp.empty() || sum_memory.empty()) return;
    const double* x = static_cast<const double*>(sums.data);
    for (Index b = 0; b < sums.shape[0]; ++b)
      for (Index h = 0; h < sums.shape[1]; ++h)
        for (Index t = 0; t < sums.shape[2]; ++t) {
          const TensorView& l = to.log_sum_exp;
          put_element(l.data, l.dtype, b * l.stride[0] + h * l.stride[1] + t * l.stride[2], *x++);
        }
  }

  PacketBytes out_memory, sum_memory;
  Heads out;
  TensorView sums;
};

}  // namespace

void ring_forward(const Group& group, RingCall& call, const AttentionResult& result,
                  const Executor& executor) {
  RingResult whole(call, result);
  PacketBytes out_memory, sum_memory;
  const Heads out = new_heads(whole.out, call.type, out_memory);
  const AttentionResult part{out, new_sums(whole.out, sum_memory)};
  PieceMemory memory;
  Watch watch(executor);
  KeyRing ring(group, call);
  for (Index n = 0; n < ring.steps(); ++n) {
    KeyedCall& step = ring.step();
    watch.set(ring.exchanges());
    for (const RingPiece& p : call.pieces(step, ring.has_own())) {
      const KeyedCall some = RingCall::call_of(step, p);
      const AttentionResult sum = whole.some(p.q);
      const TokenRun head{0, 0, p.q.count};
      const AttentionResult to = p.has_sink ? sum
                                            : AttentionResult{narrowed(part.out, head),
                                                              narrowed(part.log_sum_exp, 2, head)};
      watch.run([&](const Executor& e) {
        memory.run(
            [&](CallArena& arena) { attend_lowered(some.args, call.lowered, to, arena, e); });
      });
      if (p.has_sink) continue;  // the first of these queries
      const ConstAttentionResult parts[] = {sum, to};
      merge(parts, sum, some.args.normalisation);
    }
    watch.set({});
    ring.advance();
  }
  whole.put(result);
}

}  // namespace posenc::v0::detail
