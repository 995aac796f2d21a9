// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/grid.h"

#include <algorithm>
#include <cmath>

#include "posenc/positions/sequence.h"
#include "posenc/positions/shard.h"
#include "positions/exact.h"

namespace posenc::inline v0 {
namespace {

constexpr std::size_t kMaxAxes = 8;

Index tokens_of(std::span<const Index> shape, std::string_view who) {
  if (shape.empty() || shape.size() > kMaxAxes)
    refuse(who, "a grid must have 1 to 8 axes", static_cast<Index>(shape.size()));
  Index n = 1;
  for (const Index s : shape) {
    if (s < 0) refuse_field(who, "sizes", "must not be negative", s);
    if (s > 0 && n > kMaxTokens / s) refuse(who, "a grid must have at most 2^40 tokens", s);
    n *= s;
  }
  return n;
}

// [axis][token] of coordinate(axis, index), the last axis fastest.
template <class T, class F>
OwnedPositions coordinates(std::span<const Index> shape, Index tokens, const F& coordinate) {
  std::vector<T> v;
  v.reserve(static_cast<std::size_t>(tokens) * shape.size());
  for (std::size_t a = 0; a < shape.size(); ++a) {
    Index inner = 1;
    for (std::size_t i = a + 1; i < shape.size(); ++i) inner *= shape[i];
    for (Index t = 0; t < tokens; ++t) v.push_back(coordinate(a, t / inner % shape[a]));
  }
  return own(std::move(v), 1, static_cast<std::int32_t>(shape.size()));
}

}  // namespace

OwnedPositions grid(std::initializer_list<Index> shape, Index first) {
  return grid(std::span<const Index>(shape.begin(), shape.size()), first);
}

OwnedPositions grid(std::span<const Index> shape, Index first) {
  const Index n = tokens_of(shape, "grid");
  for (const Index s : shape)
    if (s > 0) add_exact(first, s - 1, "grid");
  return coordinates<Index>(shape, n, [&](std::size_t, Index i) { return first + i; });
}

OwnedPositions scaled_grid(std::span<const Index> shape, std::span<const double> reference,
                           double offset) {
  const Index n = tokens_of(shape, "scaled_grid");
  if (reference.size() != shape.size())
    refuse_field("scaled_grid", "reference", "must have one size an axis",
                 static_cast<Index>(reference.size()));
  for (const double r : reference)
    if (!std::isfinite(r) || r <= 0)
      refuse("scaled_grid", "reference sizes must be finite and positive", r);
  if (!std::isfinite(offset)) refuse_field("scaled_grid", "offset", "must be finite", offset);
  return coordinates<double>(shape, n, [&](std::size_t a, Index i) {
    return (static_cast<double>(i) + offset) / static_cast<double>(shape[a]) * reference[a];
  });
}

OwnedPositions linspace_grid(std::span<const Index> shape, double low, double high) {
  const Index n = tokens_of(shape, "linspace_grid");
  if (!std::isfinite(low) || !std::isfinite(high))
    refuse("linspace_grid", "the ends must be finite", std::isfinite(low) ? high : low);
  return coordinates<double>(shape, n, [&](std::size_t a, Index i) {
    if (shape[a] == 1) return low;
    // From the nearer end, so that both ends are met exactly and the grid is symmetric.
    const double step = (high - low) / static_cast<double>(shape[a] - 1);
    return i < (shape[a] + 1) / 2 ? low + static_cast<double>(i) * step
                                  : high - static_cast<double>(shape[a] - 1 - i) * step;
  });
}

OwnedPositions patch_centres(Index rows, Index columns, CentreNormalisation normalisation) {
  const Index shape[] = {rows, columns};
  const Index n = tokens_of(shape, "patch_centres");
  return coordinates<double>(shape, n, [&](std::size_t a, Index i) {
    Index size = shape[a];
    if (normalisation == CentreNormalisation::max) size = std::max(rows, columns);
    if (normalisation == CentreNormalisation::min) size = std::min(rows, columns);
    return 2 * ((static_cast<double>(i) + 0.5) / static_cast<double>(size)) - 1;
  });
}

OwnedPositions augmented(const Positions& p, const GridAugmentation& g) {
  const auto axes = static_cast<std::size_t>(p.axes);
  if (!g.shift.empty() && g.shift.size() != axes)
    refuse_field("augmented", "shift", "must have one number an axis",
                 static_cast<Index>(g.shift.size()));
  if (!g.log_jitter.empty() && g.log_jitter.size() != axes)
    refuse_field("augmented", "log_jitter", "must have one number an axis",
                 static_cast<Index>(g.log_jitter.size()));
  std::vector<double> v;
  for (std::int32_t a = 0; a < p.axes; ++a) {
    const auto i = static_cast<std::size_t>(a);
    const double shift = g.shift.empty() ? 0 : g.shift[i];
    const double jitter = g.log_jitter.empty() ? 1 : std::exp(g.log_jitter[i]);
    const double rescale = std::exp(g.log_rescale);
    if (!std::isfinite(shift) || !std::isfinite(jitter) || !std::isfinite(rescale))
      refuse("augmented", "shift, exp(log_jitter) and exp(log_rescale) must be finite, axis",
             Index{a});
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 0; t < p.count; ++t)
        v.push_back((position_at(p, a, b, t) + shift) * jitter * rescale);
  }
  return own(std::move(v), p.batch, p.axes);
}

OwnedPositions swap_xy(const Positions& p) {
  if (p.axes < 2)
    refuse_field("swap_xy", "positions", "must have at least two axes", Index{p.axes});
  OwnedPositions r = owned(p);
  const Index plane = p.batch * p.count;
  std::visit(
      [&](auto& v) {
        const auto last = v.begin() + static_cast<std::ptrdiff_t>((p.axes - 1) * plane);
        std::swap_ranges(last - static_cast<std::ptrdiff_t>(plane), last, last);
      },
      r.value);
  return r;
}

OwnedPositions merge_blocks(const Positions& p, Index rows, Index columns, Index merge) {
  if (merge < 1) refuse_field("merge_blocks", "merge", "must be positive", merge);
  if (rows < 0 || rows % merge != 0)
    refuse_field("merge_blocks", "merge", "must divide the rows", rows);
  if (columns < 0 || columns % merge != 0)
    refuse_field("merge_blocks", "merge", "must divide the columns", columns);
  if (rows > 0 && columns > kMaxTokens / rows)
    refuse("merge_blocks", "a frame must have at most 2^40 tokens", columns);
  const Index frame = rows * columns;
  if (frame == 0 ? p.count != 0 : p.count % frame != 0)
    refuse_field("merge_blocks", "tokens", "must be whole frames of rows x columns", p.count);
  std::vector<Index> order;
  order.reserve(static_cast<std::size_t>(p.count));
  for (Index start = 0; start < p.count; start += frame)
    for (Index r = 0; r < rows; r += merge)
      for (Index c = 0; c < columns; c += merge)
        for (Index i = 0; i < merge; ++i)
          for (Index j = 0; j < merge; ++j) order.push_back(start + (r + i) * columns + c + j);
  return picked(p, order);
}

}  // namespace posenc::v0
