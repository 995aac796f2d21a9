// SPDX-License-Identifier: Apache-2.0
// Continuous axial positions: a small network of each coordinate, summed over the axes
// (lucidrains/axial-positional-embedding, ContinuousAxialPositionalEmbedding; the same idea for one
// axis is the continuous position bias of Swin V2, arXiv:2111.09883, at the input):
//   y = input_gain x + gain sum over axes a of MLP_a(c_a),  MLP: `depth` layers of `hidden` units
//   with silu, then one to `width`
#pragma once
#include <cmath>
#include <string>

#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

struct ContinuousAxial {
  static constexpr Card card{"continuous_axial", "continuous axial positions",
                             "lucidrains/axial-positional-embedding", ""};
  Index width = 0, axes = 2, hidden = 0, depth = 2;
  Activation activation = Activation::silu;
  double gain = 1, input_gain = 1;
  Compose compose = Compose::add;
  Index first = 0;

  // weight_A_L and bias_A_L of axis A and layer L, in this order.
  std::vector<Parameter> parameters() const {
    check_fields();
    std::vector<Parameter> all;
    for (Index a = 0; a < axes; ++a)
      for (Index l = 0; l <= depth; ++l) {
        const std::string at = "_" + std::to_string(a) + "_" + std::to_string(l);
        const Index in = l == 0 ? 1 : hidden, out = l == depth ? width : hidden;
        const double b = 1 / std::sqrt(static_cast<double>(in));
        all.push_back({"weight" + at, {out, in}, {InitialKind::uniform, -b, b}, {}});
        all.push_back({"bias" + at, {out}, {InitialKind::uniform, -b, b}, {}});
      }
    return all;
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("continuous_axial", needed.size(), p.size());
    const auto value = [&](std::size_t i) {
      return parameter_values("continuous_axial", needed[i], p[i]);
    };
    std::size_t next = 0;
    for (Index a = 0; a < axes; ++a) {
      std::vector<double> pick(static_cast<std::size_t>(axes + 1), 0.0);
      pick[static_cast<std::size_t>(a)] = 1;
      InputTerm t;
      t.affine = out.table(std::move(pick), axes + 1, 1);
      t.source_width = 1;
      for (Index l = 0; l <= depth; ++l, next += 2)
        t.layers.push_back(out.dense(value(next), value(next + 1), l == depth ? width : hidden,
                                     l == depth ? Activation::identity : activation));
      t.width = width;
      t.compose = compose;
      t.gain = gain;
      t.first = first;
      out.terms.push_back(std::move(t));
    }
    out.input_gain *= input_gain;
  }

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient> g,
                 std::span<const TensorView> dp) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("continuous_axial", needed.size(), p.size());
    std::vector<std::vector<double>> d(needed.size());
    const auto per_axis = static_cast<std::size_t>(2 * (depth + 1));
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const std::vector<DenseGradient>& layers =
          gradient_of("continuous_axial", g, i / per_axis).layers;
      if (layers.empty()) continue;
      if (static_cast<Index>(layers.size()) != depth + 1)
        refuse("continuous_axial",
               "layers of a gradient in g must be " + std::to_string(depth + 1) + " or none",
               static_cast<Index>(layers.size()));
      const DenseGradient& l = layers[i % per_axis / 2];
      const bool weight = i % 2 == 0;
      d[i] =
          gradient_values("continuous_axial", weight ? l.weight : l.bias,
                          {weight ? needed[i].shape : std::vector<Index>{1, needed[i].shape[0]}});
    }
    accumulate("continuous_axial", needed, dp, d);
  }

  bool operator==(const ContinuousAxial&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 1, .max = 1e6, .required = true});
    v("axes", s.axes, Field{.doc = "axes of the positions", .min = 1, .max = 8});
    v("hidden", s.hidden, Field{.doc = "hidden units", .min = 1, .max = 1e6, .required = true});
    v("depth", s.depth, Field{.doc = "hidden layers", .min = 1, .max = 64});
    v("activation", s.activation, Field{.doc = "of the hidden layers"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("compose", s.compose, Field{.doc = "how the encoding meets the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  void check_fields() const {
    constexpr const char* who = "continuous_axial";
    if (activation > Activation::relu)
      refuse(who, "activation must be identity, gelu, silu or relu");
    if (width < 1 || width > 1000000) refuse(who, "width must be positive", width);
    if (axes < 1 || axes > 8) refuse(who, "axes must lie between 1 and 8", axes);
    if (hidden < 1 || hidden > 1000000) refuse(who, "hidden must be positive", hidden);
    if (depth < 1 || depth > 64) refuse(who, "depth must lie between 1 and 64", depth);
    if (compose != Compose::add && axes > 1)
      refuse(who, "networks that are summed can only be added", enum_text(compose));
    for (const double x : {gain, input_gain})
      if (!std::isfinite(x)) refuse(who, "gains must be finite", x);
  }
};
static_assert(AbsoluteScheme<ContinuousAxial>);

}  // namespace posenc
