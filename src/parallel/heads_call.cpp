// SPDX-License-Identifier: Apache-2.0
#include "parallel/heads_call.h"

#include <algorithm>

#include "attention/call/order_view.h"

namespace posenc::inline v0::detail {
namespace {

// The offset that says as much as orders that count up; none: the call reads them. In packed sequences it is added
// to (keys - queries).
std::optional<Index> offset_of(const TokenPlaces& q, const TokenPlaces& k, const Mask& m) {
  if (q.counted().empty() || k.counted().empty()) return std::nullopt;
  const bool from_zero = !m.prefix.empty() || m.sink_tokens != 0 || m.chunk != 0;
  std::optional<Index> offset;
  for (std::size_t s = 0; s < k.counted().size(); ++s) {
    const TokenPlaces::Counted &a = q.counted()[s], &b = k.counted()[s];
    if (a.count == 0 || b.count == 0) continue;
    const Index own = a.first - b.first - (q.cu_seqlens().empty() ? 0 : b.count - a.count);
    if ((from_zero && b.first != 0) || offset.value_or(own) != own) return std::nullopt;
    offset = own;
  }
  return offset.value_or(0);
}

ConstTensorView as_view(const std::vector<Index>& x) {
  return tensor(x.data(), {static_cast<Index>(x.size())});
}

// [B, T] as heads of one channel.
Heads as_heads(const TensorView& v) {
  if (v.empty()) return {};
  return {v.data, v.shape[0], v.shape[1], 1, 1, v.stride[0], v.stride[1], 1, 1, v.dtype};
}

}  // namespace

HeadsCall::HeadsCall(const Group& g, const AttentionArgs& a)
    : group(g),
      own(a),
      queries(g, a.q.tokens, a.mask.query_order, a.mask.query_cu_seqlens),
      keys(g, a.k.tokens, a.mask.key_order, a.mask.key_cu_seqlens),
      args(a),
      type(a.q.dtype == DType::f64 ? DType::f64 : DType::f32),
      terms_(a.terms.begin(), a.terms.end()),
      stages_(a.prepare.begin(), a.prepare.end()),
      regions_(a.regions.begin(), a.regions.end()) {
  args.q = exchanged(own.q, queries);
  args.k = exchanged(own.k, keys), args.v = exchanged(own.v, keys);
  gathered_.add(args.query_positions, queries), gathered_.add(args.key_positions, keys);
  gathered_.add(args.query_factor, queries);
  args.sink = by_head(own.sink, 0), args.head_scale = by_head(own.head_scale, 1);
  place_mask();
  for (Stage& s : stages_) place(s);
  for (ScoreRegion& r : regions_) place(r);
  for (Term& t : terms_) std::visit([&](auto& term) { place_term(term); }, t);
  gathered_.gather(g);
  args.terms = terms_, args.prepare = stages_, args.regions = regions_;
}

void HeadsCall::place_mask() {
  Mask& m = args.mask;
  if (const std::optional<Index> offset = offset_of(queries, keys, m)) {
    m.query_order = m.key_order = {};
    m.query_offset = *offset;
  }
  if (!m.key_length.empty()) m.key_visible = visible_keys();
  m.key_length = {};
  for (ConstTensorView* v : {&m.query_order, &m.query_document}) gathered_.add(*v, queries);
  for (ConstTensorView* v : {&m.key_order, &m.key_document, &m.key_visible})
    gathered_.add(*v, keys);
  m.head_side = by_head(m.head_side, 0), m.chunk_origin = by_head(m.chunk_origin, 1);
  if (m.query_cu_seqlens.empty()) return;
  m.query_cu_seqlens = as_view(queries.cu_seqlens());
  m.key_cu_seqlens = as_view(keys.cu_seqlens());
}

void HeadsCall::place(Stage& s) {
  s.q = by_head(s.q, 0), s.k = by_head(s.k, 0);
}

void HeadsCall::place(ScoreRegion& r) {
  r.qk = {exchanged(r.qk.q, queries), exchanged(r.qk.k, keys)};
  gathered_.add(r.query_positions, queries), gathered_.add(r.key_positions, keys);
}

template <class T>
void HeadsCall::place_term(T& t) {
  if constexpr (requires { t.table; }) t.table = by_head(t.table, 1);
  if constexpr (requires { t.query; })
    place(t.query, own.q.tokens, queries), place(t.key, own.k.tokens, keys);
  if constexpr (requires { t.pair; }) {
    gathered_.add(t.pair.query_class, queries), gathered_.add(t.pair.key_class, keys);
  }
  if constexpr (requires { t.mlp; })
    t.mlp.out = by_head(t.mlp.out, 0), t.mlp.out_bias = by_head(t.mlp.out_bias, 0);
}

void HeadsCall::place(Factor& f, Index tokens, const TokenPlaces& places) {
  f.given = KeyedCall::is_by_token(f, tokens) ? exchanged(f.given, places)
                                              : block_of(f.given, group.rank(), group.size());
}

ConstHeads HeadsCall::exchanged(const ConstHeads& h, const TokenPlaces& places) {
  if (h.data == nullptr) return h;
  return exchange_heads(group, places, h, exchanged_.emplace_back());
}

ConstTensorView HeadsCall::visible_keys() {
  const Mask& m = own.mask;
  for (Index b = 0; b < own.k.batch; ++b)
    for (Index t = 0; t < own.k.tokens; ++t)
      visible_.push_back(t < read_index(m.key_length, b) &&
                         (m.key_visible.empty() || read_index(m.key_visible, b, t) != 0));
  return tensor(std::as_const(visible_).data(), {own.k.batch, own.k.tokens});
}

HeadsGradients::HeadsGradients(const HeadsCall& c, const AttentionGradients& to,
                               const SummedGradients& summed)
    : call_(c) {
  all.q = by_token(to.q, c.args.q, c.queries);
  all.k = by_token(to.k, c.args.k, c.keys), all.v = by_token(to.v, c.args.v, c.keys);
  all.sink = c.by_head(shared_.take(to.sink, true), 0);
  all.head_scale = c.by_head(shared_.take(to.head_scale, summed.head_scale), 1);
  if (!to.query_factor.empty()) {
    const ConstTensorView& f = c.args.query_factor;
    const Heads g =
        by_token(as_heads(to.query_factor),
                 {nullptr, f.shape[0], f.shape[1], 1, 1, 0, 0, 1, 1, f.dtype}, c.queries);
    all.query_factor = tensor(g.data, g.dtype, {g.batch, g.tokens});
  }
  for (std::size_t n = 0; n < to.terms.size(); ++n)
    terms_.push_back(
        of_term(to.terms[n], n, n >= summed.first_term && n < summed.first_term + summed.terms));
  for (const StageGradient& s : to.prepare)
    stages_.push_back(
        {c.by_head(shared_.take(s.q, true), 0), c.by_head(shared_.take(s.k, true), 0)});
  for (std::size_t n = 0; n < to.regions.size(); ++n)
    regions_.push_back({by_token(to.regions[n].q, c.args.regions[n].qk.q, c.queries),
                        by_token(to.regions[n].k, c.args.regions[n].qk.k, c.keys)});
  all.terms = terms_, all.prepare = stages_, all.regions = regions_;
}

Heads HeadsGradients::by_token(const Heads& to, const ConstHeads& in_call,
                               const TokenPlaces& places) {
  if (to.data == nullptr) return {};
  PacketBytes& memory = memory_.emplace_back();
  const Heads h = new_heads(in_call, call_.type, memory);
  std::fill(memory.begin(), memory.end(), std::byte{0});
  returns_.push_back({places, h, to});
  return h;
}

Heads HeadsGradients::of_factor(const Heads& to, const Factor& own, Index tokens,
                                const Factor& in_call, const TokenPlaces& places, bool over_ranks) {
  return KeyedCall::is_by_token(own, tokens) ? by_token(to, in_call.given, places)
                                             : call_.by_head(shared_.take(to, over_ranks));
}

TermGradient HeadsGradients::of_term(const TermGradient& to, std::size_t term, bool over_ranks) {
  const HeadsCall& c = call_;
  const TermArrays own = term_arrays(c.own.terms[term]), in_call = term_arrays(c.args.terms[term]);
  const auto take = [&](const TensorView& v) { return shared_.take(v, over_ranks); };
  return {c.by_head(take(to.table), 1),
          of_factor(to.query, own.query, c.own.q.tokens, in_call.query, c.queries, over_ranks),
          of_factor(to.key, own.key, c.own.k.tokens, in_call.key, c.keys, over_ranks),
          {take(to.mlp.in), take(to.mlp.in_bias), c.by_head(take(to.mlp.out), 0),
           c.by_head(take(to.mlp.out_bias), 0)}};
}

void HeadsGradients::finish(const Group& g) {
  for (const Return& r : returns_) return_heads(g, r.places, r.all, r.to, true);
  shared_.finish(g);
}

}  // namespace posenc::inline v0::detail
