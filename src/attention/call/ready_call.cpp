// SPDX-License-Identifier: Apache-2.0
#include "attention/call/ready_call.h"

#include <algorithm>
#include <cmath>

#include "core/element.h"
#include "core/q8_0.h"

namespace posenc::inline v0::detail {
namespace {

bool is_whole(const Positions& p) {
  return p.type != DType::f64;
}

// What one axis of positions holds, as doubles and, where they are integers, as those.
void read_axis(const Positions& p, std::int32_t axis, CallArena& arena,
               std::span<const Index>& whole, std::span<const double>& real) {
  const Index count = p.batch * p.count;
  const std::span<Index> x = arena.objects<Index>(is_whole(p) ? count : 0);
  const std::span<double> y = arena.objects<double>(count);
  std::size_t n = 0;
  for (Index b = 0; b < p.batch; ++b)
    for (Index t = 0; t < p.count; ++t, ++n) {
      if (is_whole(p)) x[n] = integer_position(p, axis, b, t);
      y[n] = real_position(p, axis, b, t);
    }
  whole = x, real = y;
}

bool counts_up(const AxisView& a) {
  for (Index r = 0; r < a.key_rows; ++r)
    for (Index j = 1; j < a.keys; ++j)
      if (static_cast<std::uint64_t>(a.key_whole[a.key_at(r, j)]) !=
          static_cast<std::uint64_t>(a.key_whole[a.key_at(r, j - 1)]) + 1)
        return false;
  return true;
}

bool scans(const AttentionArgs& a) {
  if (a.normalisation != Normalisation::softmax) return true;
  for (const Term& t : a.terms)
    if (std::holds_alternative<GatesTerm>(t) || std::holds_alternative<ScoreMlpTerm>(t))
      return true;
  return false;
}

std::span<const AxisView> read_axes(const AttentionArgs& args, CallArena& arena) {
  const Positions &p = args.query_positions, &k_p = args.key_positions;
  if (p.data == nullptr && k_p.data == nullptr) return {};
  const std::span<AxisView> axes = arena.objects<AxisView>(std::min(p.axes, k_p.axes));
  std::int32_t n = 0;
  for (AxisView& a : axes) {
    a.whole = is_whole(p) && is_whole(k_p);
    a.query_rows = p.batch;
    a.key_rows = k_p.batch;
    a.queries = p.data == nullptr ? 0 : p.count;
    a.keys = k_p.data == nullptr ? 0 : k_p.count;
    if (p.data != nullptr) read_axis(p, n, arena, a.query_whole, a.query);
    if (k_p.data != nullptr) read_axis(k_p, n, arena, a.key_whole, a.key);
    a.consecutive = a.whole && a.queries > 0 && a.keys > 0 && counts_up(a);
    ++n;
  }
  return axes;
}

}  // namespace

double AxisView::delta(Index b, Index i, Index r, Index j) const noexcept {
  const std::size_t q = query_at(b, i), k = key_at(r, j);
  Index difference = 0;
  if (whole && !__builtin_sub_overflow(query_whole[q], key_whole[k], &difference))
    return static_cast<double>(difference);
  return query[q] - key[k];
}

ReadyCall::ReadyCall(const AttentionArgs& a, CallArena& arena)
    : OrderView(a, arena),
      B(a.q.batch),
      R(a.block_table.empty() ? a.q.batch : a.block_table.shape[0]),
      H(a.q.heads),
      G(a.k.heads),
      D(a.q.dim),
      V(head_size(a.v)),
      given_k(by_numbers(a.k)),
      given_v(by_numbers(a.v)),
      axes(read_axes(a, arena)) {
  all_heads = !a.mix_before.empty() || !a.mix_after.empty() ||
              (!a.terms.empty() && std::holds_alternative<ScoreMlpTerm>(a.terms.back()));
  by_order = scans(a);
}

double ReadyCall::factor(Index b, Index i) const noexcept {
  return args.query_factor.empty() ? 1 : read_number(args.query_factor, b, i);
}
double ReadyCall::head_scale(Index b, Index h) const noexcept {
  return args.head_scale.empty() ? 1 : read_number(args.head_scale, b, h);
}

bool ReadyCall::is_in_region(std::size_t n, Index b, Index i, Index r, Index j) const noexcept {
  const ScoreRegion& s = args.regions[n];
  const AxisView& a = axes[static_cast<std::size_t>(s.axis)];
  const std::size_t at_q = a.query_at(b, i), at_k = a.key_at(r, j);
  Index ahead = 0;
  if (a.whole && !__builtin_sub_overflow(floor_divide(a.query_whole[at_q], s.chunk),
                                         floor_divide(a.key_whole[at_k], s.chunk), &ahead))
    return ahead >= s.low && ahead <= s.high;
  const auto chunk = static_cast<double>(s.chunk);
  const auto chunk_of = [&](const auto& x) { return std::floor(static_cast<double>(x) / chunk); };
  const double far = a.whole ? chunk_of(a.query_whole[at_q]) - chunk_of(a.key_whole[at_k])
                             : chunk_of(a.query[at_q]) - chunk_of(a.key[at_k]);
  return far >= static_cast<double>(s.low) && far <= static_cast<double>(s.high);
}

std::int32_t ReadyCall::region_of(Index b, Index i, Index r, Index j) const noexcept {
  for (std::size_t n = 0; n < args.regions.size(); ++n)
    if (is_in_region(n, b, i, r, j)) return static_cast<std::int32_t>(n);
  return -1;
}

std::optional<WholeDistances> consecutive_distances(const ReadyCall& c,
                                                    std::int32_t number) noexcept {
  if (c.Tq == 0 || c.Tk == 0 || !c.axes[static_cast<std::size_t>(number)].consecutive) return {};
  return whole_distances(c, number);
}

std::optional<WholeDistances> whole_distances(const ReadyCall& c, std::int32_t number) noexcept {
  if (c.Tq == 0 || c.Tk == 0) return {};
  const AxisView& axis = c.axes[static_cast<std::size_t>(number)];
  if (!axis.whole || axis.query_whole.empty() || axis.key_whole.empty()) return {};
  const auto [q_low, q_high] =
      std::minmax_element(axis.query_whole.begin(), axis.query_whole.end());
  const auto [k_low, k_high] = std::minmax_element(axis.key_whole.begin(), axis.key_whole.end());
  // Loops over the distances go one beyond both ends.
  constexpr Index most = Index{1} << 62;
  WholeDistances d;
  if (__builtin_sub_overflow(*q_low, *k_high, &d.low) ||
      __builtin_sub_overflow(*q_high, *k_low, &d.high) || d.low < -most || d.high > most ||
      d.high - d.low > 8 * (c.Tq + c.Tk) + 64)
    return {};
  return d;
}

}  // namespace posenc::v0::detail
