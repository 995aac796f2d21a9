// SPDX-License-Identifier: Apache-2.0
#include "parallel/ring_call.h"

#include <algorithm>

#include "attention/call/check_parts.h"
#include "attention/call/rotation_positions.h"
#include "core/element.h"
#include "parallel/stick_parts.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

constexpr std::size_t kMaxRuns = 4;  // of a shard: more are one call by their orders

bool only_rotations(std::span<const Stage> stages) {
  return !stages.empty() && std::all_of(stages.begin(), stages.end(), [](const Stage& s) {
    return s.kind == StageKind::rotate && !s.value;
  });
}

// fn(element of `to`, element of `from`) for all.
template <class F>
void each_element(const Heads& to, const ConstHeads& from, const F& fn) {
  for (Index b = 0; b < from.batch; ++b)
    for (Index t = 0; t < from.tokens; ++t)
      for (Index h = 0; h < from.heads; ++h) {
        const Index x = b * from.batch_stride + t * from.token_stride + h * from.head_stride;
        const Index y = b * to.batch_stride + t * to.token_stride + h * to.head_stride;
        for (Index d = 0; d < from.dim; ++d) fn(y + d * to.dim_stride, x + d * from.dim_stride);
      }
}

// Positions as a rotation reads them; lengths are those of the whole sequence.
Positions axes_of(const RotaryPlan& plan, Positions p) {
  p.axes = static_cast<std::int32_t>(plan.spec().axes());
  return p;
}

// Rotates x, of any type, into y of the same.
void rotate_side(const RotarySpec& spec, const ConstHeads& x, const Heads& y, const Positions& p,
                 bool as_key, const Executor& executor) {
  if (x.batch * x.tokens * x.heads == 0) return;
  const RotaryPlan plan(spec, x.dtype, PlanOptions{.outside = OutsideRange::allow});
  const ConstQK from = as_key ? ConstQK{{}, x} : ConstQK{x, {}};
  plan.apply(from, as_key ? QK{{}, y} : QK{y, {}}, axes_of(plan, p), RotateMode::forward, executor);
}

}  // namespace

void check_axes(const RotarySpec& spec, const Positions& p) {
  if (spec.axes() > p.axes)
    refuse_number(kAttention, "positions",
                  "a rotation must have axes of the positions, at most " + std::to_string(p.axes),
                  spec.axes());
}

void check_no_blocks(std::string_view who, const AttentionArgs& a) {
  for (const auto& [h, name] : {std::pair{&a.k, "k"}, std::pair{&a.v, "v"}})
    if (!is_float(h->dtype))
      refuse_field(who, name, "must be of a float type: blocks do not travel");
}

void check_ring(const AttentionArgs& a, const Group& group) {
  AttentionArgs softmax = a;
  softmax.normalisation = Normalisation::softmax;
  if (a.normalisation != Normalisation::softmax) check_sticks(a);
  if (const std::string_view why = merge_why_not(softmax); !why.empty())
    refuse(kRing, "results over parts of the keys do not merge in calls with " + std::string(why));
  check_no_blocks(kRing, a);
  for (const ScoreRegion& r : a.regions)
    if (r.qk.q.dim == 0)
      refuse_field(kRing, "regions",
                   "must have q and k of their own: those of the call are rotated");
  if (!a.block_table.empty())
    refuse_field(kRing, "block_table", "must be empty: pages do not go round");
  const Mask& m = a.mask;
  for (const auto& [view, name] :
       {std::pair{&m.visible, "mask.visible"}, std::pair{&m.bias, "mask.bias"}})
    if (!view->empty()) refuse_field(kRing, name, "must be empty: it holds every pair of tokens");
  for (const auto& [view, name] :
       {std::pair{&m.query_order, "mask.query_order"}, std::pair{&m.key_order, "mask.key_order"}})
    if (view->empty() && a.q.tokens > 0)
      refuse_field(kRing, name, "must state where the tokens of the rank stand in the sequence");
  if (const Index least = std::min(a.q.tokens, a.k.tokens); group.size() > 1 && least < 2)
    refuse_field(kRing, "q", "must have at least two tokens on each rank, and k too", least);
  for (const Stage& s : a.prepare)
    if (s.kind == StageKind::rotate && s.rotary != nullptr) {
      check_axes(*s.rotary, a.query_positions);
      check_axes(*s.rotary, a.key_positions);
    }
}

RingCall::RingCall(const AttentionArgs& a, const LoweredCall& l, const Executor& executor)
    : own(a),
      lowered(l),
      type(a.q.dtype == DType::f64 ? DType::f64 : DType::f32),
      query_positions_(a.query_positions),
      key_positions_(a.key_positions) {
  rotates = only_rotations(a.prepare);
  for (const Stage& s : a.prepare)
    if (s.kind == StageKind::rotate) rotary_.push_back(s.rotary);
  const Heads q = rotates || a.q.dtype != type ? new_heads(a.q, type, q_) : Heads{};
  if (q.data != nullptr) {
    copy_heads(q, a.q);
    own.args.q = q;
  }
  if (!rotates) {
    allow_lengths();
    return;
  }
  const Heads k = new_heads(a.k, a.k.dtype, k_);
  for (const Stage& s : a.prepare) {
    rotate_side(*s.rotary, q, q, query_positions_, false, executor);
    rotate_side(*s.rotary, own.args.k, k, key_positions_, true, executor);
    own.args.k = k;
    rotations_.emplace_back(*s.rotary, type, PlanOptions{.outside = OutsideRange::allow});
  }
  own.args.prepare = {};
  lowered.rotations = lowered.narrow_rotations = {};
}

void RingCall::allow_lengths() {
  if (std::none_of(rotary_.begin(), rotary_.end(), [](const RotarySpec* s) {
        return s->valid_from() > 0 || s->valid_to() != kUnbounded;
      }))
    return;
  stages_.assign(own.args.prepare.begin(), own.args.prepare.end());
  for (Stage& s : stages_) {
    if (s.kind != StageKind::rotate) continue;
    RotarySpec& any = any_length_.emplace_back(*s.rotary);
    for (RotaryBlock& b : any.blocks) b.spectrum.valid_from = 0, b.spectrum.valid_to = kUnbounded;
    s.rotary = &any;
  }
  own.args.prepare = stages_;
  lowered.rotations = lowered.narrow_rotations = {};
}

void RingCall::check_length(Index length) const {
  for (const RotarySpec* s : rotary_)
    detail::check_length("rotary", length, {s->valid_from(), s->valid_to()});
}

void RingCall::rotate_back(const Heads& d_q, const Heads& d_k, const Executor& executor) const {
  for (auto plan = rotations_.rbegin(); plan != rotations_.rend(); ++plan) {
    if (d_q.data != nullptr)
      plan->apply(QK{d_q, {}}, axes_of(*plan, query_positions_), RotateMode::gradient, executor);
    if (d_k.data != nullptr)
      plan->apply(QK{{}, d_k}, axes_of(*plan, key_positions_), RotateMode::gradient, executor);
  }
}

std::vector<RingPiece> RingCall::pieces(KeyedCall& step, bool own_keys) const {
  const Mask& m = step.args.mask;
  const bool apart = m.query_cu_seqlens.empty() && m.key_length.empty() && m.prefix.empty() &&
                     m.sink_tokens == 0 && m.chunk == 0;
  std::vector<TokenRun> queries, keys;
  if (apart) queries = runs_of(m.query_order, kMaxRuns), keys = runs_of(m.key_order, kMaxRuns);
  if (queries.empty() || keys.empty())
    return {{{0, 0, step.args.q.tokens}, {0, 0, step.keys()}, true, own_keys}};
  const Index right = m.causal ? std::min<Index>(m.window_right, 0) : m.window_right;
  std::vector<RingPiece> pieces;
  for (const TokenRun& q : queries)
    for (const TokenRun& k : keys) {
      // A query's first piece is computed whatever it sees: it has the sink and begins the result.
      const bool first = own_keys && k.at == keys.front().at;
      const Index nearest_after = k.order - (q.order + q.count - 1);
      const Index nearest_before = q.order - (k.order + k.count - 1);
      const bool hidden = nearest_after > right || nearest_before > m.window_left;
      if (first || !hidden) pieces.push_back({q, k, false, first});
    }
  return pieces;
}

KeyedCall RingCall::call_of(const KeyedCall& step, const RingPiece& p) {
  KeyedCall c = step;
  if (!p.by_order) {
    c.narrow(p.q, p.k);
    c.args.mask.query_order = c.args.mask.key_order = {};
    c.args.mask.query_offset = p.q.order - p.k.order;
  }
  if (!p.has_sink) c.args.sink = {};
  return c;
}

Heads new_heads(const ConstHeads& of, DType type, PacketBytes& memory) {
  memory.resize(static_cast<std::size_t>(
      std::max<Index>(of.batch * of.tokens * of.heads * of.dim * size_of(type), 1)));
  return {memory.data(),     of.batch, of.tokens, of.heads, of.dim, of.tokens * of.heads * of.dim,
          of.heads * of.dim, of.dim,   1,         type};
}

TensorView new_sums(const ConstHeads& out, PacketBytes& memory) {
  memory.resize(static_cast<std::size_t>(
      std::max<Index>(out.batch * out.heads * out.tokens * size_of(DType::f64), 1)));
  return tensor(static_cast<void*>(memory.data()), DType::f64, {out.batch, out.heads, out.tokens});
}

void add_heads(const Heads& to, const ConstHeads& from) {
  if (to.data == nullptr) return;
  if (to.dtype == DType::f32 && from.dtype == DType::f32) {
    float* const y = static_cast<float*>(to.data);
    const float* const x = static_cast<const float*>(from.data);
    return each_element(to, from, [&](Index i, Index j) { y[i] += x[j]; });
  }
  each_element(to, from, [&](Index i, Index j) {
    add_element(to.data, to.dtype, i, float_element(from.data, from.dtype, j));
  });
}

void copy_heads(const Heads& to, const ConstHeads& from) {
  if (to.dtype == DType::f32 && from.dtype == DType::f32) {
    float* const y = static_cast<float*>(to.data);
    const float* const x = static_cast<const float*>(from.data);
    return each_element(to, from, [&](Index i, Index j) { y[i] = x[j]; });
  }
  each_element(to, from, [&](Index i, Index j) {
    put_element(to.data, to.dtype, i, float_element(from.data, from.dtype, j));
  });
}

ConstAttentionResult narrowed(const ConstAttentionResult& r, const TokenRun& run) noexcept {
  ConstAttentionResult some(narrowed(r.out, run), narrowed(r.log_sum_exp, 2, run));
  some.whole = r.whole;
  return some;
}

KeyRing::KeyRing(const Group& group, RingCall& call) : group_(group), keys_(call.own) {
  if (group.size() == 1) return;
  next_.resize(packet_bytes(keys_));
  fields_ = packet_fields(keys_, copies_);
}

KeyedCall& KeyRing::step() {
  if (at_ + 1 == group_.size()) return keys_;
  const std::vector<std::span<std::byte>> to = packet_places(fields_, next_);
  for (std::size_t n = 0; n < fields_.size(); ++n)
    if (!fields_[n].empty())
      exchanges_.emplace_back(group_, Channel::keys, group_.next(), fields_[n], group_.previous(),
                              to[n]);
  return keys_;
}

void KeyRing::advance() {
  if (++at_ == group_.size()) return;
  for (Exchange& e : exchanges_) e.finish();
  exchanges_.clear();
  now_.swap(next_);
  if (at_ + 1 < group_.size()) next_.resize(now_.size());
  read_packet(now_, keys_);
  fields_ = packet_fields(keys_, copies_);
}

}  // namespace posenc::v0::detail
