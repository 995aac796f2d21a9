// SPDX-License-Identifier: Apache-2.0
#include "attention/check_term.h"
#include "core/shape.h"

#include <algorithm>
#include <cmath>

#include "core/element.h"
#include "core/known_enum.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kWho = "attention";

bool fits(const ConstTensorView& v, std::initializer_list<Index> shape) {
  if (v.rank != static_cast<std::int32_t>(shape.size())) return false;
  std::size_t a = 0;
  for (const Index want : shape) {
    const Index got = v.shape[a++];
    if (want == -1) continue;
    if (want >= kOneOr ? got != 1 && got != want - kOneOr : got != want) return false;
  }
  return true;
}

void check_shape(const ConstTensorView& v, std::initializer_list<Index> shape,
                 const std::string& what) {
  if (v.device != Device::cpu) refuse(kWho, what + " must be in the CPU's memory");
  if (!fits(v, shape)) {
    std::string got;
    for (std::int32_t a = 0; a < v.rank; ++a)
      got += (a > 0 ? " x " : "") + std::to_string(v.shape[static_cast<std::size_t>(a)]);
    refuse(kWho, what + " must fit the shapes of the call", got);
  }
}

void needs(const ConstTensorView& v, std::initializer_list<Index> shape, const std::string& what) {
  if (v.empty()) refuse(kWho, what + " must be given");
  check_real(v, shape, what);
}

// The rows that the lines and the pair of a term can give lie inside its table of n rows.
void check_rows(const AttentionArgs& a, const Term& t, Index n, const std::string& what) {
  Index largest = 0;
  bool any = false;
  for (const IndexLine& line : t.lines) {
    if (line.row == nullptr) continue;
    any = true;
    if (line.lo > line.hi) refuse(kWho, what + "line must have lo at most hi", line.lo);
    needs_axis(a, line.axis, true, what + "line");
    largest += std::max<Index>(0, *std::max_element(line.row, line.row + (line.hi - line.lo + 1)));
  }
  if (t.pair.row != nullptr) {
    any = true;
    const IndexPair& p = t.pair;
    const Index b = a.qk.q.batch;
    if (p.query_classes < 1 || p.key_classes < 1)
      refuse(kWho, what + "pair must have classes", p.query_classes);
    largest +=
        std::max<Index>(0, *std::max_element(p.row, p.row + p.query_classes * p.key_classes));
    if (p.query_class.empty() || p.key_class.empty())
      refuse(kWho, what + "pair must have the classes of queries and keys");
    check_integer(p.query_class, {kOneOr + b, a.qk.q.tokens}, what + "query_class");
    check_integer(p.key_class, {kOneOr + b, a.qk.k.tokens}, what + "key_class");
    const auto inside = [&](const ConstTensorView& v, Index classes) {
      for (Index i = 0; i < v.shape[0]; ++i)
        for (Index j = 0; j < v.shape[1]; ++j) {
          const Index c =
              detail::integer_element(v.data, v.dtype, i * v.stride[0] + j * v.stride[1]);
          if (c < 0 || c >= classes) refuse(kWho, what + "class must lie below the classes", c);
        }
    };
    inside(p.query_class, p.query_classes);
    inside(p.key_class, p.key_classes);
  }
  if (!any) refuse(kWho, what + "must have a line or a pair that picks its rows");
  if (largest >= n) refuse(kWho, what + "rows must lie inside its table, row", largest);
}

void check_fire(const AttentionArgs& a, const Term& t, const std::string& what) {
  const Index h = a.qk.q.heads;
  needs(t.table, {2, -1}, what + "table");
  needs(t.table2, {h, t.table.shape[1] + 1}, what + "table2");
  needs(t.table3, {2}, what + "table3");
  if (!std::isfinite(t.epsilon) || t.epsilon < 0)
    refuse(kWho, what + "epsilon must be finite and not negative", t.epsilon);
  needs_axis(a, t.axis, false, what);
}

void check_cope(const AttentionArgs& a, const Term& t, const std::string& what) {
  const Index h = a.qk.q.heads;
  needs(t.table, {kOneOr + h, -1, a.qk.q.dim}, what + "table");
  if (t.table.shape[1] < 1) refuse(kWho, what + "table must have rows", t.table.shape[1]);
  if (!std::isfinite(t.gate_scale)) refuse(kWho, what + "gate_scale must be finite", t.gate_scale);
  const ConstHeads& g = t.gate_key;
  if (g.data == nullptr) return;
  if (g.batch != a.qk.k.batch || g.tokens != a.qk.k.tokens || g.heads != a.qk.k.heads ||
      g.dim != a.qk.q.dim || g.dtype != a.qk.q.dtype)
    detail::refuse_shape(kWho,
                         what + "gate_key must be like k, " + detail::shape_text(a.qk.k) + " of " +
                             std::string(dtype_name(a.qk.q.dtype)),
                         detail::shape_text(g) + " of " + std::string(dtype_name(g.dtype)));
}

void check_dape(const AttentionArgs& a, std::size_t number, const std::string& what) {
  const Term& t = a.terms[number];
  const Index h = a.qk.q.heads;
  if (number + 1 != a.terms.size())
    refuse(kWho, what + "must be the last term, at most one, number", static_cast<Index>(number));
  needs(t.table, {-1, -1, -1}, what + "table");
  const Index width = t.table.shape[0], channels = t.table.shape[1], kernel = t.table.shape[2];
  if (channels != h && channels != 2 * h)
    refuse(kWho, what + "table must have H or 2 H channels", channels);
  if (kernel < 1 || kernel % 2 == 0) refuse(kWho, what + "kernel must be odd", kernel);
  needs(t.table2, {h, width, kernel}, what + "table2");
  needs(t.table3, {width + h}, what + "table3");
}

}  // namespace

void check_real(const ConstTensorView& v, std::initializer_list<Index> shape,
                const std::string& what) {
  if (v.empty()) return;
  if (v.dtype != DType::f64 && v.dtype != DType::f32)
    refuse(kWho, what + " must be f64 or f32", dtype_name(v.dtype));
  check_shape(v, shape, what);
}

void check_integer(const ConstTensorView& v, std::initializer_list<Index> shape,
                   const std::string& what) {
  if (v.empty()) return;
  if (v.dtype != DType::i64 && v.dtype != DType::i32)
    refuse(kWho, what + " must be i64 or i32", dtype_name(v.dtype));
  check_shape(v, shape, what);
}

void check_flags(const ConstTensorView& v, std::initializer_list<Index> shape,
                 const std::string& what) {
  if (v.empty()) return;
  if (v.dtype != DType::u8) refuse(kWho, what + " must be u8", dtype_name(v.dtype));
  check_shape(v, shape, what);
}

void check_pairs(const ConstTensorView& v, const AttentionArgs& a, bool flags,
                 const std::string& what) {
  if (v.empty()) return;
  const Index b = kOneOr + a.qk.q.batch, h = kOneOr + a.qk.q.heads;
  const Index tq = a.qk.q.tokens, tk = a.qk.k.tokens;
  const auto one = [&](std::initializer_list<Index> shape) {
    if (flags)
      check_flags(v, shape, what);
    else
      check_real(v, shape, what);
  };
  if (v.rank == 2)
    one({tq, tk});
  else if (v.rank == 3)
    one({h, tq, tk});
  else
    one({b, h, tq, tk});
}

void needs_axis(const AttentionArgs& a, std::int32_t axis, bool integer, const std::string& who) {
  for (const Positions* p : {&a.query_positions, &a.key_positions}) {
    if (p->data == nullptr && (p == &a.query_positions ? a.qk.q : a.qk.k).tokens > 0)
      refuse(kWho, who + " needs the positions of queries and keys");
    if (axis < 0 || axis >= p->axes)
      refuse(kWho, who + " must have an axis of the positions", Index{axis});
    if (integer && p->type == DType::f64)
      refuse(kWho, who + " needs integer positions", dtype_name(p->type));
  }
}

void check_term(const AttentionArgs& a, std::size_t number) {
  const Term& t = a.terms[number];
  detail::check_known(kWho, "the kind of a term", t.kind);
  const std::string what = "term " + std::string(enum_text(t.kind)) + " ";
  const Index b = kOneOr + a.qk.q.batch, h = kOneOr + a.qk.q.heads, d = a.qk.q.dim;
  if (!std::isfinite(t.scale)) refuse(kWho, what + "scale must be finite", t.scale);
  switch (t.kind) {
    case TermKind::linear:
      needs(t.table, {h, 2}, what + "table");
      return needs_axis(a, t.axis, false, what);
    case TermKind::line:
    case TermKind::multiply_line:
      needs(t.table, {h, -1}, what + "table");
      return check_rows(a, t, t.table.shape[1], what);
    case TermKind::vectors:
      if (t.table.empty() && t.table2.empty()) refuse(kWho, what + "must have a table");
      check_real(t.table, {b, h, a.qk.k.tokens}, what + "table");
      return check_real(t.table2, {b, h, a.qk.q.tokens}, what + "table2");
    case TermKind::extra_channels:
      needs(t.table, {b, a.qk.q.tokens, h, -1}, what + "table");
      return needs(t.table2, {b, a.qk.k.tokens, h, t.table.shape[3]}, what + "table2");
    case TermKind::query_bias:
      return needs(t.query_bias, {h, d}, what + "query_bias");
    case TermKind::query_rows:
      check_real(t.query_bias, {h, d}, what + "query_bias");
      [[fallthrough]];
    case TermKind::key_rows:
      needs(t.table, {h, -1, d}, what + "table");
      return check_rows(a, t, t.table.shape[1], what);
    case TermKind::value_rows:
      needs(t.table, {h, -1, a.v.dim}, what + "table");
      return check_rows(a, t, t.table.shape[1], what);
    case TermKind::fire:
      return check_fire(a, t, what);
    case TermKind::cope:
      return check_cope(a, t, what);
    case TermKind::dape:
      return check_dape(a, number, what);
  }
}

}  // namespace posenc::v0
