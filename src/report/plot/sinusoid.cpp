// SPDX-License-Identifier: Apache-2.0
#include "sinusoid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "posenc/absolute/sinusoidal_laws.h"
#include "rotary.h"
#include "row_axis.h"

namespace posenc::report {
namespace {

Figure heat_map(Sinusoidal s, const std::string& title, const PlotOptions& o) {
  const PositionList list =
      o.positions.empty() ? first_positions(100) : read_positions(o.positions);
  const Index rows = list.owned.batch * list.owned.count();
  if (list.owned.axes != 1 || list.owned.batch != 1)
    throw UsageError("--kind rows of a sinusoid needs positions of one sequence and one axis");
  check_drawable(rows, s.width);
  s.compose = Compose::add;
  s.first = 0;
  std::vector<double> gain{1 / std::sqrt(static_cast<double>(s.width))};  // where it starts
  const ConstTensorView start = tensor(gain.data(), {1});
  LoweredInput lowered;
  s.lower(std::span(&start, s.learned_gain ? 1 : 0), lowered);
  std::vector<double> y(static_cast<std::size_t>(rows * s.width));
  apply_input({}, list.owned, lowered, tensor(y.data(), {rows, s.width}));
  HeatMap h;
  h.title = "Encoding of every position and channel";
  h.subtitle = title;
  h.x = {"channel", "index", false, {}, {}, true};
  name_rows(h, list);
  h.value_label = "encoding";
  h.rows = static_cast<int>(rows), h.columns = static_cast<int>(s.width);
  h.limit = 0;
  for (const double v : y) h.limit = std::max(h.limit, std::abs(v));
  h.limit = h.limit > 0 ? h.limit : 1;
  h.values.assign(y.begin(), y.end());
  return {std::move(h),
          "A row is one position. Fast channels change from row to row; slow ones hardly change "
          "within the picture."};
}

Figure wavelengths(const Sinusoidal& s, const std::string& title, std::optional<Index> context) {
  LineChart c;
  c.title = "Wavelength of every pair";
  c.subtitle = title;
  c.x = {"pair", "index", false, {}, {}, true};
  c.y = {"wavelength", "positions a period", true};
  Series series{"wavelength", {}, {}, false, true};
  const std::vector<double> f = s.spectrum().frequency;
  for (std::size_t i = 0; i < f.size(); ++i) {
    series.x.push_back(static_cast<double>(i));
    series.y.push_back(2 * std::numbers::pi / std::abs(f[i]));
  }
  c.series = {std::move(series)};
  if (context) c.rules.push_back(context_rule(*context, false));
  return {std::move(c), "From 2 pi positions a period to 2 pi times the last divisor."};
}

Figure inner_products(const Sinusoidal& s, const std::string& title, Index context) {
  LineChart c;
  c.title = "Inner product of two rows by distance";
  c.subtitle = title;
  c.x = {"distance", "positions", true};
  c.y = {"inner product relative to distance 0", ""};
  const bool has_law = s.spacing == SineSpacing::paper && s.base != 1;
  Series exact{"sum of cos(distance x frequency)", {}, {}};
  Series law{"1 - (ln distance + 0.5772) / ln base", {}, {}, true};
  const double at_zero = inner_product(s, 0);
  const double top = std::log(static_cast<double>(std::max<Index>(context, 2)));
  double before = 0;
  for (int i = 0; i <= 400; ++i) {
    const double d = std::round(std::exp(top * i / 400));
    if (d == before) continue;
    before = d;
    exact.x.push_back(d), exact.y.push_back(inner_product(s, d) / at_zero);
    if (has_law) law.x.push_back(d), law.y.push_back(inner_product_law(s, d) / at_zero);
  }
  c.series = {std::move(exact)};
  if (has_law) c.series.push_back(std::move(law));
  c.rules.push_back({"", 0, false});
  return {std::move(c),
          "It depends on the distance alone and not on its sign, falls like the logarithm of the "
          "distance, rises again here and there, and is negative later."};
}

}  // namespace

std::vector<Figure> plot_sinusoid(const Sinusoidal& s, const std::string& title,
                                  const PlotOptions& o) {
  s.parameters();  // refuses fields that cannot be
  const std::optional<Index> context = o.subject.context;
  if (o.kind == "rows") return {heat_map(s, title, o)};
  if (o.kind == "wavelengths") return {wavelengths(s, title, context)};
  if (o.kind == "decay") {
    require_two_tokens(context, "decay");
    return {inner_products(s, title, context.value_or(4096))};
  }
  throw UsageError("--kind of a sinusoid must be rows, wavelengths or decay, got \"" + o.kind +
                   "\"");
}

}  // namespace posenc::report
