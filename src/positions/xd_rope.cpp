// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/xd_rope.h"

#include <algorithm>

#include "positions/vision_grids.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kXdRope = "xd_rope";

// One row: coordinates [axis][real token].
struct XdRow {
  const XdRopeRule& rule;
  std::vector<std::vector<Index>> axis;

  XdRow(const XdRopeRule& r, std::size_t tokens) : rule(r), axis(static_cast<std::size_t>(r.axes)) {
    for (std::vector<Index>& a : axis)
      for (std::size_t t = 0; t < tokens; ++t) a.push_back(static_cast<Index>(t));
  }
  // The run [from, to) is the image of that number.
  void image(const VisionGrid& g, std::size_t from, std::size_t to, Index number) {
    if (g.frames != 1) refuse_field(kXdRope, "images", "must have one frame", g.frames);
    const Index rows = g.rows / rule.merge, columns = g.columns / rule.merge + 1;
    const double need = static_cast<double>(rows) * static_cast<double>(columns);
    const auto run = static_cast<double>(to - from);
    if (run != need && run != need + 2)
      refuse(kXdRope, "a run of image tokens must hold rows * (columns + 1) or two more, tokens",
             run);
    std::size_t at = run == need ? from : from + 1;
    const std::size_t last = axis.size();
    for (Index r = 0; r < rows; ++r)
      for (Index c = 0; c < columns; ++c, ++at) {
        axis[last - 3][at] = c;
        axis[last - 2][at] = r;
        axis[last - 1][at] = number;
      }
  }
};

}  // namespace

MropePositions xd_rope_positions(const XdRopeRule& rule, const ConstTensorView& token_types,
                                 const ConstTensorView& mask, std::span<const VisionGrid> images) {
  if (rule.axes != 3 && rule.axes != 4) refuse_field(kXdRope, "axes", "must be 3 or 4", rule.axes);
  if (rule.merge < 1) refuse_field(kXdRope, "merge", "must be positive", rule.merge);
  const TypedRows rows(kXdRope, token_types, mask);
  const IntegerRows& types = rows.types;
  VisionGrids grids(kXdRope, rule.merge, false, images, "images");
  const auto plane = static_cast<std::size_t>(types.batch * types.tokens);
  std::vector<Index> v(static_cast<std::size_t>(rule.axes) * plane, rule.padded);
  MropePositions result;
  Index number = 0;
  for (Index b = 0; b < types.batch; ++b) {
    const std::vector<Index> places = rows.places(b);
    XdRow row(rule, places.size());
    if (rule.image_number == ImageNumber::per_row) number = 0;
    for (std::size_t i = 0; i < places.size();) {
      const Index type = types(b, places[i]);
      if (type != 0 && type != 1) refuse(kXdRope, "token types must be 0 text or 1 image", type);
      const std::size_t from = i;
      while (i < places.size() && types(b, places[i]) == type) ++i;
      if (type == 1) row.image(grids.next(), from, i, number++);
    }
    Index largest = -1;
    for (std::size_t a = 0; a < row.axis.size(); ++a)
      for (std::size_t i = 0; i < places.size(); ++i) {
        largest = std::max(largest, row.axis[a][i]);
        v[a * plane + static_cast<std::size_t>(b * types.tokens + places[i])] = row.axis[a][i];
      }
    result.delta.push_back(largest + 1 - static_cast<Index>(places.size()));
  }
  grids.check_used_up();
  result.positions = own(std::move(v), types.batch, static_cast<std::int32_t>(rule.axes));
  return result;
}

}  // namespace posenc::v0
