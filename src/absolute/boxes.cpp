// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/boxes.h"

#include <array>
#include <span>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

std::vector<Parameter> Boxes::parameters() const {
  check_fields();
  const Initial start{InitialKind::normal, 0, init};
  const Index c = coordinate > 0 ? coordinate : width, s = coordinate > 0 ? shape : width;
  return {{"x_table", {rows, c}, start, {}},
          {"y_table", {rows, c}, start, {}},
          {"h_table", {rows, s}, start, {}},
          {"w_table", {rows, s}, start, {}}};
}

void Boxes::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("boxes", needed.size(), p.size());
  std::array<ConstTensorView, 4> table;
  for (std::size_t i = 0; i < 4; ++i)
    table[i] = out.table(parameter_values("boxes", needed[i], p[i]), rows, needed[i].shape[1]);
  Index at = first;
  for (const Part& part : kParts) {
    InputTerm t;
    t.table = table[part.table];
    t.axis = part.axis;
    t.minus = part.minus;
    t.beyond = clip && part.minus >= 0 ? Beyond::clamp : Beyond::error;
    t.first = at;
    t.width = needed[part.table].shape[1];
    if (coordinate > 0) at += t.width;
    out.terms.push_back(t);
  }
}

void Boxes::pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                      std::span<const TensorView> dp) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("boxes", needed.size(), p.size());
  std::vector<std::vector<double>> d(needed.size());
  for (std::size_t k = 0; k < kParts.size(); ++k) {
    const std::size_t t = kParts[k].table;
    add_to(d[t], gradient_values("boxes", gradient_of("boxes", g, k).table, needed[t].shape));
  }
  accumulate("boxes", needed, dp, d);
}

void Boxes::check_fields() const {
  if (width < 1) refuse_field("boxes", "width", "must be positive", width);
  if (rows < 1 || rows > kUnbounded / 16 / width)
    refuse_field("boxes", "rows", "must be positive and the tables must fit memory", rows);
  if (coordinate < 0 || shape < 0 || coordinate > width || shape > width)
    refuse("boxes", "coordinate and shape must lie between 0 and width", coordinate);
  if (coordinate == 0 ? shape != 0 : shape == 0 || 4 * coordinate + 2 * shape != width)
    refuse_field("boxes", "width", "must be 4 coordinate + 2 shape, or both 0 for a sum", width);
}

}  // namespace posenc::v0
