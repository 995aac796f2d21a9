// SPDX-License-Identifier: Apache-2.0
#include "parallel/ulysses.h"

#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "attention/call/rotation_positions.h"
#include "attention/engines/engine.h"
#include "parallel/facts.h"
#include "parallel/heads_call.h"
#include "posenc/core/error.h"
#include "posenc/parallel/ulysses.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

// An axis of heads of which a rank has some, or one that it shares.
void check_by_head(Index entries, Index ranks, std::string_view what) {
  if (entries > 0 && entries % ranks != 0 && ranks % entries != 0)
    refuse_field(kUlysses, what,
                 "must be a multiple or a divisor of the ranks, " + std::to_string(ranks), entries);
}
void check_by_head(const ConstTensorView& v, std::size_t axis, Index ranks, std::string_view what) {
  if (!v.empty()) check_by_head(v.shape[axis], ranks, what);
}

void check_heads(const AttentionArgs& a, Index ranks) {
  if (a.q.heads % ranks != 0)
    refuse_field(kUlysses, "heads of q",
                 "must be a multiple of the ranks, " + std::to_string(ranks), a.q.heads);
  check_by_head(a.k.heads, ranks, "heads of k");
  check_by_head(a.mask.chunk_origin, 1, ranks, "the groups of chunk_origin");
  for (const ScoreRegion& r : a.regions)
    check_by_head(r.qk.k.heads, ranks, "heads of k of a region");
  for (const Stage& s : a.prepare)
    for (const ConstTensorView* v : {&s.q, &s.k})
      check_by_head(*v, 0, ranks, "the groups of a stage");
  for (const Term& t : a.terms) {
    if (std::holds_alternative<ScoreMlpTerm>(t)) refuse(kUlysses, "networks over scores mix heads");
    const TermArrays arrays = term_arrays(t);
    check_by_head(arrays.table, 1, ranks, "the groups of a table");
    for (const Factor* f : {&arrays.query, &arrays.key})
      check_by_head(f->given.heads, ranks, "the heads of a vector");
    for (const ConstTensorView* v : {&arrays.mlp.out, &arrays.mlp.out_bias})
      check_by_head(*v, 0, ranks, "the groups of a network");
  }
}

// fn(spec, positions) of all that is rotated.
template <class F>
void each_rotation(const AttentionArgs& a, const F& fn) {
  for (const Stage& s : a.prepare)
    if (s.kind == StageKind::rotate && s.rotary != nullptr)
      fn(*s.rotary, a.query_positions), fn(*s.rotary, a.key_positions);
  for (const ScoreRegion& r : a.regions)
    if (r.rotary != nullptr) fn(*r.rotary, r.query_positions), fn(*r.rotary, r.key_positions);
}

void check_ulysses(const AttentionArgs& a, const Group& g) {
  check_heads(a, g.size());
  check_no_blocks(kUlysses, a);
  const Mask& m = a.mask;
  for (const auto& [view, name, why] :
       {std::tuple{&m.visible, "mask.visible", "it holds every pair of tokens"},
        {&m.bias, "mask.bias", "it holds every pair of tokens"},
        {&a.block_table, "block_table", "pages are not exchanged"},
        {&a.mix_before, "mix_before", "it mixes heads"},
        {&a.mix_after, "mix_after", "it mixes heads"}})
    if (!view->empty()) refuse_field(kUlysses, name, std::string("must be empty: ") + why);
  for (const auto& [view, name] :
       {std::pair{&m.query_order, "mask.query_order"}, {&m.key_order, "mask.key_order"}})
    if (view->empty() && a.q.tokens > 0)
      refuse_field(kUlysses, name, "must state where the tokens of the rank stand in the sequence");
  if (g.size() > 1 && std::min(a.q.tokens, a.k.tokens) == 1)
    refuse_field(kUlysses, "q", "must have at least two tokens on each rank, and k too", Index{1});
  each_rotation(a, check_axes);
}

// Frequencies must hold for the length of the whole sequence. On every rank alike, before it computes.
void check_lengths(const Group& group, const AttentionArgs& a) {
  std::vector<Index> own;
  std::vector<LengthRange> ranges;
  each_rotation(a, [&](const RotarySpec& s, const Positions& p) {
    if (p.count == 0) return;
    own.push_back(length_of(p)), ranges.push_back({s.valid_from(), s.valid_to()});
  });
  const std::vector<Index> all = gather(group, own);
  for (std::size_t n = 0; n < own.size(); ++n) {
    Index longest = 0;
    for (std::size_t r = n; r < all.size(); r += own.size()) longest = std::max(longest, all[r]);
    check_length("rotary", longest, ranges[n]);
  }
}

void forward(const HeadsCall& call, const LoweredCall& lowered, const AttentionResult& result,
             const Executor& e) {
  PacketBytes out, sums;
  ConstHeads shape = call.args.q;
  shape.dim = call.args.v.dim;
  ConstHeads one = shape;
  one.dim = 1;
  const Heads lse = new_heads(one, DType::f64, sums);  // by token, as it travels
  const AttentionResult all{new_heads(shape, result.out.dtype, out), sums_of(lse)};
  CallArena arena;
  attend_lowered(call.args, lowered, all, arena, e);
  return_heads(call.group, call.queries, all.out, result.out, false);
  if (!result.log_sum_exp.empty())
    return_heads(call.group, call.queries, lse, heads_of(result.log_sum_exp), false);
}

void backward(const HeadsCall& call, const LoweredCall& lowered, const ConstAttentionResult& result,
              const ConstAttentionResult& d_result, const AttentionGradients& to,
              const SummedGradients& summed, const Executor& e) {
  clear_overwritten(to);
  std::deque<PacketBytes> memory;
  const auto by_head = [&](const ConstAttentionResult& r) {
    const auto exchanged = [&](const ConstHeads& h) {
      return exchange_heads(call.group, call.queries, h, memory.emplace_back());
    };
    ConstAttentionResult all(exchanged(r.out), {});
    if (!r.log_sum_exp.empty()) all.log_sum_exp = sums_of(exchanged(heads_of(r.log_sum_exp)));
    all.whole = r.whole;
    return all;
  };
  const ConstAttentionResult all = by_head(result), d_all = by_head(d_result);
  HeadsGradients gradients(call, to, summed);
  CallArena arena;
  attend_lowered_backward(call.args, lowered, all, d_all, gradients.all, arena, e);
  gradients.finish(call.group);
}

// check(facts) refuses what does not fit, run(call, lowered) computes.
template <class Check, class Run>
void run_ulysses(const Group& group, std::string_view pass, const AttentionArgs& a,
                 LoweredCall lowered, std::exception_ptr problem, const Agreed& agreed,
                 const Check& check, const Run& run) {
  Facts facts;
  facts.add(Facts::pass, pass);
  facts.add(Facts::agreement, group.agreement());
  if (problem == nullptr) {
    try {
      check_ulysses(a, group);
      check(facts);
      check_attention_indices(a);
      add_call(facts, a);
    } catch (...) {
      problem = std::current_exception();
    }
  }
  agree(group, facts, problem);
  check_lengths(group, a);
  KeyedCall own(a);
  agreed(own);
  lowered.bands = {};  // of all heads
  try {
    run(HeadsCall(group, own.args), lowered);
  } catch (...) {
    group.end();
    throw;
  }
}

}  // namespace

void ulysses_call(const Group& group, const AttentionArgs& a, const LoweredCall& lowered,
                  const AttentionResult& result, const Executor& executor,
                  const std::exception_ptr& problem, const Agreed& agreed) {
  run_ulysses(
      group, "ulysses", a, lowered, problem, agreed,
      [&](Facts& facts) {
        check_attention(a, result);
        check_overlap(a, result, {});
        facts.add(Facts::gradients, Index{result.log_sum_exp.empty()});
        facts.add(Facts::sizes, result.out);
      },
      [&](const HeadsCall& call, const LoweredCall& l) { forward(call, l, result, executor); });
}

void ulysses_call_backward(const Group& group, const AttentionArgs& a, const LoweredCall& lowered,
                           const ConstAttentionResult& result, const ConstAttentionResult& d_result,
                           const AttentionGradients& g, const SummedGradients& summed,
                           const Executor& executor, const std::exception_ptr& problem,
                           const Agreed& agreed) {
  run_ulysses(
      group, "ulysses backward", a, lowered, problem, agreed,
      [&](Facts& facts) {
        check_attention(a, g);
        for (const auto& [r, what] :
             {std::pair{&result, "the result"}, {&d_result, "the gradient of the result"}}) {
          check_read(a, *r, what);
          facts.add(Facts::sizes, r->out), facts.add(Facts::sizes, r->log_sum_exp, false);
        }
        check_whole(a, result);
        facts.add(Facts::pass, Index{result.whole});
        check_overlap(a, d_result, g, {});
        add_wanted(facts, g);
      },
      [&](const HeadsCall& call, const LoweredCall& l) {
        backward(call, l, result, d_result, g, summed, executor);
      });
}

}  // namespace detail

void ulysses_attend(const AttentionArgs& a, const AttentionResult& result, const Communicator& c,
                    const RingOptions& options, const Executor& executor) {
  detail::ulysses_call(detail::Group(detail::kUlysses, c, options), a, {}, result, executor,
                       nullptr, [](detail::KeyedCall&) {});
}

void ulysses_attend_backward(const AttentionArgs& a, const ConstAttentionResult& result,
                             const ConstAttentionResult& d_result, const AttentionGradients& g,
                             const Communicator& c, const RingOptions& options,
                             const Executor& executor) {
  detail::ulysses_call_backward(detail::Group(detail::kUlysses, c, options), a, {}, result,
                                d_result, g, {0, a.terms.size(), true}, executor, nullptr,
                                [](detail::KeyedCall&) {});
}

}  // namespace posenc::inline v0
