// SPDX-License-Identifier: Apache-2.0
// The whole call: tensors, numbers, stages, regions; masks and terms are in files of their own.
#include <algorithm>
#include <cmath>

#include "attention/call/check_overlap.h"
#include "attention/call/check_parts.h"
#include "core/extent.h"
#include "core/known_enum.h"
#include "core/q8_0.h"
#include "core/shape.h"
#include "posenc/core/error.h"
#include "posenc/rotary/spec.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

void check_memory(const ConstHeads& h, const FieldName& what) {
  check_extent(kAttention, what, h);
  if (h.data == nullptr && h.batch > 0 && h.tokens > 0 && h.heads > 0 && h.dim > 0)
    refuse_field(kAttention, what, "must not be null when there are elements");
}

void check_heads(const ConstHeads& h, const FieldName& what) {
  if (!is_float(h.dtype))
    refuse_field(kAttention, what, "must be f64, f32, f16 or bf16", dtype_name(h.dtype));
  check_memory(h, what);
}

// k or v: numbers, or blocks of them (key_blocks).
void check_keys(const ConstHeads& h, const FieldName& what) {
  if (!is_float(h.dtype) && !has_blocks(h))
    refuse_field(kAttention, what, "must be f64, f32, f16 or bf16, or q8_0 blocks in u8",
                 dtype_name(h.dtype));
  check_memory(h, what);
  if (!has_blocks(h)) return;
  if (h.dim % kQ8Bytes != 0)
    refuse_field(kAttention, what, "in q8_0 blocks must have head size / 32 * 34 bytes", h.dim);
  if (h.dim_stride != 1)
    refuse_field(kAttention, what,
                 "in q8_0 blocks must have the bytes of a head side by side, stride", h.dim_stride);
}

void check_same(Index got, Index want, std::string_view what, std::string_view rule) {
  if (got != want)
    refuse_field(kAttention, what, std::string(rule) + ", " + std::to_string(want), got);
}

void check_result(const AttentionArgs& a, const AttentionResult& r) {
  if (r.out.dtype != a.q.dtype)
    refuse_field(kAttention, "out", "must have the dtype of q", dtype_name(r.out.dtype));
  check_heads(r.out, "out");
  check_same(r.out.batch, a.q.batch, "out", "must have the batch of q");
  check_same(r.out.heads, a.q.heads, "out", "must have the heads of q");
  check_same(r.out.tokens, a.q.tokens, "out", "must have the tokens of q");
  check_same(r.out.dim, head_size(a.v), "out", "must have the head size of v");
  check_log_sum_exp(kAttention, r.log_sum_exp, {a.q.batch, a.q.tokens, a.q.heads, head_size(a.v)},
                    "log_sum_exp");
}

void check_numbers(const AttentionArgs& a, const CallSizes& s) {
  if (!a.scale) refuse_field(kAttention, "scale", "must be given: attend has no default");
  if (!std::isfinite(*a.scale)) refuse_field(kAttention, "scale", "must be finite", *a.scale);
  if (!std::isfinite(a.softcap) || a.softcap < 0)
    refuse_field(kAttention, "softcap", "must be finite and not negative", a.softcap);
  if (a.softcap_after_terms && a.softcap == 0)
    refuse_field(kAttention, "softcap_after_terms", "needs a softcap", a.softcap);
  if (a.dropout != 0)
    refuse_field(kAttention, "dropout", "must be 0: dropout of probabilities is not supported",
                 a.dropout);
  check_known(kAttention, "normalisation", a.normalisation);
  if (!a.sink.empty() && a.normalisation != Normalisation::softmax)
    refuse_field(kAttention, "sink", "needs the normalisation softmax", enum_text(a.normalisation));
  check_real(a.sink, {s.heads}, "sink");
  check_real(a.head_scale, {one_or(s.batch), s.heads}, "head_scale");
  check_real(a.query_factor, {one_or(s.batch), s.queries}, "query_factor");
  check_real(a.mix_before, {s.heads, s.heads}, "mix_before");
  check_real(a.mix_after, {s.heads, s.heads}, "mix_after");
}

void check_stage(const AttentionArgs& a, const CallSizes& s, const Stage& g) {
  check_known(kAttention, "the kind of a stage", g.kind);
  const FieldName what("stage ", enum_text(g.kind), " ");
  const bool weighted = g.kind == StageKind::add || g.kind == StageKind::rms;
  if (!weighted && (!g.q.empty() || !g.k.empty()))
    refuse_sentence(kAttention, what.name(), what + "must not have arrays of q or k");
  if (g.kind == StageKind::add && g.q.empty() && g.k.empty())
    refuse_sentence(kAttention, what.name(), what + "must have a bias of q or of k");
  check_real(g.q, {divisor_of(s.heads), s.dim}, {what, "array of q"});
  check_real(g.k, {divisor_of(s.key_heads), s.dim}, {what, "array of k"});
  if (!std::isfinite(g.epsilon) || g.epsilon < 0)
    refuse_field(kAttention, what + "epsilon", "must be finite and not negative", g.epsilon);
  const bool rotates = g.kind == StageKind::rotate;
  if (rotates != (g.rotary != nullptr))
    refuse_sentence(kAttention, what.name(),
                    what + (rotates ? "needs a rotary spec" : "must not have a rotary spec"));
  if (g.value && !rotates)
    refuse_sentence(kAttention, what.name(), what + "must not name the value");
  if (g.value && s.value_dim != s.dim)
    refuse_number(kAttention, what.name(),
                  what + "of v needs the head size of q, " + std::to_string(s.dim), s.value_dim);
  if (rotates) needs_axis(a, 0, what);
}

// The call's own q and k rotated once more.
void check_rotated_region(const AttentionArgs& a, const CallSizes& s, const ScoreRegion& r) {
  if (r.qk.q.dim != 0 || r.qk.k.dim != 0)
    refuse_sentence(kAttention, "regions", "a region must not have both qk and rotary");
  if (r.rotary->head_dim != s.dim)
    refuse_number(kAttention, "regions",
                  "rotary of a region must have the head size of q, " + std::to_string(s.dim),
                  r.rotary->head_dim);
  for (const Stage& g : a.prepare)
    if (g.kind == StageKind::rotate && &g != &a.prepare.back())
      refuse_sentence(kAttention, "prepare",
                      "the rotation must be the last stage where a region has rotary");
  const std::pair<const Positions*, Index> sides[] = {{&r.query_positions, s.queries},
                                                      {&r.key_positions, s.keys}};
  for (const auto& [p, tokens] : sides) {
    const bool query = p == &r.query_positions;
    const char* what = query ? "query_positions of a region" : "key_positions of a region";
    if (p->data == nullptr && tokens > 0)
      refuse_sentence(kAttention, what, std::string(what) + " must be given with its rotary");
    check_positions(*p, query ? s.batch : s.key_rows, tokens, what);
  }
}

// Numbers of its own.
void check_given_region(const CallSizes& s, const ScoreRegion& r) {
  const auto given = [&](const ConstHeads& x, Index rows, Index tokens) {
    return x.batch == rows && x.tokens == tokens && x.dim == s.dim && is_float(x.dtype) &&
           (x.data != nullptr || rows == 0 || tokens == 0);
  };
  check_extent(kAttention, "q of a region", r.qk.q);
  check_extent(kAttention, "k of a region", r.qk.k);
  if (!given(r.qk.q, s.batch, s.queries) || r.qk.q.heads != s.heads)
    refuse_shape(kAttention, "q of a region", "must be like that of the call", shape_text(r.qk.q));
  if (!given(r.qk.k, s.key_rows, s.keys) || !fits(r.qk.k.heads, divisor_of(s.heads)))
    refuse_shape(kAttention, "k of a region", "must be like that of the call", shape_text(r.qk.k));
  if (r.query_positions.data != nullptr || r.key_positions.data != nullptr)
    refuse_sentence(kAttention, "regions", "positions of a region need its rotary");
}

void check_region(const AttentionArgs& a, const CallSizes& s, const ScoreRegion& r) {
  if (r.rotary != nullptr)
    check_rotated_region(a, s, r);
  else
    check_given_region(s, r);
  if (r.chunk < 1)
    refuse_number(kAttention, "chunk", "the chunk of a region must be positive", r.chunk);
  if (r.low > r.high)
    refuse_number(kAttention, "low", "low of a region must not be above high", r.low);
  needs_axis(a, r.axis, "a region");
}

}  // namespace

void check_tensors(const AttentionArgs& a) {
  const ConstHeads &q = a.q, &k = a.k, &v = a.v;
  check_heads(q, "q");
  check_keys(k, "k");
  check_keys(v, "v");
  if (a.block_table.empty()) check_same(k.batch, q.batch, "k", "must have the batch of q");
  if (q.heads < 1 || q.dim < 1)
    refuse_field(kAttention, "q", "must have heads and channels", std::min(q.heads, q.dim));
  if (has_blocks(k) && q.dim % kQ8Numbers != 0)
    refuse_field(kAttention, "q",
                 "must have a head size that is a multiple of 32 where k has q8_0 blocks", q.dim);
  check_same(head_size(k), q.dim, "k", "must have the head size of q");
  if (k.heads < 1 || q.heads % k.heads != 0)
    refuse_number(
        kAttention, "k",
        "the heads of q, " + std::to_string(q.heads) + ", must be a multiple of those of k",
        k.heads);
  check_same(v.batch, k.batch, "v", "must have the batch of k");
  check_same(v.heads, k.heads, "v", "must have the heads of k");
  check_same(v.tokens, k.tokens, "v", "must have the tokens of k");
  check_integer(a.block_table, {kAny, kAny}, "block_table");
  if (const Index keys = CallSizes(a).keys; keys > kMostSize)
    refuse_shape(kAttention, "block_table", "must hold at most 2^40 keys a sequence",
                 a.block_table);
}

void check_positions(const Positions& p, Index rows, Index tokens, const FieldName& what) {
  if (p.data == nullptr && p.count == 0) return;
  if (p.count != tokens)
    refuse_field(kAttention, what,
                 "must be one for each of the " + std::to_string(tokens) + " tokens", p.count);
  check_positions_view(kAttention, what, p);
  if (p.batch == 1 || p.batch == rows) return;
  const std::string batch = rows == 1 ? "1" : "1 or " + std::to_string(rows);
  refuse_field(kAttention, what,
               std::string("must have ") + batch + (rows == 1 ? " row" : " rows") +
                   ", one for each batch entry; several axes are [axes, " + batch + ", " +
                   std::to_string(tokens) + "]",
               p.batch);
}

void check_call(const AttentionArgs& a) {
  check_tensors(a);
  const CallSizes s(a);
  check_numbers(a, s);
  check_positions(a.query_positions, s.batch, s.queries, "query_positions");
  check_positions(a.key_positions, s.key_rows, s.keys, "key_positions");
  check_mask(a, s);
  for (const Stage& g : a.prepare) check_stage(a, s, g);
  for (const ScoreRegion& r : a.regions) check_region(a, s, r);
  for (std::size_t i = 0; i < a.terms.size(); ++i) check_term(a, s, i);
}

}  // namespace detail

void check_attention(const AttentionArgs& a, const AttentionResult& r) {
  detail::check_call(a);
  detail::check_result(a, r);
  detail::check_overlap(a, r);
}

namespace detail {

void check_float(std::string_view who, const ConstHeads& h, const FieldName& what) {
  if (!is_float(h.dtype)) refuse_field(who, what, "must be of a float type", dtype_name(h.dtype));
  check_extent(who, what, h);
}

void check_result_view(std::string_view who, const ConstAttentionResult& r, const ResultSizes& s,
                       std::string_view shape_rule, const FieldName& what) {
  const ConstHeads& o = r.out;
  check_float(who, o, what);
  if (o.batch != s.batch || o.tokens != s.queries || o.heads != s.heads || o.dim != s.dim ||
      (o.data == nullptr && saturated_product({s.batch, s.queries, s.heads, s.dim}) > 0))
    refuse_shape(who, what, shape_rule, shape_text(o));
}

void check_log_sum_exp(std::string_view who, const ConstTensorView& l, const ResultSizes& s,
                       const FieldName& what) {
  if (l.empty()) return;
  if (l.device != Device::cpu) refuse_field(who, what, "must be in the CPU's memory");
  if (l.dtype != DType::f64 && l.dtype != DType::f32)
    refuse_field(who, what, "must be f64 or f32", dtype_name(l.dtype));
  if (l.rank != 3 || l.shape[0] != s.batch || l.shape[1] != s.heads || l.shape[2] != s.queries)
    refuse_shape(who, what,
                 "must be [batch, heads, queries], " + sizes_text({s.batch, s.heads, s.queries}),
                 l);
  check_extent(who, what, l);
}

void check_read(const AttentionArgs& a, const ConstAttentionResult& r, const FieldName& what) {
  const ResultSizes s{a.q.batch, a.q.tokens, a.q.heads, head_size(a.v)};
  check_result_view(kAttention, r, s, "must have the shape of the output", what);
  check_log_sum_exp(kAttention, r.log_sum_exp, s, {what, " log_sum_exp"});
}

std::string_view merge_why_not(const AttentionArgs& a) noexcept {
  if (a.normalisation != Normalisation::softmax) return enum_text(a.normalisation);
  if (!a.mix_after.empty()) return "mix_after";
  for (const Term& t : a.terms) {
    const auto* network = std::get_if<ScoreMlpTerm>(&t);
    if (std::holds_alternative<GatesTerm>(t)) return "gates";
    if (network != nullptr && (network->mlp.in.shape[2] > 1 || network->mlp.out.shape[2] > 1))
      return "kernels over keys";
  }
  return {};
}

void check_whole(const AttentionArgs& a, const ConstAttentionResult& r) {
  if (!r.whole) return;
  if (const std::string_view why = merge_why_not(a); !why.empty())
    refuse_field(kAttention, "result.whole",
                 "must be false: results of calls with " + std::string(why) + " do not merge");
  if (r.log_sum_exp.dtype != DType::f64 || r.log_sum_exp.empty())
    refuse_field(kAttention, "result.log_sum_exp", "must be f64 where the result is the whole's",
                 r.log_sum_exp.empty() ? "none" : dtype_name(r.log_sum_exp.dtype));
}

namespace {

void check_type(std::string_view who, DType t, const FieldName& what) {
  if (t != DType::f64 && t != DType::f32)
    refuse_field(who, what, "must be f64 or f32", dtype_name(t));
}

}  // namespace

void check_gradient(std::string_view who, const ConstHeads& g, const ConstHeads& x,
                    const FieldName& what) {
  if (g.data == nullptr) return;
  if (x.data == nullptr && x.dim == 0)
    refuse_sentence(who, what, what + " is given, but the call has no such tensor");
  if (g.batch != x.batch || g.tokens != x.tokens || g.heads != x.heads || g.dim != x.dim)
    refuse_shape(who, what, "must have its shape, " + shape_text(x), shape_text(g));
  check_type(who, g.dtype, what);
  check_extent(who, what, g);
}

namespace {

void check_like(const ConstHeads& g, const ConstHeads& x, const FieldName& what) {
  if (g.data != nullptr && has_blocks(x)) {
    const FieldName name("gradient of ", what);
    refuse_sentence(kAttention, name, name + " must not be given: q8_0 blocks have no gradient");
  }
  check_gradient(kAttention, g, x, {"gradient of ", what});
}

void check_like(const ConstTensorView& g, const ConstTensorView& x, const FieldName& what) {
  if (g.empty()) return;
  const FieldName name("gradient of ", what);
  if (x.empty()) refuse_field(kAttention, name, "is given, but the call has no such tensor");
  bool same = g.rank == x.rank;
  for (std::int32_t i = 0; same && i < g.rank; ++i)
    same = g.shape[static_cast<std::size_t>(i)] == x.shape[static_cast<std::size_t>(i)];
  if (!same) refuse_shape(kAttention, name, "must have its shape", g);
  check_type(kAttention, g.dtype, name);
  if (g.device != Device::cpu) refuse_field(kAttention, name, "must be in the CPU's memory");
  check_extent(kAttention, name, g);
}

void check_count(std::size_t got, std::size_t want, const char* field, const FieldName& what) {
  if (got != 0 && got != want)
    refuse_number(kAttention, field, "there must be a gradient for each " + what + ", or none",
                  static_cast<Index>(got));
}

void check_term_gradient(const TermGradient& g, const Term& term) {
  const FieldName what("a term ", term_name(term), " ");
  const TermArrays t = term_arrays(term);
  check_like(g.table, t.table, {what, "table"});
  check_like(g.query, t.query.given, {what, "query"});
  check_like(g.key, t.key.given, {what, "key"});
  check_like(g.mlp.in, t.mlp.in, {what, "mlp in"});
  check_like(g.mlp.in_bias, t.mlp.in_bias, {what, "mlp in_bias"});
  check_like(g.mlp.out, t.mlp.out, {what, "mlp out"});
  check_like(g.mlp.out_bias, t.mlp.out_bias, {what, "mlp out_bias"});
}

}  // namespace
}  // namespace detail

void check_attention(const AttentionArgs& a, const AttentionGradients& g) {
  using namespace detail;
  check_call(a);
  check_like(g.q, a.q, "q");
  check_like(g.k, a.k, "k");
  check_like(g.v, a.v, "v");
  check_like(g.sink, a.sink, "sink");
  check_like(g.head_scale, a.head_scale, "head_scale");
  check_like(g.query_factor, a.query_factor, "query_factor");
  check_like(g.bias, a.mask.bias, "bias");
  check_like(g.mix_before, a.mix_before, "mix_before");
  check_like(g.mix_after, a.mix_after, "mix_after");
  check_count(g.prepare.size(), a.prepare.size(), "prepare", "stage");
  for (std::size_t i = 0; i < g.prepare.size(); ++i) {
    check_like(g.prepare[i].q, a.prepare[i].q, "a stage's array of q");
    check_like(g.prepare[i].k, a.prepare[i].k, "a stage's array of k");
  }
  check_count(g.regions.size(), a.regions.size(), "regions", "region");
  for (std::size_t i = 0; i < g.regions.size(); ++i) {
    check_like(g.regions[i].q, a.regions[i].qk.q, "q of a region");
    check_like(g.regions[i].k, a.regions[i].qk.k, "k of a region");
  }
  check_count(g.terms.size(), a.terms.size(), "terms", "term");
  for (std::size_t i = 0; i < g.terms.size(); ++i) check_term_gradient(g.terms[i], a.terms[i]);
  check_overlap(a, g);
}

}  // namespace posenc::v0
