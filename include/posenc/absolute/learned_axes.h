// SPDX-License-Identifier: Apache-2.0
// A learned table an axis: axial positions of Reformer (Kitaev et al., arXiv:2001.04451; Ho et al.,
// arXiv:1912.12180), DETR's learned twin, tensor2tensor's learned N-D signal.
//   summed        row(p) = sum over axes a of T_a[i_a],        T_a [shape_a, width]
//   concatenated  row(p) = [T_o0[i_o0] | T_o1[i_o1] | ...],    T_a [shape_a, widths_a], o = order
// i_a is position axis a, or with `flat` the a-th digit of one number that counts the grid row by
// row (Reformer, axial-positional-embedding): p = (i_0 shape_1 + i_1) shape_2 + i_2 ...
//   Reformer  flat, widths given     DETR  order [1,0]: channels of x before those of y
#pragma once
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/absolute/initial.h"
#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

struct LearnedAxes {
  static constexpr Card card{"learned_axes", "a learned table an axis", "arXiv:1912.12180",
                             "sec. 3.2"};
  Index width = 0;
  std::vector<Index> shape;   // rows of each axis' table
  std::vector<Index> widths;  // channels of each; empty: all have `width` and are summed
  std::vector<Index> order;   // of the axes along the channels; empty: 0, 1, ...
  bool flat = false;
  Beyond beyond = Beyond::error;  // tensor2tensor: zero
  double gain = 1, input_gain = 1;
  double init = 0.02;
  TableInitial initializer = TableInitial::normal;
  Compose compose = Compose::add;
  Index first = 0;

  std::vector<Parameter> parameters() const {
    check_fields();
    std::vector<Parameter> list;
    for (std::size_t a = 0; a < shape.size(); ++a)
      list.push_back({"axis" + std::to_string(a),
                      {shape[a], channels(a)},
                      initial_of(initializer, init, shape[a], channels(a)),
                      {}});
    return list;
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("learned_axes", needed.size(), p.size());
    Index at = first;
    for (std::size_t k = 0; k < shape.size(); ++k) {
      const std::size_t a = axis_at(k);
      InputTerm t;
      t.table = out.table(parameter_values("learned_axes", needed[a], p[a]), shape[a], channels(a));
      t.axis = flat ? 0 : static_cast<std::int32_t>(a);
      if (flat) {
        for (std::size_t later = a + 1; later < shape.size(); ++later) t.divide *= shape[later];
        t.wrap = a == 0 ? 0 : shape[a];
      }
      t.beyond = beyond;
      t.first = at;
      t.width = channels(a);
      t.compose = compose;
      t.gain = gain;
      if (!widths.empty() && compose != Compose::concat) at += t.width;
      out.terms.push_back(t);
    }
    out.input_gain *= input_gain;
  }

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient> g,
                 std::span<const TensorView> dp) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("learned_axes", needed.size(), p.size());
    std::vector<std::vector<double>> d(needed.size());
    for (std::size_t k = 0; k < shape.size(); ++k) {
      const std::size_t a = axis_at(k);
      add_to(d[a], gradient_values("learned_axes", gradient_of("learned_axes", g, k).table,
                                   {shape[a], channels(a)}));
    }
    accumulate("learned_axes", needed, dp, d);
  }

  // Named settings of programs (learned_axes_presets.h).
  POSENC_API static std::vector<Preset<LearnedAxes>> presets();

  bool operator==(const LearnedAxes&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 1, .max = 1e6, .required = true});
    v("shape", s.shape, Field{.doc = "rows of each table", .min = 1, .max = 1e9, .required = true});
    v("widths", s.widths, Field{.doc = "channels of each table; none: summed", .min = 1});
    v("order", s.order, Field{.doc = "order of the axes along the channels", .min = 0, .max = 7});
    v("flat", s.flat, Field{.doc = "one number counts the grid row by row"});
    v("beyond", s.beyond, Field{.doc = "a position without a row"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("init", s.init, Field{.doc = "deviation of the tables at the start", .min = 0});
    v("initializer", s.initializer, Field{.doc = "law of the tables at the start"});
    v("compose", s.compose, Field{.doc = "how the encoding meets the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  std::size_t axis_at(std::size_t k) const {
    return order.empty() ? k : static_cast<std::size_t>(order[k]);
  }
  Index channels(std::size_t a) const { return widths.empty() ? width : widths[a]; }
  void check_fields() const {
    if (width < 1) refuse("learned_axes", "width must be positive", width);
    if (shape.empty() || shape.size() > 8)
      refuse("learned_axes", "there must be 1 to 8 axes", static_cast<Index>(shape.size()));
    for (const Index n : shape)
      if (n < 1 || n > Index{1} << 30)
        refuse("learned_axes", "each table must have 1 to 2^30 rows", n);
    if (!widths.empty()) {
      Index sum = 0;
      for (const Index w : widths)
        sum = w < 1 || w > width ? width + 1 : std::min(sum + w, width + 1);
      if (widths.size() != shape.size() || sum != width)
        refuse("learned_axes", "widths must be positive, one an axis, and sum to width", sum);
    } else if (compose != Compose::add && shape.size() > 1) {
      refuse("learned_axes", "tables that are summed can only be added", enum_text(compose));
    }
    std::vector<bool> seen(shape.size(), false);
    if (!order.empty() && order.size() != shape.size())
      refuse("learned_axes", "order must name every axis once", static_cast<Index>(order.size()));
    for (const Index a : order) {
      if (a < 0 || a >= static_cast<Index>(shape.size()) || seen[static_cast<std::size_t>(a)])
        refuse("learned_axes", "order must name every axis once", a);
      seen[static_cast<std::size_t>(a)] = true;
    }
    if (beyond == Beyond::extend || (flat && beyond != Beyond::error))
      refuse("learned_axes", "beyond must be error, or clamp or zero where not flat",
             enum_text(beyond));
    if (!std::isfinite(gain)) refuse("learned_axes", "gain must be finite", gain);
    if (!std::isfinite(input_gain)) refuse("learned_axes", "input_gain must be finite", input_gain);
  }
};
static_assert(AbsoluteScheme<LearnedAxes>);

}  // namespace posenc
