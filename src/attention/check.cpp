// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "attention/check_term.h"
#include "core/element.h"
#include "core/shape.h"
#include "posenc/attention/attention.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kWho = "attention";

void check_heads(const ConstHeads& h, std::string_view what, const AttentionArgs& a) {
  const std::string w(what);
  if (!is_float(h.dtype) || h.dtype != a.qk.q.dtype)
    refuse(kWho, w + " must have the dtype of q", dtype_name(h.dtype));
  if (h.batch < 0 || h.tokens < 0 || h.heads < 0 || h.dim < 0)
    detail::refuse_shape(kWho, w + " must not have negative sizes", detail::shape_text(h));
  if (h.batch != a.qk.q.batch)
    refuse(kWho, w + " must have the batch of q, " + std::to_string(a.qk.q.batch), h.batch);
  if (h.data == nullptr && h.batch * h.tokens * h.heads * h.dim > 0)
    refuse(kWho, w + " must not be null when there are elements");
}

void check_tensors(const AttentionArgs& a) {
  const ConstHeads &q = a.qk.q, &k = a.qk.k;
  check_heads(q, "q", a);
  check_heads(k, "k", a);
  check_heads(a.v, "v", a);
  check_heads(a.out, "out", a);
  if (q.dim < 1 || k.dim != q.dim)
    refuse(kWho, "k must have the head size of q, " + std::to_string(q.dim), k.dim);
  if (k.heads < 1 || q.heads % k.heads != 0)
    refuse(kWho,
           "the heads of q, " + std::to_string(q.heads) + ", must be a multiple of those of k",
           k.heads);
  if (a.v.heads != k.heads)
    refuse(kWho, "v must have the heads of k, " + std::to_string(k.heads), a.v.heads);
  if (a.v.tokens != k.tokens)
    refuse(kWho, "v must have the tokens of k, " + std::to_string(k.tokens), a.v.tokens);
  if (a.out.heads != q.heads)
    refuse(kWho, "out must have the heads of q, " + std::to_string(q.heads), a.out.heads);
  if (a.out.tokens != q.tokens) refuse(kWho, "out must have the tokens of q", a.out.tokens);
  if (a.out.dim != a.v.dim) refuse(kWho, "out must have the head size of v", a.out.dim);
}

void check_numbers(const AttentionArgs& a) {
  if (!std::isfinite(a.scale) || a.scale == 0)
    refuse(kWho, "scale must be set, finite and not 0", a.scale);
  if (!std::isfinite(a.softcap) || a.softcap < 0)
    refuse(kWho, "softcap must be finite and not negative", a.softcap);
  if (a.softcap_after_terms && a.softcap == 0)
    refuse(kWho, "softcap_after_terms needs a softcap", a.softcap);
  if (a.dropout != 0) refuse(kWho, "dropout of probabilities is refused, must be 0", a.dropout);
  const Index h = a.qk.q.heads, t = a.qk.q.tokens, b = a.qk.q.batch;
  check_real(a.log_sum_exp, {b, h, t}, "log_sum_exp");
  check_real(a.sink, {h}, "sink");
  check_real(a.head_scale, {h}, "head_scale");
  check_real(a.query_factor, {kOneOr + b, t}, "query_factor");
}

void check_positions(const Positions& p, Index batch, Index tokens, const std::string& what) {
  if (p.data == nullptr && p.count == 0) return;
  if (p.type != DType::i64 && p.type != DType::i32 && p.type != DType::f64)
    refuse(kWho, what + " must be i64, i32 or f64", dtype_name(p.type));
  if (p.count != tokens)
    refuse(kWho, what + " must be one for each of the " + std::to_string(tokens) + " tokens",
           p.count);
  if (p.batch != 1 && p.batch != batch)
    refuse(kWho, what + " must have one row or the batch of q, " + std::to_string(batch), p.batch);
}

void check_sequences(const ConstTensorView& cu, Index tokens, const std::string& what) {
  check_integer(cu, {-1}, what);
  if (cu.shape[0] < 1) refuse(kWho, what + " must have at least one entry", cu.shape[0]);
  Index last = 0;
  for (Index i = 0; i < cu.shape[0]; ++i) {
    const Index x = detail::integer_element(cu.data, cu.dtype, i * cu.stride[0]);
    if (i == 0 ? x != 0 : x < last) refuse(kWho, what + " must start at 0 and not decrease", x);
    last = x;
  }
  if (last != tokens) refuse(kWho, what + " must end at the number of tokens", last);
}

void check_mask(const AttentionArgs& a) {
  const Mask& m = a.mask;
  const Index b = a.qk.q.batch, h = a.qk.q.heads, tq = a.qk.q.tokens, tk = a.qk.k.tokens;
  if (m.window_left < 0) refuse(kWho, "window_left must not be negative", m.window_left);
  if (m.window_right < 0) refuse(kWho, "window_right must not be negative", m.window_right);
  if (m.prefix < 0) refuse(kWho, "prefix must not be negative", m.prefix);
  if (m.sink_tokens < 0) refuse(kWho, "sink_tokens must not be negative", m.sink_tokens);
  if (m.chunk < 0) refuse(kWho, "chunk must not be negative", m.chunk);
  if (!m.chunk_origin.empty() && m.chunk == 0) refuse(kWho, "chunk_origin needs a chunk", m.chunk);
  check_integer(m.chunk_origin, {kOneOr + b, kOneOr + h}, "chunk_origin");
  check_integer(m.query_order, {kOneOr + b, tq}, "query_order");
  check_integer(m.key_order, {kOneOr + b, tk}, "key_order");
  if (m.query_order.empty() != m.key_order.empty())
    refuse(kWho, "query_order and key_order must be given together");
  if (!m.query_order.empty() && m.query_offset != 0)
    refuse(kWho, "query_offset excludes query_order", m.query_offset);
  check_integer(m.query_document, {kOneOr + b, tq}, "query_document");
  check_integer(m.key_document, {kOneOr + b, tk}, "key_document");
  if (m.query_document.empty() != m.key_document.empty())
    refuse(kWho, "query_document and key_document must be given together");
  check_integer(m.key_length, {b}, "key_length");
  check_flags(m.key_visible, {kOneOr + b, tk}, "key_visible");
  check_pairs(m.visible, a, true, "visible");
  check_pairs(m.bias, a, false, "bias");
  if (m.query_cu_seqlens.empty() != m.key_cu_seqlens.empty())
    refuse(kWho, "query_cu_seqlens and key_cu_seqlens must be given together");
  if (m.query_cu_seqlens.empty()) return;
  if (b != 1) refuse(kWho, "cu_seqlens need one row, batch", b);
  if (!m.query_order.empty() || !m.query_document.empty())
    refuse(kWho, "cu_seqlens exclude orders and documents");
  check_sequences(m.query_cu_seqlens, tq, "query_cu_seqlens");
  check_sequences(m.key_cu_seqlens, tk, "key_cu_seqlens");
  if (m.query_cu_seqlens.shape[0] != m.key_cu_seqlens.shape[0])
    refuse(kWho, "cu_seqlens must have the same number of sequences",
           m.key_cu_seqlens.shape[0] - 1);
}

void check_region(const AttentionArgs& a, const ScoreRegion& r) {
  const auto same = [](const ConstHeads& x, const ConstHeads& y) {
    return x.batch == y.batch && x.tokens == y.tokens && x.heads == y.heads && x.dim == y.dim &&
           x.dtype == y.dtype && (x.data != nullptr || x.tokens == 0);
  };
  if (!same(r.qk.q, a.qk.q) || !same(r.qk.k, a.qk.k))
    refuse(kWho, "q and k of a region must be like those of the call, tokens", r.qk.q.tokens);
  if (r.chunk < 1) refuse(kWho, "the chunk of a region must be positive", r.chunk);
  if (r.low > r.high) refuse(kWho, "low of a region must not be above high", r.low);
  needs_axis(a, r.axis, true, "a region");
}

void check_like(const ConstHeads& g, const ConstHeads& x, const std::string& what) {
  if (g.data == nullptr) return;
  if (g.batch != x.batch || g.tokens != x.tokens || g.heads != x.heads || g.dim != x.dim)
    detail::refuse_shape(kWho,
                         "gradient of " + what + " must have its shape, " + detail::shape_text(x),
                         detail::shape_text(g));
  if (g.dtype != DType::f64 && g.dtype != DType::f32)
    refuse(kWho, "gradient of " + what + " must be f64 or f32", dtype_name(g.dtype));
}

void check_like(const ConstTensorView& g, const ConstTensorView& x, const std::string& what) {
  if (g.empty()) return;
  if (x.empty()) refuse(kWho, "gradient of " + what + " is given, but the call has no such tensor");
  bool same = g.rank == x.rank;
  for (std::int32_t i = 0; same && i < g.rank; ++i)
    same = g.shape[static_cast<std::size_t>(i)] == x.shape[static_cast<std::size_t>(i)];
  if (!same) detail::refuse_shape(kWho, "gradient of " + what + " must have its shape", g);
  if (g.dtype != DType::f64 && g.dtype != DType::f32)
    refuse(kWho, "gradient of " + what + " must be f64 or f32", dtype_name(g.dtype));
}

}  // namespace

void check_attention(const AttentionArgs& a) {
  check_tensors(a);
  check_numbers(a);
  check_positions(a.query_positions, a.qk.q.batch, a.qk.q.tokens, "query_positions");
  check_positions(a.key_positions, a.qk.q.batch, a.qk.k.tokens, "key_positions");
  check_mask(a);
  for (const ScoreRegion& r : a.regions) check_region(a, r);
  for (std::size_t i = 0; i < a.terms.size(); ++i) check_term(a, i);
}

void check_attention(const AttentionArgs& a, const AttentionGradients& g) {
  check_attention(a);
  check_like(g.qk.q, a.qk.q, "q");
  check_like(g.qk.k, a.qk.k, "k");
  check_like(g.v, a.v, "v");
  check_like(g.sink, a.sink, "sink");
  check_like(g.head_scale, a.head_scale, "head_scale");
  check_like(g.query_factor, a.query_factor, "query_factor");
  check_like(g.bias, a.mask.bias, "bias");
  if (!g.regions.empty() && g.regions.size() != a.regions.size())
    refuse(kWho, "there must be a gradient for each region, or none",
           static_cast<Index>(g.regions.size()));
  for (std::size_t i = 0; i < g.regions.size(); ++i) {
    check_like(g.regions[i].q, a.qk.q, "q of a region");
    check_like(g.regions[i].k, a.qk.k, "k of a region");
  }
  if (!g.terms.empty() && g.terms.size() != a.terms.size())
    refuse(kWho, "there must be a gradient for each term, or none",
           static_cast<Index>(g.terms.size()));
  for (std::size_t i = 0; i < g.terms.size(); ++i) {
    const Term& t = a.terms[i];
    const std::string what = "a term " + std::string(enum_text(t.kind)) + " ";
    check_like(g.terms[i].table, t.table, what + "table");
    check_like(g.terms[i].table2, t.table2, what + "table2");
    check_like(g.terms[i].table3, t.table3, what + "table3");
    check_like(g.terms[i].query_bias, t.query_bias, what + "query_bias");
    if (g.terms[i].gate_key.data != nullptr && t.gate_key.data == nullptr)
      refuse(kWho, "gradient of " + what + "gate_key is given, but the call has no such tensor");
    check_like(g.terms[i].gate_key, t.gate_key, what + "gate_key");
  }
}

}  // namespace posenc::v0
