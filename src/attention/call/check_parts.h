// SPDX-License-Identifier: Apache-2.0
// Checks of single views, masks and terms of an attention call. Nothing but shapes is read.
#pragma once
#include <initializer_list>
#include <string>

#include "attention/call/field_name.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

inline constexpr std::string_view kAttention = "attention";

// Sizes of a call. key_rows: rows of what is by key, B unless packed queries read pages.
struct CallSizes {
  explicit CallSizes(const AttentionArgs&);
  Index batch, key_rows, heads, key_heads, queries, keys, dim, value_dim;
};

// Throws [attention]: what check_attention refuses, of the call alone.
void check_call(const AttentionArgs&);
// Throws [attention]: q, k and v that do not go together, sizes and strides beyond 64 bits.
void check_tensors(const AttentionArgs&);
// Positions, where given, of so many tokens in one row or `rows`.
void check_positions(const Positions&, Index rows, Index tokens, const FieldName& what);
// A result that a backward pass reads, `what` in messages.
void check_read(const AttentionArgs&, const ConstAttentionResult&, const FieldName& what);
// What of a call keeps results over parts of its keys from being merged; empty: nothing.
std::string_view merge_why_not(const AttentionArgs&) noexcept;
// A result over more keys than the call's: what does not merge is refused.
void check_whole(const AttentionArgs&, const ConstAttentionResult&);
// A tensor of a float type, whose addresses fit.
void check_float(std::string_view who, const ConstHeads&, const FieldName& what);
// A gradient, f64 or f32 of the shape of what it belongs to; `what` in messages.
void check_gradient(std::string_view who, const ConstHeads& gradient, const ConstHeads& of,
                    const FieldName& what);
// The views of a result: out [batch, queries, heads, dim] of a float type, log_sum_exp in the CPU's
// memory. shape_rule: what an error says of another shape of out.
struct ResultSizes {
  Index batch, queries, heads, dim;
};
void check_result_view(std::string_view who, const ConstAttentionResult&, const ResultSizes&,
                       std::string_view shape_rule, const FieldName& what);
void check_log_sum_exp(std::string_view who, const ConstTensorView&, const ResultSizes&,
                       const FieldName& what);

// In an expected shape: n; one_or(n): 1 or n; divisor_of(n): at least 1 and a divisor of n;
// kAny: at least 0. An empty view passes.
inline constexpr Index kAny = -1, kOneOr = Index{1} << 56, kDivisorOf = Index{1} << 57;
constexpr Index one_or(Index n) {
  return n == 1 ? 1 : kOneOr + n;
}
constexpr Index divisor_of(Index n) {
  return n == 1 ? 1 : kDivisorOf + n;
}
using WantedShape = std::initializer_list<Index>;
bool fits(Index got, Index want);
std::string wanted_text(WantedShape);
void check_real(const ConstTensorView&, WantedShape, const FieldName& what);
void check_integer(const ConstTensorView&, WantedShape, const FieldName& what);
void check_flags(const ConstTensorView&, WantedShape, const FieldName& what);
void check_given(const ConstTensorView&, WantedShape, const FieldName& what);  // real, not empty

// Positions of queries and keys that have the axis.
void needs_axis(const AttentionArgs&, std::int32_t axis, const FieldName& who);
void check_mask(const AttentionArgs&, const CallSizes&);
// Term number `number` of the call.
void check_term(const AttentionArgs&, const CallSizes&, std::size_t number);

}  // namespace posenc::v0::detail
