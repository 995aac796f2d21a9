// SPDX-License-Identifier: Apache-2.0
// A learned table for each axis: axial positions of Reformer (Kitaev et al., arXiv:2001.04451; Ho et al.,
// arXiv:1912.12180), DETR's learned variant, tensor2tensor's learned N-D signal.
//   summed        row(p) = sum over axes a of T_a[i_a],        T_a [shape_a, width]
//   concatenated  row(p) = [T_o0[i_o0] | T_o1[i_o1] | ...],    T_a [shape_a, widths_a], o = order
// i_a is position axis a, or with `flat` the a-th digit of one number that counts the grid row by
// row (Reformer, axial-positional-embedding): p = (i_0 shape_1 + i_1) shape_2 + i_2 ...
//   Reformer  flat, widths given     DETR  order [1,0]: channels of x before those of y
// Implementation: src/absolute/learned_axes.cpp.
#pragma once
#include <vector>

#include "posenc/absolute/initial.h"
#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

struct LearnedAxes {
  static constexpr Card card{"learned_axes", "a learned table for each axis", "arXiv:1912.12180",
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

  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                            std::span<const TensorView> dp) const;

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
    v("init", s.init, Field{.doc = "initial deviation of the tables", .min = 0});
    v("initializer", s.initializer, Field{.doc = "initial distribution of the tables"});
    v("compose", s.compose, Field{.doc = "how the encoding is combined with the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  std::size_t axis_at(std::size_t k) const;
  Index channels(std::size_t a) const { return widths.empty() ? width : widths[a]; }
  void check_fields() const;
};

}  // namespace posenc::v0
