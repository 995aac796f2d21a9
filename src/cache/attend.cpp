// SPDX-License-Identifier: Apache-2.0
// A call of attention over the tokens of a cache: one call for each distinct shift, whose queries are rotated by their
// position - shift; the results are merged. Unrotated keys need one call, which rotates them.
#include "posenc/attention/attend.h"

#include "attention/call/check_parts.h"
#include "attention/plan/plan_call.h"
#include "cache/cache_state.h"
#include "cache/key_run.h"
#include "cache/stored_numbers.h"
#include "core/element.h"
#include "core/extent.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

void check_absent(bool present, std::string_view field, const char* why) {
  if (present) refuse_field(kCache, field, std::string("must be absent: ") + why);
}

// A network whose kernels read the scores of neighbouring keys.
bool has_kernels(const Term& t) {
  const auto* network = std::get_if<ScoreMlpTerm>(&t);
  return network != nullptr && network->mlp.in.rank == 3 && network->mlp.out.rank == 3 &&
         (network->mlp.in.shape[2] > 1 || network->mlp.out.shape[2] > 1);
}
std::string sums_between(const Term& t) {
  if (std::holds_alternative<GatesTerm>(t)) return "gates";
  return has_kernels(t) ? "kernels over keys" : "";
}
// The term reads q or k itself, so the position from which they were rotated.
bool reads_content(const Term& t) {
  const auto* gates = std::get_if<GatesTerm>(&t);
  if (gates != nullptr && !gates->table.empty()) return true;
  return std::visit(
      [](const auto& term) {
        if constexpr (requires { term.query.content; })
          return term.query.content || term.key.content || term.query.made_of_content ||
                 term.key.made_of_content;
        else
          return false;
      },
      t);
}
// The first term or scheme of a call for which this is true; empty: none.
template <class F>
std::string find_term(const AttentionArgs& a, const LoweredState* plan, const F& is_it) {
  for (const Term& t : a.terms)
    if (is_it(t)) return std::string(term_name(t));
  for (std::size_t n = 0; plan != nullptr && n < plan->schemes.size(); ++n) {
    const std::vector<Term>& terms = plan->schemes[n].lowered.terms;
    if (std::any_of(terms.begin(), terms.end(), is_it)) return plan->plan->schemes[n].name();
  }
  return {};
}
// The same for q and k as inputs of a scheme.
std::string reads_rotated(const AttentionArgs& a, const LoweredState* plan) {
  for (std::size_t n = 0; plan != nullptr && n < plan->plan->schemes.size(); ++n) {
    const std::vector<std::string>& names = plan->plan->schemes[n].input_names;
    if (std::any_of(names.begin(), names.end(),
                    [](const std::string& name) { return name == "q" || name == "k"; }))
      return plan->plan->schemes[n].name();
  }
  return find_term(a, plan, reads_content);
}

}  // namespace

void check_free_call(const CacheState& s, const AttentionArgs& a) {
  const char* const keys = "the cache has the keys";
  check_absent(a.k.data != nullptr || a.k.dim != 0, "k", keys);
  check_absent(a.v.data != nullptr || a.v.dim != 0, "v", keys);
  check_absent(!a.block_table.empty(), "block_table", keys);
  check_absent(a.key_positions.data != nullptr, "key_positions", "the cache has the positions");
  check_absent(!a.prepare.empty(), "prepare",
               "append keys after norms and biases, the cache rotates queries");
  check_absent(!a.regions.empty(), "regions", "they need keys with another rotation");
  const Mask& m = a.mask;
  const char* const order = "the cache knows the order; set query_order";
  check_absent(m.query_offset != 0, "mask.query_offset", order);
  check_absent(!m.query_offsets.empty(), "mask.query_offsets", order);
  check_absent(!m.key_order.empty(), "mask.key_order", order);
  check_absent(!m.key_length.empty(), "mask.key_length", keys);
  check_absent(!m.key_visible.empty(), "mask.key_visible", "evict the tokens");
  check_absent(!m.key_document.empty(), "mask.key_document",
               "the cache has the token array \"document\"");
  check_absent(!m.visible.empty(), "mask.visible", "pairs of tokens in pages have no index");
  check_absent(!m.bias.empty(), "mask.bias", "pairs of tokens in pages have no index");
  check_absent(!m.query_cu_seqlens.empty() || !m.key_cu_seqlens.empty(), "mask.cu_seqlens",
               "a cache is one sequence");
  if (s.pool->sizes.value_dim == 0)
    refuse_field(kCache, "attend", "needs values, but the pool has keys only");
  if (a.q.batch != 1) refuse_field(kCache, "q", "must have one sequence, batch", a.q.batch);
  if (a.q.dim != s.pool->sizes.head_dim)
    refuse_field(kCache, "q",
                 "must have the head size of the keys, " + std::to_string(s.pool->sizes.head_dim),
                 a.q.dim);
  if (!is_float(a.q.dtype))
    refuse_field(kCache, "q", "must be f64, f32, f16 or bf16", dtype_name(a.q.dtype));
  if (a.q.dtype == DType::f64 && !s.rotation->wide)
    refuse_field(kCache, "q", "must be f32, f16 or bf16 with the precision ggml", "f64");
  check_extent(kCache, "q", a.q);
  if (a.q.data == nullptr && a.q.tokens > 0) refuse_field(kCache, "q", "must have memory");
}

std::string sums_between(const AttentionArgs& a, const LoweredState* plan) {
  if (a.normalisation != Normalisation::softmax) return std::string(enum_text(a.normalisation));
  for (const Term& t : a.terms)
    if (std::string why = sums_between(t); !why.empty()) return why;
  if (plan == nullptr) return {};
  if (plan->requests.normalisation != Normalisation::softmax)
    return std::string(enum_text(plan->requests.normalisation));
  for (std::size_t n = 0; n < plan->schemes.size(); ++n)
    for (const Term& t : plan->schemes[n].lowered.terms)
      if (!sums_between(t).empty() || std::holds_alternative<DecayTerm>(t))
        return plan->plan->schemes[n].name();  // a scheme sums its gates over the keys of a call
  return {};
}

CacheCall::CacheCall(const CacheState& state, const AttentionArgs& given,
                     std::span<const KeyInput> key_inputs, const LoweredState* of_plan)
    : s(state), call(given), inputs(key_inputs), plan(of_plan) {
  check_free_call(s, call);
  if (plan != nullptr && plan->plan->rotary)
    refuse_field(kCache, "the plan", "must not be rotary: the cache rotates queries and keys");
  packed = !find_term(call, plan, has_kernels).empty();
  by_position = !call.terms.empty() || plan != nullptr || s.keeping == KeyKeeping::unrotated;
  find_queries();
  runs = key_runs(s, s.keeping == KeyKeeping::unrotated || !s.rotation->rotates);
  check_between();
  check_parts();
  find_chunks();
}

void CacheCall::check_between() const {
  const std::string why = sums_between(call, plan);
  if (why.empty() || s.sequence.tokens == 0) return;
  if (runs.size() > 1)
    refuse_field(
        kCache, why,
        "sums over the keys in between, so all tokens must have one shift, distinct shifts",
        static_cast<Index>(runs.size()));
  check_in_a_row(s, why);
}

void CacheCall::check_parts() const {
  if (runs.size() > 1 && !call.mix_after.empty())
    refuse_field(kCache, "mix_after",
                 "mixes weights of heads, so all tokens must have one shift, distinct shifts",
                 static_cast<Index>(runs.size()));
  const bool shifted = std::any_of(s.sequence.shift.begin(), s.sequence.shift.end(),
                                   [](Index by) { return by != 0; });
  if (shifted && s.keeping == KeyKeeping::anchored && s.rotation->rotates)
    if (const std::string what = reads_rotated(call, plan); !what.empty())
      refuse_field(kCache, what,
                   "reads rotated queries or keys, so anchored keys must not be shifted; keep them "
                   "unrotated, or rescale with a move. Distinct shifts",
                   static_cast<Index>(runs.size()));
  for (const KeyInput& in : inputs) {
    if (in.term < 0 || in.term >= static_cast<Index>(call.terms.size()))
      refuse_field(kCache, "inputs", "must belong to a term of the call, term", in.term);
    array_index(in.array);
  }
}

std::size_t CacheCall::array_index(std::string_view name) const {
  const std::size_t n = token_array_index(s, name);
  if (n == s.pool->sizes.arrays.size())
    refuse_field(kCache, "inputs", "must be token arrays of the pool", name);
  return n;
}

// By default the last tokens of the cache.
void CacheCall::find_queries() {
  const Index n = call.q.tokens;
  if (call.mask.query_order.empty()) {
    if (n > s.sequence.next_order)
      refuse_field(kCache, "q",
                   "must have at most as many tokens as the cache has seen, or mask.query_order",
                   n);
    for (Index i = 0; i < n; ++i) query_order.push_back(s.sequence.next_order - n + i);
  } else {
    const ConstTensorView& o = call.mask.query_order;
    if (o.rank != 2 || o.shape[0] != 1 || o.shape[1] != n ||
        (o.dtype != DType::i64 && o.dtype != DType::i32))
      refuse_shape(kCache, "mask.query_order", "must be [1, queries] of i64 or i32", o);
    for (Index i = 0; i < n; ++i)
      query_order.push_back(integer_element(o.data, o.dtype, i * o.stride[1]));
  }
  if (!by_position && !s.rotation->rotates) return;
  if (call.query_positions.data != nullptr) return take_positions();
  query_position.resize(static_cast<std::size_t>(n * s.axes()));
  for (Index i = 0; i < n; ++i) {
    const Index order = query_order[static_cast<std::size_t>(i)];
    const std::size_t use = s.use_from(order);
    const Index slot = s.slot_of(use, order);
    if (slot < 0)
      refuse_field(kCache, "query_positions",
                   "must be given where a query is no token of the cache, order", order);
    for (Index axis = 0; axis < s.axes(); ++axis)
      query_position[static_cast<std::size_t>(axis * n + i)] =
          s.pool->anchors(s.sequence.uses[use].page, axis)[slot] + s.shift_of(use)[axis];
  }
}

void CacheCall::take_positions() {
  const Positions& p = call.query_positions;
  const Index n = call.q.tokens;
  if (p.count != n || p.batch != 1 || p.axes != s.axes() ||
      (p.type != DType::i64 && p.type != DType::i32))
    refuse_shape(kCache, "query_positions",
                 "must be i64 or i32 of [axes, 1, queries], " + sizes_text({s.axes(), 1, n}),
                 sizes_text({p.axes, p.batch, p.count}) + " of " + std::string(dtype_name(p.type)));
  const Index valid = s.rotation->spec.valid_to();
  for (Index axis = 0; axis < s.axes(); ++axis)
    for (Index i = 0; i < n; ++i) {
      const Index at = integer_position(p, axis, 0, i);
      if (at < -kMostPosition || at > kMostPosition)
        refuse_field(kCache, "query_positions", "must be at most 2^37 in magnitude", at);
      if (at >= valid)
        refuse_field(kCache, "query_positions",
                     "must be below " + std::to_string(valid) +
                         ", the length up to which the frequencies hold",
                     at);
      query_position.push_back(at);
    }
}

// A view of the caller's, or a copy in float or double, rotated by position - shift.
ConstHeads CacheCall::rotated_query(const KeyRun& run, FloatTokens* memory) const {
  if (memory == nullptr) return call.q;
  const Heads q = memory->view(call.q.tokens);
  read_stored(call.q, KeyType::f64, q);
  if (s.keeping == KeyKeeping::unrotated || !s.rotation->rotates) return q;
  std::vector<Index> at = query_position;
  for (Index axis = 0; axis < s.axes(); ++axis)
    for (Index i = 0; i < q.tokens; ++i)
      at[static_cast<std::size_t>(axis * q.tokens + i)] -=
          run.shift[static_cast<std::size_t>(axis)];
  Positions p{at.data(), DType::i64, static_cast<std::int32_t>(s.axes()), q.tokens};
  p.axis_stride = q.tokens;
  (q.dtype == DType::f64 ? *s.rotation->wide : s.rotation->narrow).apply(QK{q, {}}, p);
  return q;
}

void CacheCall::run(const AttentionResult& result, std::span<const NamedArray> named,
                    const Executor& executor) const {
  const bool narrow = call.q.dtype == DType::f16 || call.q.dtype == DType::bf16;
  const bool rotates = s.rotation->rotates && s.keeping == KeyKeeping::anchored;
  const auto one = [&](const KeyRun& run, const AttentionResult& to) {
    std::optional<FloatTokens> memory;
    if (rotates || narrow)
      memory.emplace(call.q.tokens, call.q.heads, call.q.dim, call.q.dtype == DType::f64);
    attend_run(run, rotated_query(run, memory ? &*memory : nullptr), named, to, executor);
  };
  if (runs.size() == 1 && !narrow && !chunked) return one(runs[0], result);
  check_result(result);
  if (chunked) return run_chunks(result, named, executor);
  std::vector<FloatTokens> outs;
  std::vector<std::vector<double>> sums;
  std::vector<ConstAttentionResult> parts;
  for (const KeyRun& run : runs) {
    outs.emplace_back(call.q.tokens, call.q.heads, s.pool->sizes.value_dim,
                      call.q.dtype == DType::f64);
    sums.emplace_back(static_cast<std::size_t>(call.q.heads * call.q.tokens));
    const AttentionResult part{outs.back().view(call.q.tokens),
                               tensor(sums.back().data(), {1, call.q.heads, call.q.tokens})};
    one(run, part);
    parts.emplace_back(part);
  }
  merge(parts, result, call.normalisation);
}

// As the call of a single run would check it, before any part is computed.
void CacheCall::check_result(const AttentionResult& r) const {
  const ResultSizes want{1, call.q.tokens, call.q.heads, s.pool->sizes.value_dim};
  if (r.out.dtype != call.q.dtype)
    refuse_field(kCache, "out", "must have the type of q, " + std::string(dtype_name(call.q.dtype)),
                 dtype_name(r.out.dtype));
  check_result_view(kCache, r, want,
                    "must have memory of [1, queries, heads, channels], " +
                        sizes_text({want.batch, want.queries, want.heads, want.dim}),
                    "out");
  check_log_sum_exp(kCache, r.log_sum_exp, want, "log_sum_exp");
}

}  // namespace detail

void KeyCache::attend(const AttentionArgs& call, std::span<const KeyInput> inputs,
                      const AttentionResult& result, const Executor& executor) const {
  detail::CacheCall(*state_, call, inputs, nullptr).run(result, {}, executor);
}
void KeyCache::attend(const LoweredAttention& lowered, const AttentionArgs& call,
                      std::span<const NamedArray> inputs, const AttentionResult& result,
                      const Executor& executor) const {
  detail::CacheCall c(*state_, call, {}, &detail::StateAccess::of(lowered));
  c.lowered = &lowered;
  c.run(result, inputs, executor);
}

}  // namespace posenc::v0
