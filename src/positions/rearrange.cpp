// SPDX-License-Identifier: Apache-2.0
// Positions made of positions: shifted, put together, picked.
#include <cmath>

#include "posenc/positions/sequence.h"
#include "posenc/positions/shard.h"
#include "positions/exact.h"

namespace posenc::inline v0 {
namespace {

void check_view(const Positions& p) {
  if (p.type != DType::i64 && p.type != DType::i32 && p.type != DType::f64)
    refuse_field("positions", "dtype", "must be i64, i32 or f64", dtype_name(p.type));
  if (p.axes < 1 || p.batch < 0 || p.count < 0)
    refuse_field("positions", "axes", "must be positive and sizes not negative, axes",
                 Index{p.axes});
}

bool any_real(std::span<const OwnedPositions> parts) {
  for (const OwnedPositions& p : parts)
    if (p.value.index() == 1) return true;
  return false;
}

// fn(axis, row, token) for every place, in dense order.
template <class F>
void each_place(std::int32_t axes, Index batch, Index tokens, F&& fn) {
  for (std::int32_t a = 0; a < axes; ++a)
    for (Index b = 0; b < batch; ++b)
      for (Index t = 0; t < tokens; ++t) fn(a, b, t);
}

// A dense list of the same kind, value(axis, row, token) as Positions places it.
template <class Place>
OwnedPositions rearranged(bool real, std::int32_t axes, Index batch, Index tokens,
                          const Place& place) {
  std::vector<double> doubles;
  std::vector<Index> integers;
  each_place(axes, batch, tokens, [&](std::int32_t a, Index b, Index t) {
    const auto [p, axis, row, token] = place(a, b, t);
    if (real)
      doubles.push_back(position_at(p, axis, row, token));
    else
      integers.push_back(integer_position_at(p, axis, row, token));
  });
  return real ? own(std::move(doubles), batch, axes) : own(std::move(integers), batch, axes);
}

struct Place {
  Positions positions;
  std::int32_t axis;
  Index row, token;
};

}  // namespace

double position_at(const Positions& p, std::int32_t axis, Index row, Index token) noexcept {
  return detail::real_position(p, axis, row, token);
}

Index integer_position_at(const Positions& p, std::int32_t axis, Index row, Index token) noexcept {
  return detail::integer_position(p, axis, row, token);
}

OwnedPositions owned(const Positions& p) {
  check_view(p);
  return rearranged(p.type == DType::f64, p.axes, p.batch, p.count,
                    [&](std::int32_t a, Index b, Index t) {
                      return Place{p, a, b, t};
                    });
}

OwnedPositions shifted(const Positions& p, Index delta) {
  check_view(p);
  if (p.type == DType::f64) return shifted(p, static_cast<double>(delta));
  std::vector<Index> v;
  each_place(p.axes, p.batch, p.count, [&](std::int32_t a, Index b, Index t) {
    v.push_back(add_exact(integer_position_at(p, a, b, t), delta, "shifted"));
  });
  return own(std::move(v), p.batch, p.axes);
}

OwnedPositions shifted(const Positions& p, double delta) {
  check_view(p);
  if (!std::isfinite(delta)) refuse_field("shifted", "delta", "must be finite", delta);
  std::vector<double> v;
  each_place(p.axes, p.batch, p.count, [&](std::int32_t a, Index b, Index t) {
    v.push_back(position_at(p, a, b, t) + delta);
  });
  return own(std::move(v), p.batch, p.axes);
}

OwnedPositions shifted(const Positions& p, std::span<const Index> deltas) {
  check_view(p);
  const Index batch = static_cast<Index>(deltas.size());
  if (p.type == DType::f64) refuse("shifted", "deltas need integer positions", "f64");
  if (p.batch != 1 && p.batch != batch)
    refuse("shifted", "there must be one delta for each batch entry", batch);
  std::vector<Index> v;
  each_place(p.axes, batch, p.count, [&](std::int32_t a, Index b, Index t) {
    const Index row = p.batch == 1 ? 0 : b;
    v.push_back(add_exact(integer_position_at(p, a, row, t), deltas[static_cast<std::size_t>(b)],
                          "shifted"));
  });
  return own(std::move(v), batch, p.axes);
}

OwnedPositions batched(std::span<const OwnedPositions> rows) {
  if (rows.empty()) refuse("batched", "at least one array of positions is needed", Index{0});
  Index batch = 0;
  std::vector<Place> row_of;
  for (const OwnedPositions& r : rows) {
    if (r.axes != rows[0].axes) refuse_field("batched", "axes", "must be equal", Index{r.axes});
    if (r.count() != rows[0].count()) refuse_field("batched", "tokens", "must be equal", r.count());
    batch += r.batch;
    for (Index b = 0; b < r.batch; ++b) row_of.push_back({r, 0, b, 0});
  }
  return rearranged(any_real(rows), rows[0].axes, batch, rows[0].count(),
                    [&](std::int32_t a, Index b, Index t) {
                      const Place& r = row_of[static_cast<std::size_t>(b)];
                      return Place{r.positions, a, r.row, t};
                    });
}

OwnedPositions stacked(std::span<const OwnedPositions> axes) {
  if (axes.empty()) refuse("stacked", "at least one array of positions is needed", Index{0});
  std::vector<Place> axis_of;
  for (const OwnedPositions& x : axes) {
    if (x.batch != axes[0].batch) refuse_field("stacked", "batch", "must be equal", x.batch);
    if (x.count() != axes[0].count()) refuse_field("stacked", "tokens", "must be equal", x.count());
    for (std::int32_t a = 0; a < x.axes; ++a) axis_of.push_back({x, a, 0, 0});
  }
  return rearranged(any_real(axes), static_cast<std::int32_t>(axis_of.size()), axes[0].batch,
                    axes[0].count(), [&](std::int32_t a, Index b, Index t) {
                      const Place& x = axis_of[static_cast<std::size_t>(a)];
                      return Place{x.positions, x.axis, b, t};
                    });
}

OwnedPositions repeated_axes(const Positions& p, std::int32_t axes) {
  check_view(p);
  if (p.axes != 1) refuse_field("repeated_axes", "positions", "must have one axis", Index{p.axes});
  if (axes < 1) refuse_field("repeated_axes", "axes", "must be positive", Index{axes});
  return rearranged(p.type == DType::f64, axes, p.batch, p.count,
                    [&](std::int32_t, Index b, Index t) {
                      return Place{p, 0, b, t};
                    });
}

OwnedPositions join_positions(std::span<const OwnedPositions> parts) {
  if (parts.empty())
    refuse("join_positions", "at least one array of positions is needed", Index{0});
  std::vector<Place> token_of;
  for (const OwnedPositions& x : parts) {
    if (x.axes != parts[0].axes)
      refuse_field("join_positions", "axes", "must be equal", Index{x.axes});
    if (x.batch != parts[0].batch)
      refuse_field("join_positions", "batch", "must be equal", x.batch);
    for (Index t = 0; t < x.count(); ++t) token_of.push_back({x, 0, 0, t});
  }
  return rearranged(any_real(parts), parts[0].axes, parts[0].batch,
                    static_cast<Index>(token_of.size()), [&](std::int32_t a, Index b, Index t) {
                      const Place& x = token_of[static_cast<std::size_t>(t)];
                      return Place{x.positions, a, b, x.token};
                    });
}

OwnedPositions with_special_tokens(const Positions& p, Index before, Index after, Index value) {
  check_view(p);
  constexpr Index most = Index{1} << 40;
  for (const Index n : {before, after})
    if (n < 0 || n > most)
      refuse("with_special_tokens", "before and after must lie between 0 and 2^40", n);
  Positions constant;  // one number at every place
  constant.data = &value;
  constant.axes = p.axes;
  constant.batch = p.batch;
  constant.token_stride = 0;
  return rearranged(p.type == DType::f64, p.axes, p.batch, before + p.count + after,
                    [&](std::int32_t a, Index b, Index t) {
                      const bool own_token = t >= before && t < before + p.count;
                      return own_token ? Place{p, a, b, t - before} : Place{constant, 0, 0, 0};
                    });
}

OwnedPositions picked(const Positions& p, std::span<const Index> tokens) {
  check_view(p);
  for (const Index t : tokens)
    if (t < 0 || t >= p.count) refuse("picked", "token numbers must exist", t);
  return rearranged(p.type == DType::f64, p.axes, p.batch, static_cast<Index>(tokens.size()),
                    [&](std::int32_t a, Index b, Index t) {
                      return Place{p, a, b, tokens[static_cast<std::size_t>(t)]};
                    });
}

}  // namespace posenc::v0
