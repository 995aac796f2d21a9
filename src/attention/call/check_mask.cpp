// SPDX-License-Identifier: Apache-2.0
// Masks: which can be, and which exclude each other.
#include <algorithm>

#include "attention/call/check_parts.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

// [B|1, G, Tq, Tk] or [Tq, Tk].
void check_pairs(const ConstTensorView& v, const CallSizes& s, bool flags, const FieldName& what) {
  if (v.empty()) return;
  if (v.rank == 3)
    refuse_shape(kAttention, what,
                 "must have rank 2 or 4: of rank 3 some mean [batch, queries, keys] and "
                 "others [heads, queries, keys]",
                 v);
  const auto check = flags ? check_flags : check_real;
  if (v.rank == 2) return check(v, {s.queries, s.keys}, what);
  check(v, {one_or(s.batch), divisor_of(s.heads), s.queries, s.keys}, what);
}

void check_together(const ConstTensorView& x, const ConstTensorView& y, std::string_view names) {
  if (x.empty() != y.empty()) refuse_field(kAttention, names, "must be given together");
}

void check_counts(const Mask& m) {
  if (m.window_left < 0)
    refuse_field(kAttention, "window_left", "must not be negative", m.window_left);
  if (m.window_right < -1)
    refuse_field(kAttention, "window_right", "must be -1 or more", m.window_right);
  if (m.sink_tokens < 0)
    refuse_field(kAttention, "sink_tokens", "must not be negative", m.sink_tokens);
  if (m.chunk < 0) refuse_field(kAttention, "chunk", "must not be negative", m.chunk);
  constexpr Index most = Index{1} << 62;
  if (m.query_offset < -most || m.query_offset > most)
    refuse_field(kAttention, "query_offset", "must lie between -2^62 and 2^62", m.query_offset);
  if (!m.chunk_origin.empty() && m.chunk == 0)
    refuse_field(kAttention, "chunk_origin", "needs a chunk", m.chunk);
  if (!m.prefix.empty() && !m.causal) refuse_field(kAttention, "prefix", "needs a causal mask");
}

void check_orders(const Mask& m, const CallSizes& s) {
  check_integer(m.query_order, {one_or(s.batch), s.queries}, "query_order");
  check_integer(m.key_order, {one_or(s.key_rows), s.keys}, "key_order");
  check_together(m.query_order, m.key_order, "query_order and key_order");
  if (!m.query_order.empty() && m.query_offset != 0)
    refuse_field(kAttention, "query_offset", "excludes query_order", m.query_offset);
  if (!m.query_order.empty() && !m.query_offsets.empty())
    refuse_field(kAttention, "query_offsets", "excludes query_order");
  const Index sequences = m.query_cu_seqlens.empty()
                              ? one_or(s.batch)
                              : std::max<Index>(0, m.query_cu_seqlens.shape[0] - 1);
  check_integer(m.query_offsets, {sequences}, "query_offsets");
  check_integer(m.query_document, {one_or(s.batch), s.queries}, "query_document");
  check_integer(m.key_document, {one_or(s.key_rows), s.keys}, "key_document");
  check_together(m.query_document, m.key_document, "query_document and key_document");
}

// Ragged batches and pages.
void check_sequences(const AttentionArgs& a, const CallSizes& s) {
  const Mask& m = a.mask;
  const bool paged = !a.block_table.empty(), packed = !m.query_cu_seqlens.empty();
  check_integer(m.query_cu_seqlens, {kAny}, "query_cu_seqlens");
  check_integer(m.key_cu_seqlens, {kAny}, "key_cu_seqlens");
  if (paged && !m.key_cu_seqlens.empty())
    refuse_sentence(kAttention, "key_cu_seqlens",
                    "key_cu_seqlens and block_table exclude each other");
  if (!paged)
    check_together(m.query_cu_seqlens, m.key_cu_seqlens, "query_cu_seqlens and key_cu_seqlens");
  if (paged && m.key_length.empty()) refuse_field(kAttention, "block_table", "needs key_length");
  if (!packed) {
    if (s.key_rows != s.batch)
      refuse_field(kAttention, "block_table",
                   "must have a row for each batch entry, " + std::to_string(s.batch), s.key_rows);
    return;
  }
  if (s.batch != 1) refuse_field(kAttention, "cu_seqlens", "need a batch of 1, batch", s.batch);
  if (!m.query_document.empty()) refuse_field(kAttention, "cu_seqlens", "exclude documents");
  const Index sequences = m.query_cu_seqlens.shape[0] - 1;
  if (sequences < 0)
    refuse_field(kAttention, "query_cu_seqlens", "must have at least one entry", Index{0});
  const Index others = paged ? s.key_rows : m.key_cu_seqlens.shape[0] - 1;
  if (others != sequences)
    refuse_field(kAttention, paged ? "block_table" : "cu_seqlens",
                 std::string(paged ? "must have a row for each sequence"
                                   : "must have the same number of sequences") +
                     ", " + std::to_string(sequences),
                 others);
}

}  // namespace

void check_mask(const AttentionArgs& a, const CallSizes& s) {
  const Mask& m = a.mask;
  check_counts(m);
  check_flags(m.head_side, {s.heads}, "head_side");
  check_integer(m.prefix, {one_or(s.batch)}, "prefix");
  check_integer(m.chunk_origin, {one_or(s.batch), divisor_of(s.heads)}, "chunk_origin");
  check_orders(m, s);
  check_integer(m.key_length, {s.key_rows}, "key_length");
  check_flags(m.key_visible, {one_or(s.key_rows), s.keys}, "key_visible");
  check_pairs(m.visible, s, true, "visible");
  check_pairs(m.bias, s, false, "bias");
  check_sequences(a, s);
}

}  // namespace posenc::v0::detail
