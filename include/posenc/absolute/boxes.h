// SPDX-License-Identifier: Apache-2.0
// Boxes of words on a page. LayoutLM, Xu et al., arXiv:1912.13318; LayoutLMv3, arXiv:2204.08387.
// Position axes: x0, y0, x1, y1. Both corners read the same table of an axis.
//   summed (v1)        X[x0] + Y[y0] + X[x1] + Y[y1] + H[y1 - y0] + W[x1 - x0]
//   concatenated (v3)  [X[x0] | Y[y0] | X[x1] | Y[y1] | H | W], coordinate and shape channels each
// Heights and widths outside the table: an error in v1 and in LayoutLMv2 of transformers 5.23,
// clipped in v3.
// Implementation: src/absolute/boxes.cpp.
#pragma once
#include <array>
#include <vector>

#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

struct Boxes {
  static constexpr Card card{"boxes", "boxes on a page", "arXiv:1912.13318", "sec. 2.2"};
  Index width = 0;
  Index rows = 1024;                // coordinates 0 .. rows - 1 of every table
  Index coordinate = 0, shape = 0;  // channels of a corner and of a size; 0: summed
  bool clip = false;                // heights and widths into the table
  double init = 0.02;
  Index first = 0;

  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                            std::span<const TensorView> dp) const;

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
    v("init", s.init, Field{.doc = "initial deviation of the tables", .min = 0});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  struct Part {
    std::size_t table;
    std::int32_t axis, minus;
  };
  static constexpr std::array<Part, 6> kParts{
      {{0, 0, -1}, {1, 1, -1}, {0, 2, -1}, {1, 3, -1}, {2, 3, 1}, {3, 2, 0}}};
  void check_fields() const;
};

}  // namespace posenc::v0
