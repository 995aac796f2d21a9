// SPDX-License-Identifier: Apache-2.0
// The numbers inside integer arrays of a call: every place they name exists.
#include "attention/call/check_parts.h"
#include "core/element.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

Index element(const ConstTensorView& v, Index i, Index j = 0) {
  return integer_element(v.data, v.dtype, i * v.stride[0] + (v.rank > 1 ? j * v.stride[1] : 0));
}

void check_boundaries(const ConstTensorView& cu, Index tokens, const FieldName& what) {
  if (cu.empty()) return;
  Index last = 0;
  for (Index i = 0; i < cu.shape[0]; ++i) {
    const Index x = element(cu, i);
    if (i == 0 ? x != 0 : x < last)
      refuse_field(kAttention, what, "must start at 0 and not decrease", x);
    last = x;
  }
  if (last != tokens) refuse_field(kAttention, what, "must end at the number of tokens", last);
}

void check_classes(const ConstTensorView& v, Index classes) {
  for (Index i = 0; i < v.shape[0]; ++i)
    for (Index j = 0; j < v.shape[1]; ++j) {
      const Index c = element(v, i, j);
      if (c < 0 || c >= classes)
        refuse_number(kAttention, "pair",
                      "a class of a pair must lie between 0 and " + std::to_string(classes - 1), c);
    }
}

void check_pages(const AttentionArgs& a, const CallSizes& s) {
  if (a.block_table.empty() || a.k.tokens < 1) return;
  for (Index row = 0; row < s.key_rows; ++row)
    for (Index p = 0; p * a.k.tokens < element(a.mask.key_length, row); ++p) {
      const Index page = element(a.block_table, row, p);
      if (page < 0 || page >= a.k.batch)
        refuse_number(
            kAttention, "block_table",
            "a page of block_table must lie between 0 and " + std::to_string(a.k.batch - 1), page);
    }
}

}  // namespace
}  // namespace detail

void check_attention_indices(const AttentionArgs& a) {
  using namespace detail;
  const CallSizes s(a);
  const Mask& m = a.mask;
  for (Index i = 0; !m.key_length.empty() && i < s.key_rows; ++i)
    if (const Index n = element(m.key_length, i); n < 0 || n > s.keys)
      refuse_field(kAttention, "key_length",
                   "must lie between 0 and the keys, " + std::to_string(s.keys), n);
  constexpr Index most = Index{1} << 61;
  for (Index i = 0; !m.query_offsets.empty() && i < m.query_offsets.shape[0]; ++i)
    if (const Index n = element(m.query_offsets, i); n < -most || n > most)
      refuse_field(kAttention, "query_offsets", "must lie between -2^61 and 2^61", n);
  check_boundaries(m.query_cu_seqlens, s.queries, "query_cu_seqlens");
  check_boundaries(m.key_cu_seqlens, s.keys, "key_cu_seqlens");
  check_pages(a, s);
  for (Index h = 0; !m.head_side.empty() && h < s.heads; ++h)
    if (const Index side = element(m.head_side, h); side > static_cast<Index>(Side::future))
      refuse_field(kAttention, "head_side", "must be 0 (both), 1 (past) or 2 (future)", side);
  for (const Term& t : a.terms) {
    const PickedRows* rows = picked_rows(t);
    if (rows == nullptr || rows->pair.row == nullptr) continue;
    check_classes(rows->pair.query_class, rows->pair.query_classes);
    check_classes(rows->pair.key_class, rows->pair.key_classes);
  }
}

}  // namespace posenc::v0
