// SPDX-License-Identifier: Apache-2.0
#include "attention/exact/call_view.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/element.h"
#include "core/extent.h"
#include "core/memory_limit.h"

namespace posenc::inline v0::detail {
namespace {

Numbers tiles_of(const Numbers& x, Index slabs, Index tokens, Index channels) {
  const Index size = tiles_size(tokens, channels);
  Numbers tiles(static_cast<std::size_t>(slabs * size));
  for (Index s = 0; s < slabs; ++s)
    make_tiles(x.data() + s * tokens * channels, tokens, channels, tiles.data() + s * size);
  return tiles;
}

Numbers mix_of(const ConstTensorView& v) {
  Numbers x;
  for (Index h = 0; !v.empty() && h < v.shape[0]; ++h)
    for (Index g = 0; g < v.shape[1]; ++g) x.push_back(number(v, h, g));
  return x;
}

bool is_whole(const Positions& p) {
  return p.type != DType::f64;
}

// What one axis of positions holds, as doubles and, where they are integers, as those.
void read_axis(const Positions& p, std::int32_t axis, std::vector<Index>& whole, Numbers& real) {
  for (Index b = 0; b < p.batch; ++b)
    for (Index t = 0; t < p.count; ++t) {
      if (is_whole(p)) whole.push_back(integer_position(p, axis, b, t));
      real.push_back(real_position(p, axis, b, t));
    }
}

bool counts_up(const AxisView& a) {
  for (Index r = 0; r < a.key_rows; ++r)
    for (Index j = 1; j < a.keys; ++j)
      if (static_cast<std::uint64_t>(a.key_whole[a.key_at(r, j)]) !=
          static_cast<std::uint64_t>(a.key_whole[a.key_at(r, j - 1)]) + 1)
        return false;
  return true;
}

// The copies that a call makes of q, k and v, k twice and v twice in a backward pass.
void check_copies(const CallView& c, bool backward) {
  Index bytes = 0;
  for (const Index n :
       {saturated_product({c.B, c.H, c.Tq, c.D, 8}), saturated_product({c.R, c.G, c.Tk, c.D, 16}),
        saturated_product({c.R, c.G, c.Tk, c.V, backward ? 16 : 8})})
    if (__builtin_add_overflow(bytes, n, &bytes)) bytes = std::numeric_limits<Index>::max();
  check_memory("attention", "q, k and v in double", static_cast<std::size_t>(bytes));
}

bool scans(const AttentionArgs& a) {
  if (a.normalisation != Normalisation::softmax) return true;
  for (const Term& t : a.terms)
    if (t.kind == TermKind::gates || t.kind == TermKind::score_mlp) return true;
  return false;
}

}  // namespace

double AxisView::delta(Index b, Index i, Index r, Index j) const noexcept {
  const std::size_t q = query_at(b, i), k = key_at(r, j);
  Index difference = 0;
  if (whole && !__builtin_sub_overflow(query_whole[q], key_whole[k], &difference))
    return static_cast<double>(difference);
  return query[q] - key[k];
}

CallView::CallView(const AttentionArgs& a, bool backward, const Executor& executor)
    : OrderView(a),
      B(a.q.batch),
      R(a.block_table.empty() ? a.q.batch : a.block_table.shape[0]),
      H(a.q.heads),
      G(a.k.heads),
      D(a.q.dim),
      V(a.v.dim) {
  check_copies(*this, backward);
  read_axes();
  q = by_heads(a.q);
  load_keys(*this);
  run_stages(*this, backward, executor);
  k_tiles = tiles_of(k, R * G, Tk, D);
  if (backward) v_tiles = tiles_of(v, R * G, Tk, V);
  for (const Term& t : a.terms) terms.push_back(view_of(*this, t));
  for (const ScoreRegion& r : a.regions)
    regions.push_back({by_heads(r.qk.q), by_heads(r.qk.k), r.qk.k.heads});
  mix_before = mix_of(a.mix_before);
  mix_after = mix_of(a.mix_after);
  all_heads = !mix_before.empty() || !mix_after.empty() ||
              (!a.terms.empty() && a.terms.back().kind == TermKind::score_mlp);
  by_order = scans(a);
}

void CallView::read_axes() {
  const Positions &p = args.query_positions, &k_p = args.key_positions;
  if (p.data == nullptr && k_p.data == nullptr) return;
  axes.resize(static_cast<std::size_t>(std::min(p.axes, k_p.axes)));
  std::int32_t n = 0;
  for (AxisView& a : axes) {
    a.whole = is_whole(p) && is_whole(k_p);
    a.query_rows = p.batch;
    a.key_rows = k_p.batch;
    a.queries = p.data == nullptr ? 0 : p.count;
    a.keys = k_p.data == nullptr ? 0 : k_p.count;
    if (p.data != nullptr) read_axis(p, n, a.query_whole, a.query);
    if (k_p.data != nullptr) read_axis(k_p, n, a.key_whole, a.key);
    a.consecutive = a.whole && a.queries > 0 && a.keys > 0 && counts_up(a);
    ++n;
  }
}

double CallView::factor(Index b, Index i) const noexcept {
  return args.query_factor.empty() ? 1 : number(args.query_factor, b, i);
}
double CallView::head_scale(Index b, Index h) const noexcept {
  return args.head_scale.empty() ? 1 : number(args.head_scale, b, h);
}

std::int32_t CallView::region_of(Index b, Index i, Index r, Index j) const noexcept {
  std::int32_t n = 0;
  for (const ScoreRegion& s : args.regions) {
    const AxisView& a = axes[static_cast<std::size_t>(s.axis)];
    const std::size_t at_q = a.query_at(b, i), at_k = a.key_at(r, j);
    Index ahead = 0;
    if (a.whole && !__builtin_sub_overflow(floor_divide(a.query_whole[at_q], s.chunk),
                                           floor_divide(a.key_whole[at_k], s.chunk), &ahead)) {
      if (ahead >= s.low && ahead <= s.high) return n;
    } else {
      const auto chunk = static_cast<double>(s.chunk);
      const auto part = [&](const auto& x) { return std::floor(static_cast<double>(x) / chunk); };
      const double far = a.whole ? part(a.query_whole[at_q]) - part(a.key_whole[at_k])
                                 : part(a.query[at_q]) - part(a.key[at_k]);
      if (far >= static_cast<double>(s.low) && far <= static_cast<double>(s.high)) return n;
    }
    ++n;
  }
  return -1;
}

}  // namespace posenc::v0::detail
