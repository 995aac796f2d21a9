// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/learned.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

std::vector<Parameter> Learned::parameters() const {
  check_fields();
  return {{"table", {rows, width}, initial_of(initializer, init, rows, width), {}}};
}

std::vector<double> Learned::start(const Draws& draws) const {
  std::vector<double> v = initial_values(parameters()[0], draws);
  if (frozen_row)
    for (Index c = 0; c < width; ++c) v[static_cast<std::size_t>(*frozen_row * width + c)] = 0;
  return v;
}

void Learned::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  check_parameter_count("learned", 1, p.size());
  std::vector<double> values = parameter_values("learned", parameters()[0], p[0]);
  if (l2norm)
    for_rows(values, [](double* row, double norm, Index n) {
      for (Index c = 0; c < n; ++c) row[c] /= norm;
    });
  InputTerm t;
  t.table = out.table(std::move(values), rows, width);
  t.axis = static_cast<std::int32_t>(axis);
  t.offset = offset;
  t.beyond = beyond;
  t.extension = beyond == Beyond::extend ? alpha / (1 - alpha) : 0;
  t.frozen_row = frozen_row;
  t.zero_position = zero_position;
  t.first = first;
  t.width = width;
  t.compose = compose;
  t.gain = gain;
  out.terms.push_back(t);
  out.input_gain *= input_gain;
}

void Learned::pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                        std::span<const TensorView> dp) const {
  check_parameter_count("learned", 1, p.size());
  check_parameter_count("learned", 1, dp.size());
  std::vector<double> d =
      gradient_values("learned", gradient_of("learned", g, 0).table, {rows, width});
  if (l2norm) {  // of v / |v|: (d - u (u . d)) / |v|
    std::vector<double> values = parameter_values("learned", parameters()[0], p[0]);
    double* to = d.data();
    for_rows(values, [&](const double* row, double norm, Index n) {
      double along = 0;
      for (Index c = 0; c < n; ++c) along += to[c] * row[c] / norm;
      for (Index c = 0; c < n; ++c) to[c] = (to[c] - along * row[c] / norm) / norm;
      to += n;
    });
  }
  accumulate("learned", parameters()[0], dp[0], d);
}

void Learned::check_fields() const {
  if (width < 1) refuse_field("learned", "width", "must be positive", width);
  if (rows < 1 || rows > kUnbounded / 16 / width)
    refuse_field("learned", "rows", "must be positive and the table must fit memory", rows);
  if (!std::isfinite(gain)) refuse_field("learned", "gain", "must be finite", gain);
  if (!std::isfinite(input_gain))
    refuse_field("learned", "input_gain", "must be finite", input_gain);
  if (axis < 0 || axis > 7) refuse_field("learned", "axis", "must lie between 0 and 7", axis);
  if (!(init >= 0 && std::isfinite(init)))
    refuse_field("learned", "init", "must be finite and not negative", init);
  if (beyond == Beyond::extend && (!(alpha > 0 && alpha < 1) || alpha == 0.5))
    refuse_field("learned", "alpha", "must lie between 0 and 1 and not be 1/2", alpha);
  if (beyond == Beyond::extend && offset != 0)  // the rows before it are padding's, no positions
    refuse_field("learned", "offset",
                 "must be 0 with beyond=extend (extend_table and posenc extend keep the first "
                 "rows: --prefix)",
                 offset);
  if (frozen_row && (*frozen_row < 0 || *frozen_row >= rows))
    refuse_field("learned", "frozen_row", "must be a row of the table", *frozen_row);
}

// Every row with its norm, at least 1e-12 as in torch's normalize.
template <class F>
void Learned::for_rows(std::vector<double>& values, F&& f) const {
  for (Index r = 0; r < rows; ++r) {
    double* row = values.data() + r * width;
    double sum = 0;
    for (Index c = 0; c < width; ++c) sum += row[c] * row[c];
    f(row, std::max(std::sqrt(sum), 1e-12), width);
  }
}

}  // namespace posenc::v0
