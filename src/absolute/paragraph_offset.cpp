// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/paragraph_offset.h"

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

std::vector<Parameter> ParagraphOffset::parameters() const {
  check_fields();
  if (mode == ParagraphMode::table)
    return {{"paragraph", {paragraphs, width}, {InitialKind::normal, 0, init}, {}}};
  if (learned_omega) return {{"omega", {1}, {InitialKind::constant, omega, 0}, {}}};
  return {};
}

void ParagraphOffset::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("paragraph_offset", needed.size(), p.size());
  InputTerm t;
  t.layout = layout;
  t.first = first;
  t.width = width;
  Spectrum s = geometric_spectrum(base, width);
  if (mode == ParagraphMode::shift) {  // (p + omega s) w = p w + s (omega w)
    const double o =
        learned_omega ? parameter_values("paragraph_offset", needed[0], p[0])[0] : omega;
    s.axes = 2;
    for (Index m = 0; m < width / 2; ++m)
      s.frequency.push_back(o * s.frequency[static_cast<std::size_t>(m)]);
    s.geometric.reset();
    s.drop_ggml("paragraph_offset mode=shift");
  }
  t.phase = out.spectrum(std::move(s));
  out.terms.push_back(t);
  if (mode == ParagraphMode::table) {
    InputTerm table;
    table.table =
        out.table(parameter_values("paragraph_offset", needed[0], p[0]), paragraphs, width);
    table.axis = 1;
    table.first = first;
    table.width = width;
    out.terms.push_back(table);
  }
  out.input_gain *= input_gain;
}

void ParagraphOffset::pull_back(std::span<const ConstTensorView> p,
                                std::span<const InputGradient> g,
                                std::span<const TensorView> dp) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("paragraph_offset", needed.size(), p.size());
  check_gradients("paragraph_offset", needed, dp);
  if (needed.empty()) return;
  if (mode == ParagraphMode::table)
    return accumulate(
        "paragraph_offset", needed[0], dp[0],
        gradient_values("paragraph_offset", gradient_of("paragraph_offset", g, 1).table,
                        {paragraphs, width}));
  const std::vector<double> d = gradient_values(
      "paragraph_offset", gradient_of("paragraph_offset", g, 0).frequency, {2, width / 2});
  const Spectrum s = geometric_spectrum(base, width);
  double sum = 0;  // the second axis' frequencies are omega w_m
  for (Index m = 0; m < width / 2; ++m)
    sum += d[static_cast<std::size_t>(width / 2 + m)] * s.frequency[static_cast<std::size_t>(m)];
  accumulate("paragraph_offset", needed[0], dp[0], std::span(&sum, 1));
}

void ParagraphOffset::check_fields() const {
  if (width < 2 || width % 2 != 0)
    refuse_field("paragraph_offset", "width", "must be positive and even", width);
  const bool table = mode == ParagraphMode::table;
  if (table ? paragraphs < 1 || paragraphs > kUnbounded / 16 / width : paragraphs != 0)
    refuse_field("paragraph_offset", "paragraphs", "must be the rows of the table, 0 without one",
                 paragraphs);
  if (!std::isfinite(omega) || (table && (omega != 0 || learned_omega)))
    refuse_field("paragraph_offset", "omega", "must be finite, and belongs to mode=shift", omega);
  if (layout == SineLayout::sines || layout == SineLayout::cosines)
    refuse_field("paragraph_offset", "layout", "must hold sines and cosines", enum_text(layout));
  if (!std::isfinite(base) || base <= 0)
    refuse_field("paragraph_offset", "base", "must be finite and positive", base);
  if (!std::isfinite(input_gain))
    refuse_field("paragraph_offset", "input_gain", "must be finite", input_gain);
}

}  // namespace posenc::v0
