// SPDX-License-Identifier: Apache-2.0
// The checks of a call: a few comparisons each, and everything that words an error out of line.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/overlap.h"
#include "core/shape.h"
#include "posenc/core/error.h"
#include "positions/memory.h"
#include "positions/shared_row.h"
#include "rotary/gradient_tensors.h"

namespace posenc::inline v0::detail {
namespace {

[[noreturn, gnu::cold, gnu::noinline]] void wrong(std::string_view field, std::string_view rule,
                                                  Index got) {
  refuse_field("rotary", field, rule, got);
}

// First byte and the one behind the last.
struct Extent {
  std::uintptr_t begin, end;
};
inline Extent extent_of(const Heads& h, Index size) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(h.data);
  const Index b = (h.batch - 1) * h.batch_stride, t = (h.tokens - 1) * h.token_stride;
  const Index n = (h.heads - 1) * h.head_stride, d = (h.dim - 1) * h.dim_stride;
  const Index low =
      std::min<Index>(b, 0) + std::min<Index>(t, 0) + std::min<Index>(n, 0) + std::min<Index>(d, 0);
  const Index high = b + t + n + d - low + 1;
  return {at + static_cast<std::uintptr_t>(low * size),
          at + static_cast<std::uintptr_t>(high * size)};
}

bool one_shape(const Heads& a, const Heads& b) noexcept {
  return a.batch_stride == b.batch_stride && a.token_stride == b.token_stride &&
         a.head_stride == b.head_stride && a.dim_stride == b.dim_stride;
}

[[gnu::noinline]] bool overlap_anyhow(const Heads& a, const Heads& b, Index size) noexcept {
  const Extent x = extent_of(a, size), y = extent_of(b, size);
  return x.begin < y.end && y.begin < x.end && overlaps(memory_of(a), memory_of(b));
}

// Two tensors that share an element, as far as their extents and strides tell. Mostly the one that
// begins first runs forward and ends before the other: one end tells.
inline bool overlap(const Heads& a, const Heads& b, Index size) noexcept {
  const auto x = reinterpret_cast<std::uintptr_t>(a.data);
  const auto y = reinterpret_cast<std::uintptr_t>(b.data);
  const Heads& low = x < y ? a : b;
  const Heads& high = x < y ? b : a;
  const Index last = (low.batch - 1) * low.batch_stride + (low.tokens - 1) * low.token_stride +
                     (low.heads - 1) * low.head_stride + (low.dim - 1) * low.dim_stride;
  const bool forward =
      (low.batch_stride | low.token_stride | low.head_stride | low.dim_stride | high.batch_stride |
       high.token_stride | high.head_stride | high.dim_stride) >= 0;
  const auto bytes = static_cast<std::uintptr_t>((last + 1) * size);
  if (forward & ((x < y ? y - x : x - y) >= bytes)) return false;
  return overlap_anyhow(a, b, size);
}

// What is wrong with a pair of tensors that is not as check_pair wants it.
[[noreturn, gnu::cold, gnu::noinline]] void refuse_pair(const RotaryPlanState& s, const Heads& in,
                                                        const Heads& out) {
  if (in.dtype != s.dtype || out.dtype != s.dtype)
    refuse_field("rotary", "tensors",
                 "must be of the plan's dtype " + std::string(dtype_name(s.dtype)),
                 dtype_name(in.dtype != s.dtype ? in.dtype : out.dtype));
  if (in.dim != s.spec.head_dim || out.dim != s.spec.head_dim)
    wrong("head size", "must be the plan's " + std::to_string(s.spec.head_dim),
          in.dim != s.spec.head_dim ? in.dim : out.dim);
  if (out.data == nullptr) refuse("rotary", "an output must have memory where its input has");
  if (in.batch != out.batch) refuse("rotary", "in and out must have the same batch", out.batch);
  if (in.tokens != out.tokens) refuse("rotary", "in and out must have the same tokens", out.tokens);
  if (in.heads != out.heads) refuse("rotary", "in and out must have the same heads", out.heads);
  if (in.batch < 0 || in.tokens < 0 || in.heads < 0)
    wrong("sizes", "must not be negative", std::min(in.batch, std::min(in.tokens, in.heads)));
  if (s.heads > 1 && in.heads != s.heads)
    refuse("rotary", "the spectrum is per head: heads must be " + std::to_string(s.heads),
           in.heads);
  refuse("rotary",
         "elements of an output must not share memory: its strides of batch, tokens, heads "
         "and channels are " +
             std::to_string(out.batch_stride) + ", " + std::to_string(out.token_stride) + ", " +
             std::to_string(out.head_stride) + " and " + std::to_string(out.dim_stride));
}

using Bits = std::uint64_t;

// 0 when a tensor is as the plan wants it. Or and exclusive or: one branch however long the list.
inline Bits misfit(const RotaryPlanState& s, const Heads& h) noexcept {
  const Bits heads = s.heads == 1 ? 0 : static_cast<Bits>(h.heads ^ s.heads);
  return static_cast<Bits>(h.dim ^ s.spec.head_dim) | heads |
         static_cast<Bits>(h.batch | h.tokens | h.heads) >> 63 |
         (static_cast<Bits>(h.dtype) ^ static_cast<Bits>(s.dtype));
}
inline Bits differ(const Heads& a, const Heads& b) noexcept {
  return static_cast<Bits>((a.batch ^ b.batch) | (a.tokens ^ b.tokens) | (a.heads ^ b.heads));
}
[[gnu::noinline]] bool is_apart(const Heads& h) noexcept {
  const ViewAxis axes[] = {{h.batch, h.batch_stride},
                           {h.tokens, h.token_stride},
                           {h.heads, h.head_stride},
                           {h.dim, h.dim_stride}};
  return !shares_with_itself(axes, 4);
}
// No two elements are the same memory. Nearly every view is [batch, tokens, heads, dim] or [batch,
// heads, tokens, dim] with each stride behind all that lies below it; others are looked at closely.
inline bool no_element_twice(const Heads& h) noexcept {
  const bool dense = h.dim_stride == 1, single = h.batch == 1;
  const Index all_heads = h.heads * h.head_stride, all_tokens = h.tokens * h.token_stride;
  if (dense & (h.head_stride >= h.dim) & (h.token_stride >= all_heads) &
      (single | (h.batch_stride >= all_tokens)))
    return true;
  if (dense & (h.token_stride >= h.dim) & (h.head_stride >= all_tokens) &
      (single | (h.batch_stride >= all_heads)))
    return true;
  return is_apart(h);
}
inline void check_pair(const RotaryPlanState& s, const Heads& in, const Heads& out) {
  Bits odd = misfit(s, in);
  if (&in != &out) odd |= misfit(s, out) | differ(in, out) | Bits{out.data == nullptr};
  if (odd != 0 || !no_element_twice(out)) refuse_pair(s, in, out);
}

// In place is the very same view; any other overlap would read what was already turned.
void check_overlap(const Heads& in, const Heads& out, Index size) {
  if (in.data == out.data && one_shape(in, out)) return;
  if (overlap(in, out, size))
    refuse("rotary", "in and out must be the same view or not overlap at all");
}

[[gnu::noinline]] void check_separate(const QK& in, const QK& out, Index size) {
  if (in.q.data == out.q.data && in.k.data == out.k.data && one_shape(in.q, out.q) &&
      one_shape(in.k, out.k))
    return;
  check_overlap(in.q, out.q, size);
  check_overlap(in.k, out.k, size);
  if (overlap(in.k, out.q, size)) refuse("rotary", "the output of q must not overlap k");
  if (overlap(in.q, out.k, size)) refuse("rotary", "the output of k must not overlap q");
}

[[gnu::noinline]] void check_finite(const Positions& p) {
  for (std::int32_t a = 0; a < p.axes; ++a)
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 0; t < p.count; ++t) {
        const double x = static_cast<const double*>(
            p.data)[a * p.axis_stride + b * p.batch_stride + t * p.token_stride];
        if (!(std::fabs(x) <= 0x1p62))
          refuse_field("rotary", "positions", "must be finite and at most 2^62", x);
      }
}

// A decoder's call: q and k of one token, turned in place, whole heads one behind the other. What
// must be equal is 0, what must not be negative has no highest bit: one branch, for beside a kernel
// of one token each nanosecond shows. Unsigned, since the strides of a single token may be
// anything.
struct Misfits {
  Bits unequal = 0, negative = 0;
};
// Returns the bytes from the first channel to behind the last.
inline Bits one_token(const RotaryPlanState& s, const Heads& h, Misfits& odd) noexcept {
  const Bits heads = static_cast<Bits>(h.heads), stride = static_cast<Bits>(h.head_stride);
  odd.unequal |= static_cast<Bits>((h.dim ^ s.spec.head_dim) | (h.dim_stride ^ 1) | (h.batch ^ 1) |
                                   (h.tokens ^ 1)) |
                 (static_cast<Bits>(h.dtype) ^ static_cast<Bits>(s.dtype)) |
                 Bits{h.data == nullptr};
  odd.negative |= (stride - static_cast<Bits>(h.dim)) | (heads - 1);
  // The stride of a single head may be anything too.
  return ((heads - 1) * stride + static_cast<Bits>(h.dim)) * static_cast<Bits>(s.element_size);
}
inline bool decodes(const RotaryPlanState& s, const QK& x) noexcept {
  Misfits odd;
  const Bits q_bytes = one_token(s, x.q, odd), k_bytes = one_token(s, x.k, odd);
  const auto q = reinterpret_cast<std::uintptr_t>(x.q.data);
  const auto k = reinterpret_cast<std::uintptr_t>(x.k.data);
  const bool apart = q < k ? k - q >= q_bytes : q - k >= k_bytes;
  return (odd.unequal == 0) & (odd.negative >> 63 == 0) & apart & (s.heads == 1);
}

bool writes(const Heads& h) noexcept {
  return h.data != nullptr && h.batch > 0 && h.tokens > 0 && h.heads > 0;
}

// A member that says nothing of itself is not there; one without elements may have no memory.
template <class Data>
bool is_given(const BasicHeads<Data>& h) noexcept {
  return h.data != nullptr || h.dim != 0;
}
template <class Data>
void check_given(const BasicQK<Data>& in) {
  if (!is_given(in.q) && !is_given(in.k)) refuse("rotary", "q or k must be given");
  for (const bool key : {false, true}) {
    const auto& h = key ? in.k : in.q;
    if (h.data == nullptr && is_given(h) && h.batch * h.tokens * h.heads != 0)
      refuse_field("rotary", key ? "k" : "q",
                   "must have memory for its elements, " + shape_text(h));
  }
}

[[gnu::noinline]] Index check_any_tensors(const RotaryPlanState& s, const QK& in, const QK& out) {
  check_given(in);
  const bool q = in.q.data != nullptr, k = in.k.data != nullptr;
  const bool lone_q = !q && writes(out.q), lone_k = !k && writes(out.k);
  if (lone_q || lone_k)
    refuse("rotary", "an output must have an input; its memory is null", lone_q ? "q" : "k");
  if (q) check_pair(s, in.q, out.q);
  if (k) check_pair(s, in.k, out.k);
  if (!q && !k) return 0;
  const Heads& h = q ? in.q : in.k;
  if (q && k && in.k.batch != h.batch)
    wrong("k", "must have the batch of q, " + std::to_string(h.batch), in.k.batch);
  if (q && k && in.k.tokens != h.tokens)
    wrong("k", "must have the tokens of q, " + std::to_string(h.tokens), in.k.tokens);
  const Index tokens = h.batch * h.tokens;
  if (tokens == 0) return 0;
  const Index size = s.element_size;
  const bool some_q = q && in.q.heads > 0, some_k = k && in.k.heads > 0;
  if (some_q && some_k) {
    if (overlap(out.q, out.k, size)) refuse("rotary", "q and k must not overlap");
    if (&in != &out) check_separate(in, out, size);
  } else if (&in == &out) {
    return some_q || some_k ? tokens : 0;
  } else if (some_q) {
    check_overlap(in.q, out.q, size);
  } else if (some_k) {
    check_overlap(in.k, out.k, size);
  }
  return some_q || some_k ? tokens : 0;
}

[[gnu::noinline]] const Positions& check_any_positions(const RotaryPlanState& s, const QK& in,
                                                       const Positions& p,
                                                       std::optional<Positions>& one_row) {
  const Heads& h = in.q.data != nullptr ? in.q : in.k;
  if (h.data == nullptr) return p;
  if (p.count != h.tokens)
    wrong("positions", "must be one for each of the " + std::to_string(h.tokens) + " tokens",
          p.count);
  if (p.axes != s.axes) wrong("positions", "must have " + detail::axes_text(s.axes), Index{p.axes});
  if (p.batch != h.batch && p.batch != 1)
    wrong("positions",
          "must have one row, or one for each of the batch of " + std::to_string(h.batch), p.batch);
  if (p.type != DType::i64 && p.type != DType::i32 && p.type != DType::f64)
    refuse_field("rotary", "positions", "must be i64, i32 or f64", dtype_name(p.type));
  if (p.count == 0 || h.batch == 0) return p;
  if (p.data == nullptr) refuse_field("rotary", "positions", "must have memory");
  if (p.type == DType::f64) check_finite(p);
  return one_row.emplace(shared_row(p));
}
}  // namespace

Index check_tensors(const RotaryPlanState& s, const QK& in, const QK& out) {
  if (&in == &out && decodes(s, in)) return 1;
  return check_any_tensors(s, in, out);
}

void check_positions_apart(const QK& out, const Positions& p, Index tokens) {
  if (tokens > 1)
    check_positions_apart(
        "rotary", p,
        {{"the output of q", memory_of(out.q)}, {"the output of k", memory_of(out.k)}});
}

namespace {

// Of views that run forward, as nearly all do; others are looked at closely.
inline bool ends_before(const void* a, Index last, Index size, const void* b) noexcept {
  return reinterpret_cast<std::uintptr_t>(a) + static_cast<std::uintptr_t>((last + 1) * size) <=
         reinterpret_cast<std::uintptr_t>(b);
}
[[gnu::noinline]] void check_rows_closely(const Heads& out, const ConstTensorView& rows,
                                          std::string_view name, std::string_view what) {
  detail::check_separate("rotary", {name, memory_of(rows)}, {what, memory_of(out)});
}

}  // namespace

void check_rows_apart(const QK& out, const ConstTensorView& rows, std::string_view name) {
  Index last = 0, backwards = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows.rank); ++i)
    last += (rows.shape[i] - 1) * rows.stride[i], backwards |= rows.stride[i];
  const Index size = size_of(rows.dtype);
  for (const bool keys : {false, true}) {
    const Heads& h = keys ? out.k : out.q;
    if (!writes(h)) continue;
    const Index end = (h.batch - 1) * h.batch_stride + (h.tokens - 1) * h.token_stride +
                      (h.heads - 1) * h.head_stride + (h.dim - 1) * h.dim_stride;
    const bool forward =
        (backwards | h.batch_stride | h.token_stride | h.head_stride | h.dim_stride) >= 0;
    if (forward && (ends_before(rows.data, last, size, h.data) ||
                    ends_before(h.data, end, size_of(h.dtype), rows.data)))
      continue;
    check_rows_closely(h, rows, name, keys ? "the output of k" : "the output of q");
  }
}

const Positions& check_positions(const RotaryPlanState& s, const QK& in, const Positions& p,
                                 std::optional<Positions>& one_row) {
  const Bits odd = static_cast<Bits>((p.count ^ in.q.tokens) | (p.batch ^ in.q.batch) |
                                     (Index{p.axes} ^ s.axes)) |
                   (static_cast<Bits>(p.type) ^ static_cast<Bits>(DType::i64));
  if (odd != 0 || p.data == nullptr || in.q.data == nullptr)
    return check_any_positions(s, in, p, one_row);
  return p;
}

void check_gradient_tensors(const RotaryPlanState& s, const ConstQK& x, const ConstQK& g) {
  check_given(x);
  for (const bool key : {false, true}) {
    const ConstHeads &a = key ? x.k : x.q, &b = key ? g.k : g.q;
    if (a.data == nullptr) continue;
    if (b.data == nullptr) refuse_field("rotary", "d_out", "must have memory where x has");
    if (a.dtype != s.dtype || b.dtype != s.dtype)
      refuse_field("rotary", "tensors",
                   "must be of the plan's dtype " + std::string(dtype_name(s.dtype)),
                   dtype_name(a.dtype != s.dtype ? a.dtype : b.dtype));
    if (a.dim != s.spec.head_dim || b.dim != s.spec.head_dim)
      refuse("rotary", "head size must be the plan's " + std::to_string(s.spec.head_dim),
             a.dim != s.spec.head_dim ? a.dim : b.dim);
    if (a.batch != b.batch || a.tokens != b.tokens || a.heads != b.heads)
      refuse_shape("rotary", "d_out", "must have the shape of x, " + shape_text(a), shape_text(b));
  }
  if (x.q.data && x.k.data && (x.q.tokens != x.k.tokens || x.q.batch != x.k.batch))
    refuse("rotary", "q and k must have the same batch and tokens, k has tokens", x.k.tokens);
}

}  // namespace posenc::v0::detail
