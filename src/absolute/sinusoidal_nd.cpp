// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/sinusoidal_nd.h"

#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Sinusoidal SinusoidalNd::block(std::size_t i) const {
  Sinusoidal s;
  s.width = widths[i];
  s.layout = layouts.empty() ? layout : layouts[i];
  s.spacing = spacings.empty() ? spacing : spacings[i];
  s.base = bases.empty() ? base : bases[i];
  s.min_timescale = min_timescale;
  s.scale = scale.empty() ? 1 : scale[i];
  s.exponent_width = exponent_width;
  s.odd = odd;
  s.offset = offset;
  s.zero_position = zero_position;
  s.gain = gain;
  s.compose = compose;
  s.axis = axis_of(i);
  s.first = first + (starts.empty() ? 0 : starts[i]);
  for (std::size_t k = 0; starts.empty() && k < i; ++k) s.first += widths[k];
  return s;
}

std::vector<Parameter> SinusoidalNd::parameters() const {
  check_fields();
  return {};
}

void SinusoidalNd::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  check_fields();
  check_parameter_count("sinusoidal_nd", 0, p.size());
  if (arrangement == AxisArrangement::joint)
    lower_joint(out);
  else
    for (std::size_t i = 0; i < widths.size(); ++i)
      if (widths[i] > 0) block(i).lower({}, out);
  out.input_gain *= input_gain;
}

void SinusoidalNd::pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient>,
                             std::span<const TensorView> dp) const {
  check_parameter_count("sinusoidal_nd", 0, p.size());
  check_parameter_count("sinusoidal_nd", 0, dp.size());
}

// One phase over all axes: each pair is turned by its own.
void SinusoidalNd::lower_joint(LoweredInput& out) const {
  InputTerm t;
  Spectrum all;
  all.axes = static_cast<Index>(widths.size());
  Index pairs = 0, before = 0;
  for (const Index w : widths) pairs += w / 2;
  all.frequency.assign(static_cast<std::size_t>(all.axes * pairs), 0.0);
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] == 0) continue;
    const Spectrum s = block(i).spectrum();
    for (Index m = 0; m < s.pairs(); ++m)
      all.frequency[static_cast<std::size_t>(axis_of(i) * pairs + before + m)] =
          s.frequency[static_cast<std::size_t>(m)];
    before += s.pairs();
  }
  t.phase = out.spectrum(std::move(all));
  t.layout = layout;
  t.offset = offset;
  t.zero_position = zero_position;
  t.first = first;
  t.width = 2 * pairs;
  t.compose = compose;
  t.gain = gain;
  out.terms.push_back(t);
}

template <class T>
void SinusoidalNd::check_list(std::string_view name, const std::vector<T>& list) const {
  if (!list.empty() && list.size() != widths.size())
    refuse_field("sinusoidal_nd", name, "must have an entry for every width",
                 static_cast<Index>(list.size()));
}

void SinusoidalNd::check_fields() const {
  constexpr const char* who = "sinusoidal_nd";
  if (widths.empty() || widths.size() > 8)
    refuse(who, "there must be 1 to 8 widths", static_cast<Index>(widths.size()));
  check_list("stream", stream);
  check_list("scale", scale);
  check_list("starts", starts);
  check_list("layouts", layouts);
  check_list("spacings", spacings);
  check_list("bases", bases);
  if (!std::isfinite(input_gain)) refuse_field(who, "input_gain", "must be finite", input_gain);
  if (arrangement == AxisArrangement::joint && !(layouts.empty() && starts.empty()))
    refuse(who, "a joint arrangement has one layout and no starts");
  Index total = 0;
  unsigned seen = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] < 0 || widths[i] > 1000000)
      refuse_field(who, "widths", "must lie between 0 and 1000000", widths[i]);
    if (axis_of(i) < 0 || axis_of(i) > 7)
      refuse_field(who, "stream", "must lie between 0 and 7", axis_of(i));
    total += widths[i];
    seen |= 1U << axis_of(i);
    if (arrangement == AxisArrangement::joint && widths[i] % 2 != 0)
      refuse(who, "a joint arrangement needs even widths", widths[i]);
    if (!starts.empty() && (starts[i] < 0 || starts[i] > 1000000))
      refuse_field(who, "starts", "must lie between 0 and 1000000", starts[i]);
    if (widths[i] > 0) block(i).parameters();  // refuses the rest
  }
  if (total == 0) refuse_field(who, "widths", "must not all be 0");
  if (arrangement == AxisArrangement::joint && seen != (1U << widths.size()) - 1)
    refuse(who, "a joint arrangement needs every axis once in stream");
}

}  // namespace posenc::v0
