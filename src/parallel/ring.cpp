// SPDX-License-Identifier: Apache-2.0
// ring_attend: each rank checks its own call, all agree, then the loop runs.
#include "parallel/ring.h"
#include "parallel/stick_parts.h"

#include <algorithm>
#include <optional>

#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
Index sequence_length(const AttentionArgs& a) {
  for (const Stage& s : a.prepare)
    if (s.kind == StageKind::rotate)
      return std::max(length_of(a.query_positions), length_of(a.key_positions));
  return 0;
}

namespace {

// A call of this rank, from its checks to its end. check(args) refuses what does not fit, run(call) is the loop.
template <class Check, class Run>
void run_ring(const Group& group, std::string_view pass, const AttentionArgs& a,
              const LoweredCall& lowered, const Executor& executor, std::exception_ptr problem,
              const Agreed& agreed, const Check& check, const Run& run) {
  Facts facts;
  std::optional<RingCall> call;
  facts.add(Facts::pass, pass);
  facts.add(Facts::agreement, group.agreement());
  if (problem == nullptr) {
    try {
      check_ring(a, group);
      check(facts);
      check_attention_indices(a);
      add_call(facts, a);
      facts.length = sequence_length(a);
      call.emplace(a, lowered, executor);
    } catch (...) {
      problem = std::current_exception();
    }
  }
  const Index length = agree(group, facts, problem);
  call->check_length(length);
  if (a.normalisation != Normalisation::softmax) check_stick_order(group, a);
  agreed(call->own);
  try {
    run(*call);
  } catch (...) {
    group.end();
    throw;
  }
}

}  // namespace

void ring_call(const Group& group, const AttentionArgs& a, const LoweredCall& lowered,
               const AttentionResult& result, const Executor& executor,
               const std::exception_ptr& problem, const Agreed& agreed) {
  run_ring(
      group, "forward", a, lowered, executor, problem, agreed,
      [&](Facts& facts) {
        check_attention(a, result);
        check_overlap(a, result, {});
        facts.add(Facts::gradients, Index{result.log_sum_exp.empty()});
      },
      [&](RingCall& call) { ring_forward(group, call, result, executor); });
}

void ring_call_backward(const Group& group, const AttentionArgs& a, const LoweredCall& lowered,
                        const ConstAttentionResult& result, const ConstAttentionResult& d_result,
                        const AttentionGradients& g, const SummedGradients& summed,
                        const Executor& executor, const std::exception_ptr& problem,
                        const Agreed& agreed) {
  ConstAttentionResult whole = result;
  whole.whole = true;
  run_ring(
      group, "backward", a, lowered, executor, problem, agreed,
      [&](Facts& facts) {
        check_attention(a, g);
        check_read(a, result, "the result");
        AttentionArgs softmax = a;
        softmax.normalisation = Normalisation::softmax;
        check_whole(softmax, whole);
        check_read(a, d_result, "the gradient of the result");
        check_overlap(a, d_result, g, {});
        add_wanted(facts, g);
      },
      [&](RingCall& call) { ring_backward(group, call, whole, d_result, g, summed, executor); });
}

}  // namespace detail

void ring_attend(const AttentionArgs& a, const AttentionResult& result, const Communicator& c,
                 const RingOptions& options, const Executor& executor) {
  detail::ring_call(detail::Group(detail::kRing, c, options), a, {}, result, executor, nullptr,
                    [](detail::KeyedCall&) {});
}

void ring_attend_backward(const AttentionArgs& a, const ConstAttentionResult& result,
                          const ConstAttentionResult& d_result, const AttentionGradients& g,
                          const Communicator& c, const RingOptions& options,
                          const Executor& executor) {
  detail::ring_call_backward(detail::Group(detail::kRing, c, options), a, {}, result, d_result, g,
                             {0, a.terms.size(), true}, executor, nullptr,
                             [](detail::KeyedCall&) {});
}

}  // namespace posenc::v0
