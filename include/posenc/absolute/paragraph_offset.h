// SPDX-License-Identifier: Apache-2.0
// Position and paragraph. POSENC'S OWN DEFINITION: tutorials mention "base, paragraph and local window"
// without a formula or a source. Position axes: 0 the token, p; 1 its paragraph, s.
//   table   row = PE(p) + S[s],          S [paragraphs, width], learned
//   shift   row = PE(p + omega s),       omega in tokens a paragraph, fixed or learned
// PE is the sinusoid of arXiv:1706.03762. The local window is relative/local_window.h.
// Implementation: src/absolute/paragraph_offset.cpp.
#pragma once

#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

enum class ParagraphMode : std::uint8_t { table, shift };
template <>
struct EnumNames<ParagraphMode> {
  static constexpr std::array<std::string_view, 2> value{"table", "shift"};
};

struct ParagraphOffset {
  static constexpr Card card{"paragraph_offset", "position and paragraph", "posenc",
                             "own definition"};
  Index width = 0;
  ParagraphMode mode = ParagraphMode::table;
  Index paragraphs = 0;        // rows of the table
  double omega = 0;            // shift: tokens a paragraph; where it is learned, its start
  bool learned_omega = false;  // a parameter, `omega`
  SineLayout layout = SineLayout::interleaved;
  double base = 10000, input_gain = 1, init = 0.02;
  Index first = 0;

  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                            std::span<const TensorView> dp) const;

  bool operator==(const ParagraphOffset&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 2, .max = 1e6, .required = true});
    v("mode", s.mode, Field{.doc = "a table of paragraphs, or a shift of the position"});
    v("paragraphs", s.paragraphs, Field{.doc = "rows of the table", .min = 0, .max = 1e9});
    v("omega", s.omega, Field{.doc = "shift of a paragraph", .unit = "tokens"});
    v("learned_omega", s.learned_omega, Field{.doc = "the shift is learned"});
    v("layout", s.layout, Field{.doc = "order of sines and cosines"});
    v("base", s.base, Field{.doc = "longest timescale", .min = 1e-300});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("init", s.init, Field{.doc = "initial deviation of the table", .min = 0});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  void check_fields() const;
};

}  // namespace posenc::v0
