// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/hierarchy.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

std::vector<Parameter> Hierarchy::parameters() const {
  check_fields();
  std::vector<Parameter> list;
  for (std::size_t l = 0; l < rows.size(); ++l)
    if (rows[l] > 0)
      list.push_back({"level" + std::to_string(l),
                      {rows[l], channels(l)},
                      {InitialKind::normal, 0, init},
                      {}});
  return list;
}

void Hierarchy::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("hierarchy", needed.size(), p.size());
  Index at = first;
  std::size_t next = 0;
  for (std::size_t l = 0; l < rows.size(); ++l) {
    InputTerm t;
    t.axis = static_cast<std::int32_t>(l);
    t.first = at;
    t.width = channels(l);
    if (rows[l] > 0) {
      t.table = out.table(parameter_values("hierarchy", needed[next], p[next]), rows[l], t.width);
      t.beyond = beyond;
      ++next;
    } else {
      t.phase = out.spectrum(geometric_spectrum(base, t.width));
      t.layout = layout;
    }
    if (!widths.empty()) at += t.width;
    out.terms.push_back(t);
  }
  out.input_gain *= input_gain;
}

void Hierarchy::pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                          std::span<const TensorView> dp) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("hierarchy", needed.size(), p.size());
  std::vector<std::vector<double>> d;

  for (std::size_t l = 0; l < rows.size(); ++l) {
    if (rows[l] == 0) continue;
    d.push_back(
        gradient_values("hierarchy", gradient_of("hierarchy", g, l).table, {rows[l], channels(l)}));
  }
  accumulate("hierarchy", needed, dp, d);
}

void Hierarchy::check_fields() const {
  if (width < 1) refuse_field("hierarchy", "width", "must be positive", width);
  if (rows.empty() || rows.size() > 8)
    refuse("hierarchy", "there must be 1 to 8 levels", static_cast<Index>(rows.size()));
  Index sum = 0;
  for (const Index w : widths) sum = w < 1 || w > width ? width + 1 : std::min(sum + w, width + 1);
  if (!widths.empty() && (widths.size() != rows.size() || sum != width))
    refuse_field("hierarchy", "widths", "must be positive, one a level, and sum to width", sum);
  for (std::size_t l = 0; l < rows.size(); ++l) {
    if (rows[l] < 0 || rows[l] > kUnbounded / 16 / width)
      refuse_field("hierarchy", "rows", "must not be negative and the tables must fit memory",
                   rows[l]);
    if (rows[l] == 0 && channels(l) % 2 != 0)
      refuse("hierarchy", "a sinusoid needs an even width", channels(l));
  }
  if (layout == SineLayout::sines || layout == SineLayout::cosines)
    refuse_field("hierarchy", "layout", "must hold sines and cosines", enum_text(layout));
  if (beyond == Beyond::extend)
    refuse_field("hierarchy", "beyond", "must be error, clamp or zero", enum_text(beyond));
  if (!std::isfinite(base) || base <= 0)
    refuse_field("hierarchy", "base", "must be finite and positive", base);
  if (!std::isfinite(input_gain))
    refuse_field("hierarchy", "input_gain", "must be finite", input_gain);
}

}  // namespace posenc::v0
