// SPDX-License-Identifier: Apache-2.0
// Token, sentence, paragraph: an id a level. Segatron, Bai et al., arXiv:2004.14996, section 3.
//   added         row = sum over levels l of R_l[p_l]
//   concatenated  row = [R_0[p_0] | R_1[p_1] | ...], widths_l channels each
// R_l is a learned table of rows_l rows, or where rows_l is 0 the sinusoid of the level. Any number
// of levels up to 8: phrases, sections. Segatron-BERT adds three tables; Segatron-XL concatenates
// three sinusoids (halves within each), widths floor(width / 3) made even, the rest for the last.
// Implementation: src/absolute/hierarchy.cpp.
#pragma once
#include <vector>

#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

struct Hierarchy {
  static constexpr Card card{"hierarchy", "positions of token, sentence, paragraph",
                             "arXiv:2004.14996", "sec. 3"};
  Index width = 0;
  std::vector<Index> rows;    // of each level's table; 0: a sinusoid
  std::vector<Index> widths;  // channels of each level; empty: all have `width` and are added
  SineLayout layout = SineLayout::interleaved;
  double base = 10000;
  Beyond beyond = Beyond::error;
  double input_gain = 1;
  double init = 0.02;
  Index first = 0;

  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                            std::span<const TensorView> dp) const;

  // Named settings of programs (hierarchy_presets.h).
  POSENC_API static std::vector<Preset<Hierarchy>> presets();

  bool operator==(const Hierarchy&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 1, .max = 1e6, .required = true});
    v("rows", s.rows,
      Field{.doc = "rows of each level, 0 = a sinusoid", .min = 0, .max = 1e9, .required = true});
    v("widths", s.widths, Field{.doc = "channels of each level; none: added", .min = 1});
    v("layout", s.layout, Field{.doc = "order of sines and cosines"});
    v("base", s.base, Field{.doc = "longest timescale", .min = 1e-300});
    v("beyond", s.beyond, Field{.doc = "an id without a row"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("init", s.init, Field{.doc = "initial deviation of the tables", .min = 0});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  Index channels(std::size_t l) const { return widths.empty() ? width : widths[l]; }
  void check_fields() const;
};

}  // namespace posenc::v0
