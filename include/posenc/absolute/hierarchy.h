// SPDX-License-Identifier: Apache-2.0
// Token, sentence, paragraph: an id a level. Segatron, Bai et al., arXiv:2004.14996, section 3.
//   added         row = sum over levels l of R_l[p_l]
//   concatenated  row = [R_0[p_0] | R_1[p_1] | ...], widths_l channels each
// R_l is a learned table of rows_l rows, or where rows_l is 0 the sinusoid of the level. Any number
// of levels up to 8: phrases, sections. Segatron-BERT adds three tables; Segatron-XL concatenates
// three sinusoids (halves within each), widths floor(width / 3) made even, the rest for the last.
#pragma once
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

struct Hierarchy {
  static constexpr Card card{"hierarchy", "token, sentence, paragraph", "arXiv:2004.14996",
                             "sec. 3"};
  Index width = 0;
  std::vector<Index> rows;    // of each level's table; 0: a sinusoid
  std::vector<Index> widths;  // channels of each level; empty: all have `width` and are added
  SineLayout layout = SineLayout::interleaved;
  double base = 10000;
  Beyond beyond = Beyond::error;
  double input_gain = 1;
  double init = 0.02;
  Index first = 0;

  std::vector<Parameter> parameters() const {
    check_fields();
    std::vector<Parameter> list;
    for (std::size_t l = 0; l < rows.size(); ++l)
      if (rows[l] > 0)
        list.push_back({"level" + std::to_string(l),
                        {rows[l], channels(l)},
                        {InitialKind::normal, 0, init},
                        {}});
    return list;
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("hierarchy", needed.size(), p.size());
    Index at = first;
    std::size_t next = 0;
    for (std::size_t l = 0; l < rows.size(); ++l) {
      InputTerm t;
      t.axis = static_cast<std::int32_t>(l);
      t.first = at;
      t.width = channels(l);
      if (rows[l] > 0) {
        t.table = out.table(parameter_values("hierarchy", needed[next], p[next]), rows[l], t.width);
        t.beyond = beyond;
        ++next;
      } else {
        t.phase = out.spectrum(geometric_spectrum(base, t.width));
        t.layout = layout;
      }
      if (!widths.empty()) at += t.width;
      out.terms.push_back(t);
    }
    out.input_gain *= input_gain;
  }

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient> g,
                 std::span<const TensorView> dp) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("hierarchy", needed.size(), p.size());
    std::vector<std::vector<double>> d;

    for (std::size_t l = 0; l < rows.size(); ++l) {
      if (rows[l] == 0) continue;
      d.push_back(gradient_values("hierarchy", gradient_of("hierarchy", g, l).table,
                                  {rows[l], channels(l)}));
    }
    accumulate("hierarchy", needed, dp, d);
  }

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
    v("layout", s.layout, Field{.doc = "where sines and cosines stand"});
    v("base", s.base, Field{.doc = "longest timescale", .min = 1e-300});
    v("beyond", s.beyond, Field{.doc = "an id without a row"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("init", s.init, Field{.doc = "deviation of the tables at the start", .min = 0});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  Index channels(std::size_t l) const { return widths.empty() ? width : widths[l]; }
  void check_fields() const {
    if (width < 1) refuse("hierarchy", "width must be positive", width);
    if (rows.empty() || rows.size() > 8)
      refuse("hierarchy", "there must be 1 to 8 levels", static_cast<Index>(rows.size()));
    Index sum = 0;
    for (const Index w : widths)
      sum = w < 1 || w > width ? width + 1 : std::min(sum + w, width + 1);
    if (!widths.empty() && (widths.size() != rows.size() || sum != width))
      refuse("hierarchy", "widths must be positive, one a level, and sum to width", sum);
    for (std::size_t l = 0; l < rows.size(); ++l) {
      if (rows[l] < 0 || rows[l] > kUnbounded / 16 / width)
        refuse("hierarchy", "rows must not be negative and the tables must fit memory", rows[l]);
      if (rows[l] == 0 && channels(l) % 2 != 0)
        refuse("hierarchy", "a sinusoid needs an even width", channels(l));
    }
    if (layout == SineLayout::sines || layout == SineLayout::cosines)
      refuse("hierarchy", "layout must hold sines and cosines", enum_text(layout));
    if (beyond == Beyond::extend)
      refuse("hierarchy", "beyond must be error, clamp or zero", enum_text(beyond));
    if (!std::isfinite(base) || base <= 0)
      refuse("hierarchy", "base must be finite and positive", base);
    if (!std::isfinite(input_gain)) refuse("hierarchy", "input_gain must be finite", input_gain);
  }
};
static_assert(AbsoluteScheme<Hierarchy>);

}  // namespace posenc
