// SPDX-License-Identifier: Apache-2.0
// Which old rows a new row is made of, and with what weights.
#include <algorithm>
#include <cmath>
#include <string>

#include "absolute/names.h"
#include "core/known_enum.h"
#include "posenc/absolute/extend.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

// Keys, eq. 15: (a + 2)|x|^3 - (a + 3)|x|^2 + 1 within 1, a |x|^3 - 5a |x|^2 + 8a |x| - 4a to 2; by
// its factors, so that the zeros are exact.
double cubic(double x, double a) {
  x = std::fabs(x);
  if (x < 1) return (1 - x) * (1 + x - (a + 2) * x * x);
  return x < 2 ? a * (x - 1) * (2 - x) * (2 - x) : 0;
}
double triangle(double x) {
  return std::max(0.0, 1 - std::fabs(x));
}

struct Sampling {
  double step = 1;   // old rows a new row
  bool plus = true;  // step (o + 1/2) - 1/2, else step o
  double at(Index o) const {
    const auto x = static_cast<double>(o);
    return plus ? step * (x + 0.5) - 0.5 : step * x;
  }
};

Sampling sampling(Index old_size, Index new_size, const Extension& e, std::optional<double> scale) {
  const auto from = static_cast<double>(old_size), to = static_cast<double>(new_size);
  if (e.align_corners) {
    if (scale || e.offset != 0)
      refuse_field(kExtend, "align_corners",
                   "computes points from the sizes: omit factor and offset");
    return {new_size > 1 ? (from - 1) / (to - 1) : 0, e.antialias};
  }
  if (scale) {
    if (!std::isfinite(*scale) || *scale <= 0)
      refuse(kExtend, "a factor must be finite and positive", *scale);
    if (e.offset != 0) refuse(kExtend, "a factor has no offset", e.offset);
    return {1 / *scale, true};
  }
  if (!std::isfinite(e.offset) || to + e.offset <= 0)
    refuse_field(kExtend, "offset", "must leave a positive size", e.offset);
  // The factor (new + offset) / old is what those programs pass on.
  return {e.offset != 0 ? 1 / ((to + e.offset) / from) : from / to, true};
}

void put(AxisTaps& t, Index o, Index k, Index index, double weight) {
  const auto at = static_cast<std::size_t>(o * t.taps + k);
  t.index[at] = std::clamp<Index>(index, 0, t.old_size - 1);
  t.weight[at] = weight;
}

AxisTaps empty_taps(Index old_size, Index new_size, Index taps) {
  AxisTaps t{old_size, new_size, taps, {}, {}};
  t.index.resize(static_cast<std::size_t>(new_size * taps));
  t.weight.resize(t.index.size());
  return t;
}

AxisTaps copied_taps(Index size) {
  AxisTaps t = empty_taps(size, size, 1);
  for (Index o = 0; o < size; ++o) put(t, o, 0, o, 1);
  return t;
}

// Two taps of a line between neighbours.
AxisTaps linear_taps(Index old_size, Index new_size, const Sampling& s) {
  AxisTaps t = empty_taps(old_size, new_size, 2);
  for (Index o = 0; o < new_size; ++o) {
    const double x = std::clamp(s.at(o), 0.0, static_cast<double>(old_size - 1));
    const auto low = static_cast<Index>(x);
    const double fraction = x - static_cast<double>(low);
    put(t, o, 0, low, 1 - fraction);
    put(t, o, 1, low + 1, fraction);
  }
  return t;
}

// New row o at old row o / factor.
AxisTaps stretched_taps(Index old_size, Index new_size, double factor, bool extrapolate) {
  if (extrapolate && old_size < 2)
    refuse(kExtend, "border extrapolate needs two rows or more", old_size);
  AxisTaps t = empty_taps(old_size, new_size, 2);
  const auto last = static_cast<double>(old_size - 1);
  for (Index o = 0; o < new_size; ++o) {
    const double x = static_cast<double>(o) / factor;
    const double at = extrapolate ? x : std::min(x, last);
    const auto low = static_cast<Index>(std::min(at, extrapolate ? last - 1 : last));
    const double fraction = at - static_cast<double>(low);
    put(t, o, 0, low, 1 - fraction);
    put(t, o, 1, low + 1, fraction);
  }
  return t;
}

AxisTaps tiled_taps(Index old_size, Index new_size) {
  AxisTaps t = empty_taps(old_size, new_size, 1);
  for (Index o = 0; o < new_size; ++o) put(t, o, 0, o % old_size, 1);
  return t;
}

AxisTaps cubic_taps(Index old_size, Index new_size, const Sampling& s, double a) {
  AxisTaps t = empty_taps(old_size, new_size, 4);
  for (Index o = 0; o < new_size; ++o) {
    // Farther out every tap is the last row; the point itself need not fit an integer.
    const double x = std::clamp(s.at(o), -2.0, static_cast<double>(old_size + 1));
    const double low = std::floor(x), fraction = x - low;
    for (Index k = 0; k < 4; ++k)
      put(t, o, k, static_cast<Index>(low) + k - 1,
          cubic(fraction + 1 - static_cast<double>(k), a));
  }
  return t;
}

// Any width of the kernel, weights divided by their sum; rows outside left out, or the nearest.
AxisTaps wide_taps(Index old_size, Index new_size, const Sampling& s, const Extension& e, double a,
                   bool repeat) {
  const double reach = e.how == ExtendHow::bicubic ? 2 : 1;
  const double widen = e.antialias ? std::max(s.step, 1.0) : 1;
  if (reach * widen > 1e6) refuse(kExtend, "a new row must be made of at most 10^6 old ones");
  const auto count = static_cast<Index>(std::ceil(reach * widen)) * 2 + 1;
  AxisTaps t = empty_taps(old_size, new_size, count);
  const double outside = reach * widen + 2;  // a kernel here meets no row of the table
  for (Index o = 0; o < new_size; ++o) {
    const double centre =
        std::clamp(s.at(o) + 0.5, -outside, static_cast<double>(old_size) + outside);
    auto first = static_cast<Index>(std::floor(centre - reach * widen + 0.5));
    auto last = static_cast<Index>(std::floor(centre + reach * widen + 0.5));
    if (!repeat) first = std::max<Index>(first, 0), last = std::min(last, old_size);
    double sum = 0;
    for (Index i = first; i < last && i - first < count; ++i) {
      const double x = (static_cast<double>(i) - centre + 0.5) / widen;
      const double w = e.how == ExtendHow::bicubic ? cubic(x, a) : triangle(x);
      put(t, o, i - first, i, w);
      sum += w;
    }
    if (sum == 0) refuse(kExtend, "a sampling point must lie near the table, new row", o);
    for (Index k = 0; k < count; ++k) t.weight[static_cast<std::size_t>(o * count + k)] /= sum;
  }
  return t;
}

// Points 0, 1, 1 + q, 1 + q + q^2 ... to both sides. q by bisection on [1.01, 1.5] until 1e-6, as
// BEiT's code does: tables carried over by it depend on where the bisection stops.
AxisTaps geometric_taps(Index old_size, Index new_size) {
  if (old_size % 2 == 0)
    refuse_field(kExtend, "geometric", "needs a middle: an odd number of rows", old_size);
  if (new_size % 2 == 0)
    refuse_field(kExtend, "geometric", "needs a middle: an odd number of rows", new_size);
  const Index half = old_size / 2, new_half = new_size / 2;
  const auto target = static_cast<double>(new_half);
  double low = 1.01, high = 1.5, q = 1;
  while (high - low > 1e-6) {
    q = (low + high) / 2;
    (((1 - std::pow(q, static_cast<double>(half))) / (1 - q)) > target ? high : low) = q;
  }
  std::vector<double> point(static_cast<std::size_t>(old_size));
  double at = 1;
  for (Index i = 0; i < half; ++i) {
    point[static_cast<std::size_t>(half + 1 + i)] = at;
    point[static_cast<std::size_t>(half - 1 - i)] = -at;
    at += std::pow(q, static_cast<double>(i + 1));
  }
  AxisTaps t = empty_taps(old_size, new_size, 2);
  for (Index o = 0; o < new_size; ++o) {
    const double x = std::clamp(static_cast<double>(o - new_half), point.front(), point.back());
    const auto above = std::upper_bound(point.begin(), point.end(), x);
    const Index low_row = std::max<Index>(0, static_cast<Index>(above - point.begin()) - 1);
    if (low_row + 1 == old_size) {
      put(t, o, 0, low_row, 1);
      continue;
    }
    const double from = point[static_cast<std::size_t>(low_row)];
    const double fraction = (x - from) / (point[static_cast<std::size_t>(low_row + 1)] - from);
    put(t, o, 0, low_row, 1 - fraction);
    put(t, o, 1, low_row + 1, fraction);
  }
  return t;
}

// p_y + b (p_x - p_0), b = alpha / (1 - alpha): the first n rows are copies.
AxisTaps hierarchical_taps(Index n, Index new_size, double alpha) {
  if (!(alpha > 0 && alpha < 1) || alpha == 0.5)
    refuse_field(kExtend, "alpha", "must lie between 0 and 1 and not be 1/2", alpha);
  if ((new_size - 1) / n >= n)
    refuse(kExtend, "hierarchical reaches n^2 positions, n = " + std::to_string(n), new_size);
  const double b = alpha / (1 - alpha);
  AxisTaps t = empty_taps(n, new_size, 3);
  for (Index o = 0; o < new_size; ++o) {
    const Index x = o / n, y = o % n;
    put(t, o, 0, y, 1);
    put(t, o, 1, x, x == 0 ? 0 : b);
    put(t, o, 2, 0, x == 0 ? 0 : -b);
  }
  return t;
}

// Ways whose rows do not depend on sampling points of pixels.
AxisTaps unsampled_taps(Index old_size, Index new_size, const Extension& e,
                        std::optional<double> scale) {
  if (e.how == ExtendHow::stretch) {
    if (e.align_corners || e.antialias || e.a || e.offset != 0)
      refuse(kExtend, "stretch has no sampling options but scale and border");
    if (scale && (!std::isfinite(*scale) || *scale <= 0))
      refuse(kExtend, "a factor must be finite and positive", *scale);
    if (e.border == ResizeBorder::renormalise)
      refuse(kExtend, "the border of stretch must be repeat or extrapolate, got renormalise");
    const double factor =
        scale.value_or(static_cast<double>(new_size) / static_cast<double>(old_size));
    return stretched_taps(old_size, new_size, factor, e.border == ResizeBorder::extrapolate);
  }
  if (e.align_corners || e.antialias || e.border || e.a || e.offset != 0 || scale)
    refuse(kExtend, "has no sampling options", enum_text(e.how));
  if (e.how == ExtendHow::tile) return tiled_taps(old_size, new_size);
  return e.how == ExtendHow::geometric ? geometric_taps(old_size, new_size)
                                       : hierarchical_taps(old_size, new_size, e.alpha);
}

// Sizes that exist for what the rows stand for.
void check_rows_exist(Index old_size, Index new_size, TableRows rows) {
  detail::check_known(kExtend, "rows", rows);
  if (rows == TableRows::buckets && old_size != new_size)
    refuse(kExtend,
           "a table of buckets must keep its number of rows, because buckets of distances are no "
           "points of a line",
           new_size);
  for (const Index n : {old_size, new_size})
    if (rows == TableRows::offsets && n % 2 == 0)
      refuse(kExtend,
             "a table of offsets must have an odd number of rows on each axis, 2 N - 1 of a window "
             "of N",
             n);
}

}  // namespace

TableRows table_rows_of(std::string_view name) noexcept {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  for (const char* part : {"relative_attention_bias", "rel_attn_embed", "rel_pos_bias",
                           "rel_pos_x_bias", "rel_pos_y_bias"})
    if (has(part)) return TableRows::buckets;
  for (const char* part : {"relative_position_bias_table", "rel_pos_h", "rel_pos_w", "rel_pos_t",
                           "distance_embedding"})
    if (has(part)) return TableRows::offsets;
  return TableRows::positions;
}

AxisTaps axis_taps(Index old_size, Index new_size, const Extension& e,
                   std::optional<double> scale) {
  for (const Index n : {old_size, new_size})
    if (n < 1 || n > Index{1} << 31) refuse(kExtend, "an axis must have 1 to 2^31 rows", n);
  detail::check_known(kExtend, "how", e.how);
  if (e.border) detail::check_known(kExtend, "border", *e.border);
  check_rows_exist(old_size, new_size, e.rows);
  if (e.how == ExtendHow::geometric || e.how == ExtendHow::hierarchical ||
      e.how == ExtendHow::stretch || e.how == ExtendHow::tile)
    return unsampled_taps(old_size, new_size, e, scale);
  if (e.border == ResizeBorder::extrapolate)
    refuse(kExtend, "border extrapolate must be with stretch", enum_text(e.how));
  const Sampling s = sampling(old_size, new_size, e, scale);
  if (e.a && e.how != ExtendHow::bicubic) refuse_field(kExtend, "a", "belongs to bicubic", *e.a);
  const double a = e.a.value_or(e.antialias ? -0.5 : -0.75);
  if (!std::isfinite(a) || a < -10 || a > 10)
    refuse_field(kExtend, "a", "must lie between -10 and 10", a);
  const ResizeBorder border =
      e.border.value_or(e.antialias ? ResizeBorder::renormalise : ResizeBorder::repeat);
  // torch's kernels, all but the cubic one without antialias, copy an axis whose size stays,
  // whatever the factor.
  const bool torch_copies = e.antialias
                                ? border == ResizeBorder::renormalise
                                : e.how != ExtendHow::bicubic && border == ResizeBorder::repeat;
  if (old_size == new_size && torch_copies) return copied_taps(old_size);
  if (e.antialias || border == ResizeBorder::renormalise)
    return wide_taps(old_size, new_size, s, e, a, border == ResizeBorder::repeat);
  return e.how == ExtendHow::bicubic ? cubic_taps(old_size, new_size, s, a)
                                     : linear_taps(old_size, new_size, s);
}

}  // namespace posenc::v0
