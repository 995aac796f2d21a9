// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/distance_offset.h"

#include <cmath>

#include <algorithm>
#include <string>
#include <vector>

#include "absolute/rows.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kDistanceOffset = "distance_offset";

template <class Data>
BasicTokenView<Data> rows_of(const BasicTensorView<Data>& v, Index rows, Index width,
                             const char* what) {
  const std::string who(what);
  if (v.dtype != DType::f64 && v.dtype != DType::f32)
    refuse_field(kDistanceOffset, who, "must be f64 or f32", dtype_name(v.dtype));
  if (v.device != Device::cpu) refuse_field(kDistanceOffset, who, "must be in the CPU's memory");
  if (v.rank != 2 || v.shape[0] != rows)
    refuse_field(kDistanceOffset, who, "must have two axes, rows", rows);
  if (width > 0 && v.shape[1] != width)
    refuse_field(kDistanceOffset, who, "must have channels: " + std::to_string(width), v.shape[1]);
  return tokens_of(v, what);
}

void check_call(const DistanceOffset& d, std::span<const Index> cu) {
  if (d.window < 0 || d.window > Index{1} << 30)
    refuse_field(kDistanceOffset, "window", "must lie between 0 and 2^30", d.window);
  if (cu.empty() || cu[0] != 0) refuse_field(kDistanceOffset, "boundaries", "must start at 0");
  for (std::size_t i = 1; i < cu.size(); ++i)
    if (cu[i] < cu[i - 1]) refuse_field(kDistanceOffset, "boundaries", "must not decrease", cu[i]);
}

// The rows of E that token i of n reads: `below` times row 0, rows [first, last) once, `above`
// times the last row.
struct Reads {
  Index below, first, last, above, count;
};
Reads reads_of(const DistanceOffset& d, Index i, Index n) {
  const Index low = d.causal ? 0 : i - (n - 1), high = i;  // distances
  const Index w = d.window;
  Reads r{};
  r.below = std::max<Index>(0, std::min(high, -w - 1) - low + 1);
  r.above = std::max<Index>(0, high - std::max(low, w + 1) + 1);
  r.first = std::clamp(low, -w, w + 1) + w;
  r.last = std::clamp(high, -w - 1, w) + w + 1;
  r.last = std::max(r.first, r.last);
  r.count = high - low + 1;
  return r;
}

template <class F>
void for_tokens(const DistanceOffset& d, std::span<const Index> cu, F&& f) {
  for (std::size_t k = 1; k < cu.size(); ++k)
    for (Index t = cu[k - 1]; t < cu[k]; ++t) f(t, reads_of(d, t - cu[k - 1], cu[k] - cu[k - 1]));
}

}  // namespace

void add_distance_offset(const DistanceOffset& d, const ConstTensorView& table,
                         const ConstTensorView& x, std::span<const Index> cu, const TensorView& y) {
  check_call(d, cu);
  const Index rows = 2 * d.window + 1;
  const ConstTokenView e = rows_of(table, rows, d.width, "the table");
  const TokenView to = rows_of(y, cu.back(), e.width, "y");
  const ConstTokenView from = x.empty() ? ConstTokenView{} : rows_of(x, cu.back(), e.width, "x");
  detail::check_outputs(kDistanceOffset, {{"y", detail::memory_of(y)}},
                        {{"x", detail::memory_of(x)}}, {{"the table", detail::memory_of(table)}});
  // sum[r] = E[0] + ... + E[r - 1], a column at a time.
  std::vector<double> sum(static_cast<std::size_t>(rows) + 1);
  for (Index c = 0; c < e.width; ++c) {
    for (Index r = 0; r < rows; ++r)
      sum[static_cast<std::size_t>(r) + 1] = sum[static_cast<std::size_t>(r)] + e.get(0, r, c);
    const double bottom = e.get(0, 0, c), top = e.get(0, rows - 1, c);
    for_tokens(d, cu, [&](Index t, const Reads& r) {
      const double all = sum[static_cast<std::size_t>(r.last)] -
                         sum[static_cast<std::size_t>(r.first)] +
                         static_cast<double>(r.below) * bottom + static_cast<double>(r.above) * top;
      const double offset = all / static_cast<double>(r.count);
      to.put(0, t, c, x.empty() ? offset : from.get(0, t, c) + offset);
    });
  }
}

void distance_offset_gradient(const DistanceOffset& d, const ConstTensorView& d_y,
                              std::span<const Index> cu, const TensorView& d_table) {
  check_call(d, cu);
  const Index rows = 2 * d.window + 1;
  const TokenView to = rows_of(d_table, rows, d.width, "the table's gradient");
  const ConstTokenView from = rows_of(d_y, cu.back(), to.width, "d_y");
  detail::check_outputs(kDistanceOffset, {{"the table's gradient", detail::memory_of(d_table)}}, {},
                        {{"d_y", detail::memory_of(d_y)}});
  // step[r] is what row r has more than row r - 1: each token adds to a run of rows.
  std::vector<double> step(static_cast<std::size_t>(rows) + 1);
  for (Index c = 0; c < to.width; ++c) {
    std::fill(step.begin(), step.end(), 0.0);
    double bottom = 0, top = 0;
    for_tokens(d, cu, [&](Index t, const Reads& r) {
      const double g = from.get(0, t, c) / static_cast<double>(r.count);
      step[static_cast<std::size_t>(r.first)] += g;
      step[static_cast<std::size_t>(r.last)] -= g;
      bottom += static_cast<double>(r.below) * g;
      top += static_cast<double>(r.above) * g;
    });
    double run = 0;
    for (Index r = 0; r < rows; ++r) {
      run += step[static_cast<std::size_t>(r)];
      const double ends = (r == 0 ? bottom : 0) + (r == rows - 1 ? top : 0);
      to.put(0, r, c, to.get(0, r, c) + run + ends);
    }
  }
}

std::vector<Parameter> DistanceOffset::parameters() const {
  if (width < 1 || width > 1000000)
    refuse_field("distance_offset", "width", "must lie between 1 and 10^6", width);
  if (window < 0 || window > Index{1} << 30)
    refuse_field("distance_offset", "window", "must lie between 0 and 2^30", window);
  if (!std::isfinite(init) || init < 0)
    refuse_field("distance_offset", "init", "must be finite and not negative", init);
  return {{"table", {2 * window + 1, width}, {InitialKind::normal, 0, init}, {}}};
}

}  // namespace posenc::v0
