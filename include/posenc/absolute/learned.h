// SPDX-License-Identifier: Apache-2.0
// A learned table of positions. Gehring et al., arXiv:1705.03122; BERT, arXiv:1810.04805; GPT-2:
//   y = input_gain x + gain P[p + offset],  P [rows, width]
// offset: BERT and GPT-2 0, OPT and BART 2. Gradient of P: the sum of d y over the tokens that read
// a row; none for the padding row. learned_presets.h has the settings of programs.
#pragma once
#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/absolute/initial.h"
#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

struct Learned {
  static constexpr Card card{"learned", "learned positions", "arXiv:1705.03122", "sec. 3.1"};
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

  std::vector<Parameter> parameters() const {
    check_fields();
    return {{"table", {rows, width}, initial_of(initializer, init, rows, width), {}}};
  }
  // The table at the start; the frozen row is zero, as programs with a padding row make it.
  std::vector<double> start(const Draws& draws) const {
    std::vector<double> v = initial_values(parameters()[0], draws);
    if (frozen_row)
      for (Index c = 0; c < width; ++c) v[static_cast<std::size_t>(*frozen_row * width + c)] = 0;
    return v;
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
    check_parameter_count("learned", 1, p.size());
    std::vector<double> values = parameter_values("learned", parameters()[0], p[0]);
    if (l2norm)
      for_rows(values, [](double* row, double norm, Index n) {
        for (Index c = 0; c < n; ++c) row[c] /= norm;
      });
    InputTerm t;
    t.table = out.table(std::move(values), rows, width);
    t.axis = static_cast<std::int32_t>(axis);
    t.offset = offset;
    t.beyond = beyond;
    t.extension = beyond == Beyond::extend ? alpha / (1 - alpha) : 0;
    t.frozen_row = frozen_row;
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
    std::vector<double> d =
        gradient_values("learned", gradient_of("learned", g, 0).table, {rows, width});
    if (l2norm) {  // of v / |v|: (d - u (u . d)) / |v|
      std::vector<double> values = parameter_values("learned", parameters()[0], p[0]);
      double* to = d.data();
      for_rows(values, [&](const double* row, double norm, Index n) {
        double along = 0;
        for (Index c = 0; c < n; ++c) along += to[c] * row[c] / norm;
        for (Index c = 0; c < n; ++c) to[c] = (to[c] - along * row[c] / norm) / norm;
        to += n;
      });
    }
    accumulate("learned", parameters()[0], dp[0], d);
  }

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
    v("init", s.init, Field{.doc = "deviation of the table at the start", .min = 0});
    v("initializer", s.initializer, Field{.doc = "law of the table at the start"});
    v("compose", s.compose, Field{.doc = "how the encoding meets the embedding"});
    v("axis", s.axis, Field{.doc = "axis of the positions", .min = 0, .max = 7});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

  // Named settings of programs, at width 768 (learned_presets.h).
  POSENC_API static std::vector<Preset<Learned>> presets();

 private:
  void check_fields() const {
    if (width < 1) refuse("learned", "width must be positive", width);
    if (rows < 1 || rows > kUnbounded / 16 / width)
      refuse("learned", "rows must be positive and the table must fit memory", rows);
    if (!std::isfinite(gain)) refuse("learned", "gain must be finite", gain);
    if (!std::isfinite(input_gain)) refuse("learned", "input_gain must be finite", input_gain);
    if (axis < 0 || axis > 7) refuse("learned", "axis must lie between 0 and 7", axis);
    if (!(init >= 0 && std::isfinite(init)))
      refuse("learned", "init must be finite and not negative", init);
    if (beyond == Beyond::extend && (!(alpha > 0 && alpha < 1) || alpha == 0.5))
      refuse("learned", "alpha must lie between 0 and 1 and not be 1/2", alpha);
    if (beyond == Beyond::extend && offset != 0)  // the rows before it are padding's, no positions
      refuse("learned",
             "offset must be 0 with beyond=extend (extend_table and posenc extend keep the first "
             "rows: --prefix)",
             offset);
    if (frozen_row && (*frozen_row < 0 || *frozen_row >= rows))
      refuse("learned", "frozen_row must be a row of the table", *frozen_row);
  }
  // Every row with its norm, at least 1e-12 as in torch's normalize.
  template <class F>
  void for_rows(std::vector<double>& values, F&& f) const {
    for (Index r = 0; r < rows; ++r) {
      double* row = values.data() + r * width;
      double sum = 0;
      for (Index c = 0; c < width; ++c) sum += row[c] * row[c];
      f(row, std::max(std::sqrt(sum), 1e-12), width);
    }
  }
};
static_assert(AbsoluteScheme<Learned>);

}  // namespace posenc
