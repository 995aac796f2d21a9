// SPDX-License-Identifier: Apache-2.0
#include "attention/call/add_to.h"
#include "attention/engines/engine.h"
#include "parallel/ring.h"
#include "parallel/shared_gradients.h"
#include "parallel/stick_parts.h"

namespace posenc::inline v0::detail {
namespace {

// Where the gradients of a call's pieces go.
class RingGradients {
 public:
  RingGradients(RingCall&, const AttentionGradients&, const SummedGradients&);

  // Of a piece, its gradients by key in `keys`. The views are valid until the next call.
  const AttentionGradients& of(const RingPiece&, const KeyGradients& keys);
  std::vector<bool> wanted_by_key() const;
  // What came home, and sums over the ranks, to the caller's gradients.
  void finish(const Group&, RingCall&, KeyGradients& home, const Executor&);

 private:
  const AttentionGradients& to_;
  KeyedCall& own_;
  SharedGradients shared_;
  AttentionGradients all_, some_;
  std::vector<TermGradient> terms_, some_terms_;
  std::vector<StageGradient> stages_;
  std::vector<QK> some_regions_;
  std::vector<Heads> by_key_;  // the caller's, as each_key_heads lists them
  PacketBytes q_memory_;
  Heads d_q_;
};

RingGradients::RingGradients(RingCall& call, const AttentionGradients& g,
                             const SummedGradients& summed)
    : to_(g), own_(call.own), all_(g), terms_(g.terms.begin(), g.terms.end()) {
  all_.overwrite = false;
  d_q_ = g.q;
  if (g.q.data != nullptr && call.rotates) {
    d_q_ = new_heads(g.q, call.type, q_memory_);
    std::fill(q_memory_.begin(), q_memory_.end(), std::byte{0});
  }
  all_.head_scale = shared_.take(g.head_scale, summed.head_scale);
  all_.sink = shared_.take(g.sink, true);
  all_.mix_before = shared_.take(g.mix_before, true);
  by_key_ = {g.k, g.v};
  for (std::size_t n = 0; n < own_.args.terms.size(); ++n) {
    Term term = own_.args.terms[n];
    const Factor* const key = KeyedCall::key_factor(term);
    const bool by_key = key != nullptr && KeyedCall::is_by_token(*key, own_.keys());
    if (by_key) by_key_.push_back(terms_.empty() ? Heads{} : terms_[n].key);
    if (terms_.empty()) continue;
    const bool over_ranks = n >= summed.first_term && n < summed.first_term + summed.terms;
    TermGradient& t = terms_[n];
    t.table = shared_.take(t.table, over_ranks);
    for (TensorView* v : {&t.mlp.in, &t.mlp.in_bias, &t.mlp.out, &t.mlp.out_bias})
      *v = shared_.take(*v, over_ranks);
    if (!by_key) t.key = shared_.take(t.key, over_ranks);
    const Factor* const query = KeyedCall::query_factor(term);
    if (query != nullptr && !KeyedCall::is_by_token(*query, own_.args.q.tokens))
      t.query = shared_.take(t.query, over_ranks);
  }
  for (std::size_t n = 0; n < own_.args.regions.size(); ++n)
    by_key_.push_back(g.regions.empty() ? Heads{} : g.regions[n].k);
  for (const StageGradient& s : g.prepare)
    stages_.push_back({shared_.take(s.q, true), shared_.take(s.k, true)});
  if (call.rotates) stages_.clear();  // rotations have no arrays
}

std::vector<bool> RingGradients::wanted_by_key() const {
  std::vector<bool> wanted;
  for (const Heads& h : by_key_) wanted.push_back(h.data != nullptr);
  return wanted;
}

const AttentionGradients& RingGradients::of(const RingPiece& p, const KeyGradients& keys) {
  some_ = all_;
  some_.q = narrowed(d_q_, p.q);
  some_.k = narrowed(keys[0], p.k), some_.v = narrowed(keys[1], p.k);
  some_.query_factor = narrowed(all_.query_factor, 1, p.q);
  if (!p.has_sink) some_.sink = {};
  some_.prepare = stages_;
  std::size_t next = 2;
  some_terms_ = terms_;
  for (std::size_t n = 0; n < own_.args.terms.size(); ++n) {
    Term term = own_.args.terms[n];
    const Factor* const key = KeyedCall::key_factor(term);
    const Factor* const query = KeyedCall::query_factor(term);
    if (key != nullptr && KeyedCall::is_by_token(*key, own_.keys())) {
      if (!terms_.empty()) some_terms_[n].key = narrowed(keys[next], p.k);
      ++next;
    }
    if (!terms_.empty() && query != nullptr && KeyedCall::is_by_token(*query, own_.args.q.tokens))
      some_terms_[n].query = narrowed(terms_[n].query, p.q);
  }
  some_.terms = some_terms_;
  some_regions_.clear();
  for (const QK& r : to_.regions)
    some_regions_.push_back({narrowed(r.q, p.q), narrowed(keys[next++], p.k)});
  some_.regions = some_regions_;
  return some_;
}

void RingGradients::finish(const Group& group, RingCall& call, KeyGradients& home,
                           const Executor& executor) {
  if (call.rotates) {
    call.rotate_back(d_q_, home[0], executor);
    if (to_.q.data != nullptr) add_heads(to_.q, d_q_);
  }
  for (std::size_t n = 0; n < by_key_.size(); ++n) add_heads(by_key_[n], home[n]);
  shared_.finish(group);
}

}  // namespace

void ring_backward(const Group& group, RingCall& call, const ConstAttentionResult& whole,
                   const ConstAttentionResult& d_whole, const AttentionGradients& to,
                   const SummedGradients& summed, const Executor& executor) {
  clear_overwritten(to);
  RingGradients gradients(call, to, summed);
  const std::vector<bool> wanted = gradients.wanted_by_key();
  // Of the rank's own keys, by its queries; of the keys of a step; on their way; from the rank before.
  KeyGradients home(call.own, wanted, call.type), now(call.own, wanted, call.type),
      sent(call.own, wanted, call.type), received(call.own, wanted, call.type);
  std::optional<Exchange> behind;
  PieceMemory memory;
  std::optional<StickParts> sticks;  // their tokens are neighbours: a piece has all queries
  if (call.own.args.normalisation != Normalisation::softmax) sticks.emplace(call, whole, d_whole);
  Watch watch(executor);
  KeyRing ring(group, call);
  for (Index n = 0; n < ring.steps(); ++n) {
    KeyedCall& step = ring.step();
    KeyGradients& keys = n == 0 ? home : now;
    keys.clear();
    std::vector<const Exchange*> under_way = ring.exchanges();
    if (behind) under_way.push_back(&*behind);
    watch.set(under_way);
    for (const RingPiece& p : call.pieces(step, ring.has_own())) {
      const KeyedCall some = RingCall::call_of(step, p);
      const ConstAttentionResult result = narrowed(whole, p.q), d_result = narrowed(d_whole, p.q);
      const AttentionGradients& to_piece = gradients.of(p, keys);
      if (sticks)
        watch.run([&](const Executor& e) {
          memory.run([&](CallArena& arena) {
            attend_lowered(some.args, call.lowered, sticks->part(), arena, e);
          });
        });
      const ConstAttentionResult own = sticks ? sticks->part() : result,
                                 d_own = sticks ? sticks->advance() : d_result;
      watch.run([&](const Executor& e) {
        memory.run([&](CallArena& arena) {
          attend_lowered_backward(some.args, call.lowered, own, d_own, to_piece, arena, e);
        });
      });
    }
    watch.set({});
    if (behind) {  // of these keys, from the ranks that had them before
      behind->finish();
      behind.reset();
      now.add(received.bytes());
    }
    if (n > 0) {
      std::swap(now, sent);
      behind.emplace(group, Channel::gradients, group.next(), sent.bytes(), group.previous(),
                     received.bytes());
    }
    ring.advance();
  }
  if (behind) {
    behind->finish();
    home.add(received.bytes());
  }
  gradients.finish(group, call, home, executor);
}

}  // namespace posenc::v0::detail
