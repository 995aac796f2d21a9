// SPDX-License-Identifier: Apache-2.0
// Boxes of words on a page. LayoutLM, Xu et al., arXiv:1912.13318; LayoutLMv3, arXiv:2204.08387.
// Position axes: x0, y0, x1, y1. Both corners read the same table of an axis.
//   summed (v1)        X[x0] + Y[y0] + X[x1] + Y[y1] + H[y1 - y0] + W[x1 - x0]
//   concatenated (v3)  [X[x0] | Y[y0] | X[x1] | Y[y1] | H | W], coordinate and shape channels each
// Heights and widths outside the table: an error in v1 and in LayoutLMv2 of transformers 5.23,
// clipped in v3.
#pragma once
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

struct Boxes {
  static constexpr Card card{"boxes", "boxes on a page", "arXiv:1912.13318", "sec. 2.2"};
  Index width = 0;
  Index rows = 1024;                // coordinates 0 .. rows - 1 of every table
  Index coordinate = 0, shape = 0;  // channels of a corner and of a size; 0: summed
  bool clip = false;                // heights and widths into the table
  double init = 0.02;
  Index first = 0;

  std::vector<Parameter> parameters() const {
    check_fields();
    const Initial start{InitialKind::normal, 0, init};
    const Index c = coordinate > 0 ? coordinate : width, s = coordinate > 0 ? shape : width;
    return {{"x_table", {rows, c}, start, {}},
            {"y_table", {rows, c}, start, {}},
            {"h_table", {rows, s}, start, {}},
            {"w_table", {rows, s}, start, {}}};
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("boxes", needed.size(), p.size());
    std::array<TensorView, 4> table;
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

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient> g,
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

  // Named settings of programs (boxes_presets.h).
  POSENC_API static std::vector<Preset<Boxes>> presets();

  bool operator==(const Boxes&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 1, .max = 1e6, .required = true});
    v("rows", s.rows, Field{.doc = "rows of each table", .min = 1, .max = 1e9});
    v("coordinate", s.coordinate, Field{.doc = "channels of a corner, 0 = summed", .min = 0});
    v("shape", s.shape, Field{.doc = "channels of a height or width", .min = 0});
    v("clip", s.clip, Field{.doc = "heights and widths are clipped into the table"});
    v("init", s.init, Field{.doc = "deviation of the tables at the start", .min = 0});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  struct Part {
    std::size_t table;
    std::int32_t axis, minus;
  };
  static constexpr std::array<Part, 6> kParts{
      {{0, 0, -1}, {1, 1, -1}, {0, 2, -1}, {1, 3, -1}, {2, 3, 1}, {3, 2, 0}}};
  void check_fields() const {
    if (width < 1) refuse("boxes", "width must be positive", width);
    if (rows < 1 || rows > kUnbounded / 16 / width)
      refuse("boxes", "rows must be positive and the tables must fit memory", rows);
    if (coordinate < 0 || shape < 0 || coordinate > width || shape > width)
      refuse("boxes", "coordinate and shape must lie between 0 and width", coordinate);
    if (coordinate == 0 ? shape != 0 : shape == 0 || 4 * coordinate + 2 * shape != width)
      refuse("boxes", "width must be 4 coordinate + 2 shape, or both 0 for a sum", width);
  }
};
static_assert(AbsoluteScheme<Boxes>);

}  // namespace posenc
