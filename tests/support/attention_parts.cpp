// SPDX-License-Identifier: Apache-2.0
#include "support/attention_parts.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "posenc/positions/sequence.h"

namespace posenc::support {
namespace {

double load(const void* data, DType t, Index at) {
  switch (t) {
    case DType::f64:
      return static_cast<const double*>(data)[at];
    case DType::f32:
      return static_cast<const float*>(data)[at];
    case DType::i64:
      return static_cast<double>(static_cast<const Index*>(data)[at]);
    case DType::i32:
      return static_cast<const std::int32_t*>(data)[at];
    case DType::u8:
      return static_cast<const std::uint8_t*>(data)[at];
    default:
      throw std::runtime_error("attention reference: f64 and f32 only");
  }
}
void store(void* data, DType t, Index at, double x) {
  if (t == DType::f64)
    static_cast<double*>(data)[at] = x;
  else if (t == DType::f32)
    static_cast<float*>(data)[at] = static_cast<float>(x);
  else
    throw std::runtime_error("attention reference: f64 and f32 only");
}

Index offset(const ConstHeads& x, Index b, Index t, Index h, Index d) {
  return b * x.batch_stride + t * x.token_stride + h * x.head_stride + d * x.dim_stride;
}
Index offset(const ConstTensorView& v, std::initializer_list<Index> at) {
  Index r = 0;
  std::size_t a = 0;
  for (const Index i : at) {
    if (v.shape[a] != 1) r += i * v.stride[a];
    ++a;
  }
  return r;
}

Index integer(const ConstTensorView& v, std::initializer_list<Index> at) {
  return v.dtype == DType::i64 ? static_cast<const Index*>(v.data)[offset(v, at)]
                               : static_cast<const std::int32_t*>(v.data)[offset(v, at)];
}

Index position(const Positions& p, std::int32_t axis, Index b, Index t) {
  return integer_position_at(p, axis, p.batch == 1 ? 0 : b, t);
}

Index floor_division(Index a, Index n) {
  Index r = a / n;
  if (a % n != 0 && a < 0) --r;
  return r;
}

// Which sequence token t is in, and its boundaries.
struct Sequence {
  Index number, begin, end;
};
Sequence sequence_of(const ConstTensorView& cu, Index t) {
  Index s = 0;
  while (integer(cu, {s + 1}) <= t) ++s;
  return {s, integer(cu, {s}), integer(cu, {s + 1})};
}

}  // namespace

double get(const ConstHeads& x, Index b, Index t, Index h, Index d) {
  return load(x.data, x.dtype, offset(x, b, t, h, d));
}
void put(const Heads& x, Index b, Index t, Index h, Index d, double y) {
  store(x.data, x.dtype, offset(x, b, t, h, d), y);
}
void add(const Heads& x, Index b, Index t, Index h, Index d, double y) {
  if (x.data != nullptr) put(x, b, t, h, d, get(x, b, t, h, d) + y);
}
double get(const ConstTensorView& v, std::initializer_list<Index> at, double none) {
  return v.empty() ? none : load(v.data, v.dtype, offset(v, at));
}
void put(const TensorView& v, std::initializer_list<Index> at, double x) {
  if (!v.empty()) store(v.data, v.dtype, offset(v, at), x);
}
void add(const TensorView& v, std::initializer_list<Index> at, double x) {
  if (!v.empty()) put(v, at, get(v, at) + x);
}
double get_pair(const ConstTensorView& v, Index b, Index h, Index i, Index j, double none) {
  if (v.rank == 2) return get(v, {i, j}, none);
  if (v.rank == 3) return get(v, {h, i, j}, none);
  return get(v, {b, h, i, j}, none);
}
void add_pair(const TensorView& v, Index b, Index h, Index i, Index j, double x) {
  if (v.rank == 2) return add(v, {i, j}, x);
  if (v.rank == 3) return add(v, {h, i, j}, x);
  add(v, {b, h, i, j}, x);
}

Sizes::Sizes(const AttentionArgs& a)
    : B(a.qk.q.batch),
      H(a.qk.q.heads),
      Q(a.qk.q.tokens),
      K(a.qk.k.tokens),
      D(a.qk.q.dim),
      V(a.v.dim),
      group(a.qk.k.heads > 0 ? a.qk.q.heads / a.qk.k.heads : 1) {}

bool visible(const AttentionArgs& a, Index b, Index h, Index i, Index j) {
  const Mask& m = a.mask;
  Index qo = m.query_offset + i, ko = j;
  if (!m.query_order.empty()) {
    qo = integer(m.query_order, {b, i});
    ko = integer(m.key_order, {b, j});
  }
  if (!m.query_cu_seqlens.empty()) {
    const Sequence q = sequence_of(m.query_cu_seqlens, i), k = sequence_of(m.key_cu_seqlens, j);
    if (q.number != k.number) return false;
    qo = i - q.begin + (k.end - k.begin) - (q.end - q.begin) + m.query_offset;
    ko = j - k.begin;
  }
  if (m.causal && ko > qo && ko >= m.prefix) return false;
  if (m.window_left != kUnbounded && qo - ko > m.window_left && ko >= m.sink_tokens) return false;
  if (m.window_right != kUnbounded && ko - qo > m.window_right && ko >= m.sink_tokens) return false;
  if (m.chunk > 0) {
    const Index origin = m.chunk_origin.empty() ? 0 : integer(m.chunk_origin, {b, h});
    if (floor_division(qo - origin, m.chunk) != floor_division(ko - origin, m.chunk)) return false;
  }
  if (!m.query_document.empty() &&
      integer(m.query_document, {b, i}) != integer(m.key_document, {b, j}))
    return false;
  if (!m.key_length.empty() && j >= integer(m.key_length, {b})) return false;
  if (get(m.key_visible, {b, j}, 1) == 0) return false;
  if (get_pair(m.visible, b, h, i, j, 1) == 0) return false;
  return get_pair(m.bias, b, h, i, j, 0) != -HUGE_VAL;
}

int region_of(const AttentionArgs& a, Index b, Index i, Index j) {
  for (std::size_t r = 0; r < a.regions.size(); ++r) {
    const ScoreRegion& s = a.regions[r];
    const Index ahead = floor_division(position(a.query_positions, s.axis, b, i), s.chunk) -
                        floor_division(position(a.key_positions, s.axis, b, j), s.chunk);
    if (ahead >= s.low && ahead <= s.high) return static_cast<int>(r);
  }
  return -1;
}

Index row_of(const AttentionArgs& a, const Term& t, Index b, Index i, Index j) {
  Index row = 0;
  for (const IndexLine& line : t.lines) {
    if (line.row == nullptr) continue;
    const Index delta =
        position(a.query_positions, line.axis, b, i) - position(a.key_positions, line.axis, b, j);
    const Index r = line.row[std::clamp(delta, line.lo, line.hi) - line.lo];
    if (r < 0) return -1;
    row += r;
  }
  if (t.pair.row != nullptr) {
    const Index r = t.pair.row[integer(t.pair.query_class, {b, i}) * t.pair.key_classes +
                               integer(t.pair.key_class, {b, j})];
    if (r < 0) return -1;
    row += r;
  }
  return row;
}

}  // namespace posenc::support
