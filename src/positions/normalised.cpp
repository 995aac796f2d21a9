// SPDX-License-Identifier: Apache-2.0
// Coordinates in units of the image: counted over a mask, or divided by a size; rows reversed.
#include <algorithm>
#include <cmath>

#include "core/shape.h"
#include "posenc/positions/grid.h"
#include "posenc/positions/sequence.h"
#include "positions/exact.h"

namespace posenc::inline v0 {

OwnedPositions counted_grid(const ConstTensorView& mask, const CountedGrid& options) {
  constexpr const char* who = "counted_grid";
  if (mask.rank != 3) detail::refuse_shape(who, "mask", "must be [b, rows, columns]", mask);
  if (!std::isfinite(options.scale)) refuse_field(who, "scale", "must be finite", options.scale);
  if (!(options.eps >= 0) || !std::isfinite(options.eps))
    refuse_field(who, "eps", "must be finite and not negative", options.eps);
  const Index batch = mask.shape[0], rows = mask.shape[1], columns = mask.shape[2];
  if (batch < 1) refuse_field(who, "batch", "must be positive", batch);
  const Index plane = batch * rows * columns;
  std::vector<double> v(static_cast<std::size_t>(2 * plane));
  for (Index b = 0; b < batch; ++b) {
    ConstTensorView image = mask;
    image.rank = 2;
    image.shape = {rows, columns};
    image.stride = {mask.stride[1], mask.stride[2]};
    image.data = static_cast<const char*>(mask.data) + b * mask.stride[0] * size_of(mask.dtype);
    const IntegerRows seen = mask_rows(image, who);
    // Along one axis: `lines` lines of `length` pixels.
    const auto count = [&](Index axis, Index lines, Index length) {
      for (Index l = 0; l < lines; ++l) {
        const auto at = [&](Index i) {
          const Index pixel = axis == 0 ? i * columns + l : l * columns + i;
          return static_cast<std::size_t>(axis * plane + b * rows * columns + pixel);
        };
        double sum = 0;
        for (Index i = 0; i < length; ++i)
          v[at(i)] = sum += static_cast<double>(axis == 0 ? seen(i, l) : seen(l, i));
        for (Index i = 0; options.normalise && i < length; ++i)
          v[at(i)] = sum + options.eps == 0 ? 0 : v[at(i)] / (sum + options.eps) * options.scale;
      }
    };
    count(0, columns, rows);
    count(1, rows, columns);
  }
  return own(std::move(v), batch, 2);
}

OwnedPositions normalised(const Positions& p, std::span<const double> size, double low,
                          double high) {
  if (static_cast<Index>(size.size()) != p.axes)
    refuse("normalised", "there must be one size an axis", static_cast<Index>(size.size()));
  for (const double s : size)
    if (!std::isfinite(s) || s == 0)
      refuse_field("normalised", "sizes", "must be finite and not 0", s);
  if (!std::isfinite(low) || !std::isfinite(high))
    refuse("normalised", "the ends must be finite", std::isfinite(low) ? high : low);
  std::vector<double> v;
  for (std::int32_t a = 0; a < p.axes; ++a)
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 0; t < p.count; ++t) {
        const double c = position_at(p, a, b, t);
        if (!std::isfinite(c)) refuse_field("normalised", "positions", "must be finite", c);
        v.push_back(c / size[static_cast<std::size_t>(a)] * (high - low) + low);
      }
  return own(std::move(v), std::max<Index>(p.batch, 1), p.axes);
}

OwnedPositions in_float32(const Positions& p) {
  std::vector<double> v;
  for (std::int32_t a = 0; a < p.axes; ++a)
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 0; t < p.count; ++t)
        v.push_back(static_cast<double>(static_cast<float>(position_at(p, a, b, t))));
  return explicit_positions(std::move(v), std::max<Index>(p.batch, 1), p.axes);
}

OwnedPositions reversed(const Positions& p) {
  OwnedPositions out = owned(p);
  const auto count = static_cast<std::ptrdiff_t>(p.count);
  std::visit(
      [&](auto& v) {
        for (auto row = v.begin(); count > 0 && row != v.end(); row += count)
          std::reverse(row, row + count);
      },
      out.value);
  return out;
}

}  // namespace posenc::v0
