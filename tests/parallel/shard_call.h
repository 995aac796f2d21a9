// SPDX-License-Identifier: Apache-2.0
// A call of attention spread over ranks, each with any of its tokens, and what each rank must get.
#pragma once
#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "attention/engine_compare.h"
#include "posenc/parallel/ring.h"
#include "posenc/parallel/threads.h"

namespace posenc {

using TokenList = std::vector<Index>;
// Keys that go round, or heads that are exchanged.
enum class Spread { keys, heads };

// Tokens dealt to ranks at random, as many to each; in every sequence in their order.
inline std::vector<TokenList> dealt(Index tokens, Index ranks, test::Random& r) {
  TokenList all(static_cast<std::size_t>(tokens));
  std::iota(all.begin(), all.end(), Index{0});
  for (std::size_t n = all.size(); n > 1; --n)
    std::swap(all[n - 1], all[static_cast<std::size_t>(r.integer(0, static_cast<Index>(n) - 1))]);
  std::vector<TokenList> of(static_cast<std::size_t>(ranks));
  const std::size_t each = all.size() / of.size();
  for (std::size_t n = 0; n < of.size(); ++n) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(n * each);
    of[n].assign(first, first + static_cast<std::ptrdiff_t>(each));
    std::sort(of[n].begin(), of[n].end());
  }
  return of;
}

// The call of one rank: copies of what belongs to its tokens.
class ShardCall {
 public:
  // The call has orders of one row, of all its tokens.
  ShardCall(const AttentionArgs& whole, const TokenList& queries, const TokenList& keys)
      : args(whole),
        terms_(whole.terms.begin(), whole.terms.end()),
        regions_(whole.regions.begin(), whole.regions.end()) {
    const Index q = whole.q.tokens, k = whole.k.tokens;
    args.q = pick(whole.q, queries), args.k = pick(whole.k, keys), args.v = pick(whole.v, keys);
    args.query_positions = pick(whole.query_positions, queries);
    args.key_positions = pick(whole.key_positions, keys);
    args.query_factor = pick(whole.query_factor, queries);
    Mask& m = args.mask;
    for (ConstTensorView* v : {&m.query_order, &m.query_document}) *v = pick(*v, queries);
    for (ConstTensorView* v : {&m.key_order, &m.key_document, &m.key_visible}) *v = pick(*v, keys);
    if (!m.key_length.empty()) m.key_length = boundaries(m.key_length, keys);
    if (!m.query_cu_seqlens.empty()) m.query_cu_seqlens = boundaries(m.query_cu_seqlens, queries);
    if (!m.key_cu_seqlens.empty()) m.key_cu_seqlens = boundaries(m.key_cu_seqlens, keys);
    for (Term& t : terms_) {
      if (auto* p = std::get_if<ProductTerm>(&t)) pick(p->query, q, queries), pick(p->key, k, keys);
      if (auto* d = std::get_if<DecayTerm>(&t)) pick(d->query, q, queries), pick(d->key, k, keys);
      if (auto* g = std::get_if<GatesTerm>(&t)) pick(g->query, q, queries), pick(g->key, k, keys);
      if (PickedRows* r = picked_rows(t)) {
        r->pair.query_class = pick(r->pair.query_class, queries);
        r->pair.key_class = pick(r->pair.key_class, keys);
      }
    }
    for (ScoreRegion& r : regions_) {
      r.qk = {pick(r.qk.q, queries), pick(r.qk.k, keys)};
      r.query_positions = pick(r.query_positions, queries);
      r.key_positions = pick(r.key_positions, keys);
    }
    args.terms = terms_, args.regions = regions_;
  }
  ShardCall(const ShardCall&) = delete;

  AttentionArgs args;

 private:
  std::byte* memory(Index bytes) {
    kept_.emplace_back(static_cast<std::size_t>(bytes) + 8);
    return kept_.back().data();
  }
  static Index size(const TokenList& t) { return static_cast<Index>(t.size()); }
  static const std::byte* at(const void* data, Index element, DType t) {
    return static_cast<const std::byte*>(data) + element * size_of(t);
  }
  ConstHeads pick(const ConstHeads& h, const TokenList& tokens) {
    if (h.data == nullptr) return h;
    const Index s = size_of(h.dtype);
    std::byte* const to = memory(h.batch * size(tokens) * h.heads * h.dim * s);
    std::byte* next = to;
    for (Index b = 0; b < h.batch; ++b)
      for (const Index t : tokens)
        for (Index n = 0; n < h.heads; ++n)
          for (Index d = 0; d < h.dim; ++d, next += s)
            std::memcpy(
                next,
                at(h.data,
                   b * h.batch_stride + t * h.token_stride + n * h.head_stride + d * h.dim_stride,
                   h.dtype),
                static_cast<std::size_t>(s));
    return heads(tensor(static_cast<const void*>(to), h.dtype,
                        std::vector<Index>{h.batch, size(tokens), h.heads, h.dim}),
                 HeadsLayout::bthd);
  }
  ConstTensorView pick(const ConstTensorView& v, const TokenList& tokens) {  // [B, T]
    if (v.empty()) return v;
    const Index s = size_of(v.dtype);
    std::byte* const to = memory(v.shape[0] * size(tokens) * s);
    std::byte* next = to;
    for (Index b = 0; b < v.shape[0]; ++b)
      for (const Index t : tokens) {
        std::memcpy(next, at(v.data, b * v.stride[0] + t * v.stride[1], v.dtype),
                    static_cast<std::size_t>(s));
        next += s;
      }
    return tensor(static_cast<const void*>(to), v.dtype,
                  std::vector<Index>{v.shape[0], size(tokens)});
  }
  Positions pick(const Positions& p, const TokenList& tokens) {
    if (p.data == nullptr) return p;
    const Index s = size_of(p.type);
    std::byte* const to = memory(p.axes * p.batch * size(tokens) * s);
    std::byte* next = to;
    for (Index a = 0; a < p.axes; ++a)
      for (Index b = 0; b < p.batch; ++b)
        for (const Index t : tokens) {
          std::memcpy(
              next, at(p.data, a * p.axis_stride + b * p.batch_stride + t * p.token_stride, p.type),
              static_cast<std::size_t>(s));
          next += s;
        }
    return {to, p.type, p.axes, size(tokens), p.batch, 1, size(tokens), p.batch * size(tokens)};
  }
  void pick(Factor& f, Index all, const TokenList& tokens) {
    if (f.given.data != nullptr && f.given.tokens == all) f.given = pick(f.given, tokens);
  }
  // How many of the tokens lie below each entry.
  ConstTensorView boundaries(const ConstTensorView& cu, const TokenList& tokens) {
    const Index count = cu.shape[0];
    std::byte* const to = memory(count * 8);
    for (Index n = 0; n < count; ++n) {
      const Index end = detail::integer_element(cu.data, cu.dtype, n * cu.stride[0]);
      const Index before = std::lower_bound(tokens.begin(), tokens.end(), end) - tokens.begin();
      std::memcpy(to + n * 8, &before, 8);
    }
    return tensor(static_cast<const void*>(to), DType::i64, std::vector<Index>{count});
  }
  std::deque<std::vector<std::byte>> kept_;
  std::vector<Term> terms_;
  std::vector<ScoreRegion> regions_;
};

// Rows of tokens of a dense [outer, all, inner].
inline std::vector<double> picked_rows_of(const std::vector<double>& x, Index outer, Index all,
                                          const TokenList& tokens) {
  const std::size_t row = outer * all == 0 ? 0 : x.size() / static_cast<std::size_t>(outer * all);
  std::vector<double> y;
  for (Index b = 0; b < outer; ++b)
    for (const Index t : tokens) {
      const auto from =
          x.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(b * all + t) * row);
      y.insert(y.end(), from, from + static_cast<std::ptrdiff_t>(row));
    }
  return y;
}

// What of the whole call's result one rank must get; gradients in the order of GradientArrays.
inline CallResult shard_of(const CallResult& whole, const AttentionArgs& a,
                           const TokenList& queries, const TokenList& keys) {
  CallResult r;
  r.names = whole.names;
  r.out = picked_rows_of(whole.out, a.q.batch, a.q.tokens, queries);
  for (Index row = 0; row < a.q.batch * a.q.heads; ++row)
    for (const Index t : queries)
      r.log_sum_exp.push_back(whole.log_sum_exp[static_cast<std::size_t>(row * a.q.tokens + t)]);
  r.log_sum_exp.push_back(whole.log_sum_exp.empty() ? 0 : whole.log_sum_exp.back());
  const auto shared = [&](const ConstTensorView& v) {
    if (!v.empty()) r.gradients.push_back(whole.gradients[r.gradients.size()]);
  };
  const auto by = [&](const ConstHeads& h, Index all, const TokenList& tokens) {
    if (h.data == nullptr) return;
    const std::vector<double>& x = whole.gradients[r.gradients.size()];
    r.gradients.push_back(h.tokens == all ? picked_rows_of(x, h.batch, all, tokens) : x);
  };
  for (const Term& term : a.terms) {
    const TermArrays t = term_arrays(term);
    shared(t.table);
    by(t.query.given, a.q.tokens, queries), by(t.key.given, a.k.tokens, keys);
    for (const ConstTensorView* v : {&t.mlp.in, &t.mlp.in_bias, &t.mlp.out, &t.mlp.out_bias})
      shared(*v);
  }
  for (const Stage& s : a.prepare) shared(s.q), shared(s.k);
  for (const ScoreRegion& g : a.regions)
    by(g.qk.q, a.q.tokens, queries), by(g.qk.k, a.k.tokens, keys);
  by(a.q, a.q.tokens, queries), by(a.k, a.k.tokens, keys), by(a.v, a.k.tokens, keys);
  shared(a.head_scale);
  if (!a.query_factor.empty())
    r.gradients.push_back(picked_rows_of(whole.gradients[r.gradients.size()],
                                         a.query_factor.shape[0], a.q.tokens, queries));
  for (const ConstTensorView* v : {&a.sink, &a.mask.bias, &a.mix_before, &a.mix_after}) shared(*v);
  return r;
}

// The gradients of the whole call's result that a rank is handed.
struct ShardUpstream {
  ShardUpstream(const AttentionArgs& whole, const TokenList& queries) {
    const EngineUpstream up(whole);
    out =
        picked_rows_of({up.out.begin(), up.out.end() - 1}, whole.q.batch, whole.q.tokens, queries);
    for (Index row = 0; row < whole.q.batch * whole.q.heads; ++row)
      for (const Index t : queries)
        lse.push_back(up.lse[static_cast<std::size_t>(row * whole.q.tokens + t)]);
    out.reserve(1), lse.reserve(1);
    const auto n = static_cast<Index>(queries.size());
    d_out = heads(tensor(static_cast<const void*>(out.data()), DType::f64,
                         std::vector<Index>{whole.q.batch, n, whole.q.heads, whole.v.dim}),
                  HeadsLayout::bthd);
    d_lse = tensor(static_cast<const void*>(lse.data()), DType::f64,
                   std::vector<Index>{whole.q.batch, whole.q.heads, n});
  }
  std::vector<double> out, lse;
  ConstHeads d_out;
  ConstTensorView d_lse;
};

// fn(communicator, rank) on a thread for each rank; what each threw, or "".
template <class F>
std::vector<std::string> on_ranks(Index ranks, const F& fn) {
  const ThreadGroup group(ranks);
  std::vector<std::string> says(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (Index r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        fn(group.communicator(r), r);
      } catch (const std::exception& e) {
        says[static_cast<std::size_t>(r)] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return says;
}

}  // namespace posenc
