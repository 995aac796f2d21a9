// SPDX-License-Identifier: Apache-2.0
// A learned table of positions. Gehring et al., arXiv:1705.03122; BERT, arXiv:1810.04805; GPT-2:
//   y = input_gain x + gain P[p + offset],  P [rows, width]
// offset: BERT and GPT-2 0, OPT and BART 2. Gradient of P: the sum of d y over the tokens that read
// a row; none for the padding row.
#pragma once
#include <cmath>

#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

struct Learned {
  static constexpr Card card{"learned", "learned positions", "arXiv:1705.03122", "sec. 3.1"};
  Index width = 0, rows = 0;
  Index offset = 0;
  Beyond beyond = Beyond::error;  // BERT, GPT-2 fail; OpenNMT-tf, Marian clamp; tensor2tensor zero
  std::optional<Index> zero_position{};  // padding: zero and without gradient
  double gain = 1, input_gain = 1;
  double init = 0.02;  // BERT, GPT-2 in transformers, DeBERTa
  Compose compose = Compose::add;
  Index axis = 0, first = 0;

  std::vector<Parameter> parameters() const {
    check_fields();
    return {{"table", {rows, width}, {InitialKind::normal, 0, init}, {}}};
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
    check_parameter_count("learned", 1, p.size());
    InputTerm t;
    t.table = out.table(parameter_values("learned", parameters()[0], p[0]), rows, width);
    t.axis = static_cast<std::int32_t>(axis);
    t.offset = offset;
    t.beyond = beyond;
    t.zero_position = zero_position;
    t.first = first;
    t.width = width;
    t.compose = compose;
    t.gain = gain;
    out.terms.push_back(t);
    out.input_gain *= input_gain;
  }

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient> g,
                 std::span<const TensorView> dp) const {
    check_parameter_count("learned", 1, p.size());
    check_parameter_count("learned", 1, dp.size());
    accumulate("learned", parameters()[0], dp[0], gradient_values(g[0].table, rows * width));
  }

  bool operator==(const Learned&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 1, .max = 1e6, .required = true});
    v("rows", s.rows, Field{.doc = "rows of the table", .min = 0, .max = 1e9, .required = true});
    v("offset", s.offset, Field{.doc = "added to the position", .unit = "tokens"});
    v("beyond", s.beyond, Field{.doc = "a position without a row"});
    v("zero_position", s.zero_position, Field{.doc = "position whose row is zero"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("init", s.init, Field{.doc = "deviation of the table at the start", .min = 0});
    v("compose", s.compose, Field{.doc = "how the encoding meets the embedding"});
    v("axis", s.axis, Field{.doc = "axis of the positions", .min = 0, .max = 7});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  void check_fields() const {
    if (width < 1) refuse("learned", "width must be positive", width);
    if (rows < 0 || rows > kUnbounded / 16 / width)
      refuse("learned", "rows must not be negative and the table must fit memory", rows);
    if (!std::isfinite(gain)) refuse("learned", "gain must be finite", gain);
    if (!std::isfinite(input_gain)) refuse("learned", "input_gain must be finite", input_gain);
    if (axis < 0 || axis > 7) refuse("learned", "axis must lie between 0 and 7", axis);
  }
};
static_assert(AbsoluteScheme<Learned>);

}  // namespace posenc
