// SPDX-License-Identifier: Apache-2.0
// A learned table of positions. Gehring et al., arXiv:1705.03122; BERT, arXiv:1810.04805; GPT-2:
//   y = input_gain x + gain P[p + offset],  P [rows, width]
// offset: BERT and GPT-2 0, OPT and BART 2. Gradient of P: the sum of d y over the tokens that read
// a row; none for the padding row. learned_presets.h has the settings of programs.
// Implementation: src/absolute/learned.cpp.
#pragma once
#include <vector>

#include "posenc/absolute/initial.h"
#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

struct Learned {
  static constexpr Card card{"learned", "learned positions", "arXiv:1705.03122", "sec. 3.1"};
  static constexpr bool rows_count_positions = true;
  Index width = 0, rows = 0;
  Index offset = 0;
  Beyond beyond = Beyond::error;  // BERT, GPT-2 fail; OpenNMT-tf, Marian clamp; tensor2tensor zero
  double alpha = 0.4;             // of Beyond::extend: bert4keras, 0 < alpha < 1, not 1/2
  std::optional<Index> zero_position{};  // padding: zero and without gradient
  std::optional<Index> frozen_row{};     // padding row that is read but not trained: RoBERTa, BART
  bool l2norm = false;                   // rows are divided by their norm: x-transformers
  double gain = 1, input_gain = 1;
  double init = 0.02;  // BERT, GPT-2 in transformers, DeBERTa
  TableInitial initializer = TableInitial::normal;
  Compose compose = Compose::add;
  Index axis = 0, first = 0;

  POSENC_API std::vector<Parameter> parameters() const;
  // The initial table; the frozen row is zero, as in programs with a padding row.
  POSENC_API std::vector<double> start(const Draws& draws) const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                            std::span<const TensorView> dp) const;

  bool operator==(const Learned&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 1, .max = 1e6, .required = true});
    v("rows", s.rows, Field{.doc = "rows of the table", .min = 1, .max = 1e9, .required = true});
    v("offset", s.offset, Field{.doc = "added to the position", .unit = "tokens"});
    v("beyond", s.beyond, Field{.doc = "a position without a row"});
    v("alpha", s.alpha, Field{.doc = "weight of the slow part beyond=extend", .min = 0, .max = 1});
    v("zero_position", s.zero_position, Field{.doc = "position whose row is zero"});
    v("frozen_row", s.frozen_row, Field{.doc = "row without gradient", .min = 0});
    v("l2norm", s.l2norm, Field{.doc = "rows are divided by their norm"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("init", s.init, Field{.doc = "initial deviation of the table", .min = 0});
    v("initializer", s.initializer, Field{.doc = "initial distribution of the table"});
    v("compose", s.compose, Field{.doc = "how the encoding is combined with the embedding"});
    v("axis", s.axis, Field{.doc = "axis of the positions", .min = 0, .max = 7});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

  // Named settings of programs, at width 768 (learned_presets.h).
  POSENC_API static std::vector<Preset<Learned>> presets();

 private:
  void check_fields() const;
  template <class F>
  void for_rows(std::vector<double>& values, F&& f) const;
};

}  // namespace posenc::v0
