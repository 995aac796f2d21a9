// SPDX-License-Identifier: Apache-2.0
#include "posenc/parallel/ulysses.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "attention/engines/engine.h"
#include "core/element.h"
#include "parallel/facts.h"
#include "parallel/head_exchange.h"
#include "parallel/ring.h"
#include "parallel/ring_call.h"
#include "parallel/shared_gradients.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

constexpr std::string_view kUlysses = "ulysses";

void check_heads_divide(Index heads, Index ranks, std::string_view what) {
  if (heads % ranks != 0)
    refuse_field(kUlysses, what, "must be a multiple of the ranks, " + std::to_string(ranks),
                 heads);
}
void check_by_head(Index entries, Index ranks, std::string_view what) {
  if (entries != 1) check_heads_divide(entries, ranks, what);
}

void check_terms(const AttentionArgs& a, Index ranks) {
  for (const Term& t : a.terms) {
    if (std::holds_alternative<ScoreMlpTerm>(t)) refuse(kUlysses, "networks over scores mix heads");
    const TermArrays arrays = term_arrays(t);
    if (!arrays.table.empty()) check_by_head(arrays.table.shape[1], ranks, "the groups of a table");
    for (const Factor* f : {&arrays.query, &arrays.key}) {
      if (f->given.data == nullptr) continue;
      if (f->given.tokens != 1)
        refuse(kUlysses, "vectors of a term must be of one token, not of each");
      check_by_head(f->given.heads, ranks, "the heads of a vector");
    }
    if (!arrays.mlp.out.empty())
      check_by_head(arrays.mlp.out.shape[0], ranks, "the groups of a network");
    if (!arrays.mlp.out_bias.empty())
      check_by_head(arrays.mlp.out_bias.shape[0], ranks, "the groups of a network");
    if (const PickedRows* r = picked_rows(t); r != nullptr && r->pair.row != nullptr)
      refuse(kUlysses, "classes of tokens are not exchanged");
  }
}

void check_ulysses(const AttentionArgs& a, const Group& g) {
  check_heads_divide(a.q.heads, g.size(), "heads of q");
  check_heads_divide(a.k.heads, g.size(), "heads of k");
  check_no_blocks(kUlysses, a);
  check_terms(a, g.size());
  const Mask& m = a.mask;
  for (const auto& [view, name] : {std::pair{&m.visible, "mask.visible"},
                                   {&m.bias, "mask.bias"},
                                   {&m.query_cu_seqlens, "query_cu_seqlens"},
                                   {&m.key_cu_seqlens, "key_cu_seqlens"},
                                   {&m.key_length, "key_length"},
                                   {&a.block_table, "block_table"},
                                   {&a.mix_before, "mix_before"},
                                   {&a.mix_after, "mix_after"},
                                   {&m.chunk_origin, "chunk_origin"}})
    if (!view->empty()) refuse_field(kUlysses, name, "must be empty");
  for (const ConstTensorView* v : {&m.query_order, &m.key_order})
    if (v->rank != 2 || v->shape[0] != 1)
      refuse(kUlysses,
             "query_order and key_order must state where the tokens "
             "stand, [1, tokens]");
  if (!a.regions.empty()) refuse_field(kUlysses, "regions", "must be empty");
  if (g.size() > 1 && std::min(a.q.tokens, a.k.tokens) == 1)
    refuse_field(kUlysses, "q", "must have at least two tokens on each rank, and k too", Index{1});
  for (const Stage& s : a.prepare)
    if (s.kind != StageKind::rotate || s.value)
      refuse_field(kUlysses, "stages", "must be rotations of q and k");
}

// The entries of a rank on an axis by head; one entry serves all.
template <class Data>
BasicTensorView<Data> of_rank(BasicTensorView<Data> v, std::size_t axis, const Group& g) {
  if (v.empty() || v.shape[axis] == 1) return v;
  const Index each = v.shape[axis] / g.size();
  return narrowed(v, axis, {g.rank() * each, 0, each});
}
template <class Data>
BasicHeads<Data> of_rank(const BasicHeads<Data>& h, const Group& g) {
  if (h.data == nullptr || h.heads == 1) return h;
  return slice_heads(h, g.rank() * (h.heads / g.size()), h.heads / g.size());
}

// All tokens of this rank's heads.
class HeadsCall {
 public:
  HeadsCall(const Group& g, const RingCall& call, const TokenPlaces& q, const TokenPlaces& k)
      : queries(q),
        keys(k),
        args(call.own.args),
        own_(call.own.args),
        group_(g),
        terms_(own_.terms.begin(), own_.terms.end()) {
    args.q = exchange_heads(g, queries, own_.q, q_);
    args.k = exchange_heads(g, keys, own_.k, k_);
    args.v = exchange_heads(g, keys, own_.v, v_);
    args.query_positions = gathered(own_.query_positions, queries);
    args.key_positions = gathered(own_.key_positions, keys);
    args.query_factor = gathered(own_.query_factor, queries);
    Mask& m = args.mask;
    m.query_order = m.key_order = {};
    m.query_offset = queries.first() - keys.first();
    m.query_document = gathered(m.query_document, queries);
    m.key_document = gathered(m.key_document, keys);
    m.key_visible = gathered(m.key_visible, keys);
    m.head_side = of_rank(m.head_side, 0, g);
    args.sink = of_rank(args.sink, 0, g);
    args.head_scale = of_rank(args.head_scale, 1, g);
    for (Term& t : terms_) std::visit([&](auto& term) { slice(term); }, t);
    args.terms = terms_;
  }
  HeadsCall(const HeadsCall&) = delete;

  const TokenPlaces &queries, &keys;
  AttentionArgs args;

  TensorView by_head(const TensorView& v, std::size_t axis) const {
    return of_rank(v, axis, group_);
  }
  Heads by_head(const Heads& h) const { return of_rank(h, group_); }

 private:
  template <class T>
  void slice(T& t) {
    if constexpr (requires { t.table; }) t.table = of_rank(t.table, 1, group_);
    if constexpr (requires { t.query; })
      for (Factor* f : {&t.query, &t.key}) f->given = of_rank(f->given, group_);
    if constexpr (requires { t.mlp; })
      t.mlp.out = of_rank(t.mlp.out, 0, group_),
      t.mlp.out_bias = of_rank(t.mlp.out_bias, 0, group_);
  }
  const std::byte* keep(std::vector<std::byte> bytes) {
    return kept_.emplace_back(std::move(bytes)).data();
  }
  // [rows, T] of any strides.
  std::vector<std::byte> dense(const void* data, Index rows, Index row_stride, Index tokens,
                               Index stride, Index size) {
    std::vector<std::byte> x(static_cast<std::size_t>(rows * tokens * size));
    for (Index r = 0; r < rows; ++r)
      for (Index t = 0; t < tokens; ++t)
        std::memcpy(x.data() + (r * tokens + t) * size,
                    static_cast<const std::byte*>(data) + (r * row_stride + t * stride) * size,
                    static_cast<std::size_t>(size));
    return x;
  }
  ConstTensorView gathered(const ConstTensorView& v, const TokenPlaces& p) {
    if (v.empty()) return v;
    const Index size = size_of(v.dtype);
    const std::vector<std::byte> own =
        dense(v.data, v.shape[0], v.stride[0], v.shape[1], v.stride[1], size);
    const Index shape[] = {v.shape[0], p.all()};
    return tensor(static_cast<const void*>(keep(gather_rows(group_, p, own, v.shape[0], size))),
                  v.dtype, shape);
  }
  Positions gathered(Positions p, const TokenPlaces& places) {
    if (p.data == nullptr) return p;
    const Index size = size_of(p.type);
    std::vector<std::byte> own;
    for (Index a = 0; a < p.axes; ++a) {
      const std::vector<std::byte> axis =
          dense(static_cast<const std::byte*>(p.data) + a * p.axis_stride * size, p.batch,
                p.batch == 1 ? 0 : p.batch_stride, p.count, p.token_stride, size);
      own.insert(own.end(), axis.begin(), axis.end());
    }
    p.data = keep(gather_rows(group_, places, own, p.axes * p.batch, size));
    p.count = places.all(), p.token_stride = 1, p.batch_stride = p.count,
    p.axis_stride = p.batch * p.count;
    return p;
  }

  const AttentionArgs& own_;
  const Group& group_;
  std::vector<Term> terms_;
  PacketBytes q_, k_, v_;
  std::deque<std::vector<std::byte>> kept_;
};

// [B, H, T] as heads of one channel.
template <class Data>
BasicHeads<Data> as_heads(const BasicTensorView<Data>& v) {
  if (v.empty()) return {};
  return {v.data,      v.shape[0],  v.shape[2],  v.shape[1], 1,
          v.stride[0], v.stride[2], v.stride[1], 1,          v.dtype};
}
TensorView as_sums(const Heads& h) {
  if (h.data == nullptr) return {};
  TensorView v;
  v.data = h.data, v.dtype = h.dtype, v.rank = 3;
  v.shape = {h.batch, h.heads, h.tokens, 0, 0};
  v.stride = {h.batch_stride, h.head_stride, h.token_stride, 0, 0};
  return v;
}

void forward(const Group& g, const HeadsCall& heads, const RingCall& call,
             const AttentionResult& result, const Executor& e) {
  PacketBytes out, sums;
  ConstHeads shape = heads.args.q;
  shape.dim = heads.args.v.dim;
  ConstHeads one = shape;
  one.dim = 1;
  const Heads lse = new_heads(one, DType::f64, sums);  // by token, as it travels
  const AttentionResult all{new_heads(shape, call.type, out), as_sums(lse)};
  CallArena arena;
  attend_lowered(heads.args, {}, all, arena, e);
  return_heads(g, heads.queries, all.out, result.out, false);
  if (!result.log_sum_exp.empty())
    return_heads(g, heads.queries, lse, as_heads(result.log_sum_exp), false);
}

// Where the gradients of the call of a rank's heads go.
struct HeadsGradients {
  HeadsGradients(const HeadsCall& c, const AttentionGradients& g, DType type) : to(g) {
    const auto zeros = [&](const Heads& wanted, const ConstHeads& of, PacketBytes& memory) {
      if (wanted.data == nullptr) return Heads{};
      const Heads h = new_heads(of, type, memory);
      std::fill(memory.begin(), memory.end(), std::byte{0});
      return h;
    };
    all.q = zeros(g.q, c.args.q, q), all.k = zeros(g.k, c.args.k, k),
    all.v = zeros(g.v, c.args.v, v);
    all.sink = c.by_head(shared.take(g.sink, true), 0);
    all.head_scale = c.by_head(shared.take(g.head_scale, true), 1);
    if (!g.query_factor.empty()) {  // of all tokens, of which a rank takes its own
      factor.assign(static_cast<std::size_t>(c.args.query_factor.count()), 0.0);
      const Index sizes[] = {c.args.query_factor.shape[0], c.args.query_factor.shape[1]};
      all.query_factor = tensor(static_cast<void*>(factor.data()), DType::f64, sizes);
    }
    for (const TermGradient& t : g.terms)
      terms.push_back({c.by_head(shared.take(t.table, true), 1),
                       c.by_head(shared.take(t.query, true)),
                       c.by_head(shared.take(t.key, true)),
                       {shared.take(t.mlp.in, true), shared.take(t.mlp.in_bias, true),
                        c.by_head(shared.take(t.mlp.out, true), 0),
                        c.by_head(shared.take(t.mlp.out_bias, true), 0)}});
    all.terms = terms;
  }
  HeadsGradients(const HeadsGradients&) = delete;
  const AttentionGradients& to;
  AttentionGradients all;
  SharedGradients shared;
  std::vector<TermGradient> terms;
  std::vector<double> factor;
  PacketBytes q, k, v;
};

void backward(const Group& g, const HeadsCall& heads, const RingCall& call,
              const ConstAttentionResult& result, const ConstAttentionResult& d_result,
              const AttentionGradients& to, const Executor& e) {
  clear_overwritten(to);
  PacketBytes out, d_out, sums, d_sums, own_q, own_k;
  const auto lse = [&](const ConstTensorView& v, PacketBytes& memory) {
    return v.empty() ? TensorView{}
                     : as_sums(exchange_heads(g, heads.queries, as_heads(v), memory));
  };
  const ConstAttentionResult all(exchange_heads(g, heads.queries, result.out, out),
                                 lse(result.log_sum_exp, sums));
  const ConstAttentionResult d_all(exchange_heads(g, heads.queries, d_result.out, d_out),
                                   lse(d_result.log_sum_exp, d_sums));
  HeadsGradients gradients(heads, to, call.type);
  CallArena arena;
  attend_lowered_backward(heads.args, {}, all, d_all, gradients.all, arena, e);
  // Rotated gradients come home, and are rotated back there.
  Heads q = to.q, k = to.k;
  if (call.rotates) {
    if (q.data != nullptr) q = new_heads(to.q, call.type, own_q);
    if (k.data != nullptr) k = new_heads(to.k, call.type, own_k);
  }
  return_heads(g, heads.queries, gradients.all.q, q, !call.rotates);
  return_heads(g, heads.keys, gradients.all.k, k, !call.rotates);
  return_heads(g, heads.keys, gradients.all.v, to.v, true);
  if (call.rotates) {
    call.rotate_back(q, k, e);
    if (q.data != nullptr) add_heads(to.q, q);
    if (k.data != nullptr) add_heads(to.k, k);
  }
  if (!to.query_factor.empty()) {
    sum_over_ranks(g, gradients.factor);
    for (Index b = 0; b < to.query_factor.shape[0]; ++b)
      for (Index t = 0; t < heads.queries.each(); ++t)
        add_element(to.query_factor.data, to.query_factor.dtype,
                    b * to.query_factor.stride[0] + t * to.query_factor.stride[1],
                    gradients.factor[static_cast<std::size_t>(b * heads.queries.all() +
                                                              heads.queries.of(g.rank(), t))]);
  }
  gradients.shared.finish(g);
}

template <class Check, class Run>
void run_ulysses(const Group& group, std::string_view pass, const AttentionArgs& a,
                 const Executor& executor, const Check& check, const Run& run) {
  Facts facts;
  facts.add(Facts::pass, pass);
  facts.add(Facts::agreement, group.agreement());
  std::optional<RingCall> call;
  std::exception_ptr problem;
  try {
    check_ulysses(a, group);
    check(facts);
    check_attention_indices(a);
    add_call(facts, a);
    facts.length = sequence_length(a);
    call.emplace(a, LoweredCall{}, executor);
  } catch (...) {
    problem = std::current_exception();
  }
  const Index length = agree(group, facts, problem);  // throws where there is no call
  call->check_length(length);
  const TokenPlaces queries(group, a.mask.query_order), keys(group, a.mask.key_order);
  if (keys.first() != 0 && (!a.mask.prefix.empty() || a.mask.sink_tokens != 0 || a.mask.chunk != 0))
    refuse_field(kUlysses, "orders", "must begin at 0 with prefix, sink_tokens and chunk",
                 keys.first());
  try {
    run(HeadsCall(group, *call, queries, keys), *call);
  } catch (...) {
    group.end();
    throw;
  }
}

}  // namespace
}  // namespace detail

void ulysses_attend(const AttentionArgs& a, const AttentionResult& result, const Communicator& c,
                    const RingOptions& options, const Executor& executor) {
  using namespace detail;
  const Group group(c, options);
  run_ulysses(
      group, "ulysses", a, executor,
      [&](Facts& facts) {
        check_attention(a, result);
        check_overlap(a, result, {});
        facts.add(Facts::gradients, Index{result.log_sum_exp.empty()});
      },
      [&](const HeadsCall& heads, const RingCall& call) {
        forward(group, heads, call, result, executor);
      });
}

void ulysses_attend_backward(const AttentionArgs& a, const ConstAttentionResult& result,
                             const ConstAttentionResult& d_result, const AttentionGradients& g,
                             const Communicator& c, const RingOptions& options,
                             const Executor& executor) {
  using namespace detail;
  const Group group(c, options);
  run_ulysses(
      group, "ulysses backward", a, executor,
      [&](Facts& facts) {
        check_attention(a, g);
        check_read(a, result, "the result");
        check_read(a, d_result, "the gradient of the result");
        check_overlap(a, d_result, g, {});
        add_wanted(facts, g);
        facts.add(Facts::gradients, Index{result.log_sum_exp.empty()});
        facts.add(Facts::gradients, Index{d_result.log_sum_exp.empty()});
      },
      [&](const HeadsCall& heads, const RingCall& call) {
        backward(group, heads, call, result, d_result, g, executor);
      });
}

}  // namespace posenc::inline v0
