// SPDX-License-Identifier: Apache-2.0
// posenc plot --kind rows of what turns: cosine and sine of every pair and position; and what the
// pictures of what turns share.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "rotary.h"
#include "row_axis.h"

namespace posenc::report {

Rule context_rule(Index context, bool vertical) {
  return {"context " + with_commas(context), static_cast<double>(context), vertical};
}

void require_two_tokens(std::optional<Index> context, const std::string& kind) {
  if (context && *context < 2)
    throw UsageError(fmt::format(
        "--kind {} needs a --context of at least 2: one token has no other to be far from, got {}",
        kind, *context));
}

std::string unturned(const RotarySpec& spec) {
  Index pairs = 0, still = 0;
  for (const RotaryBlock& b : spec.blocks)
    for (Index i = 0; i < b.pairs(); ++i, ++pairs) {
      bool turns = false;
      for (Index row = 0; row < b.spectrum.heads * b.spectrum.axes; ++row)
        turns = turns || b.spectrum.frequency[static_cast<std::size_t>(row * b.pairs() + i)] != 0;
      still += turns ? 0 : 1;
    }
  // A scheme that is no rotation has one frequency a channel.
  if (spec.head_dim == 0)
    return still == 0 ? ""
                      : fmt::format("{} of {} channels do not rotate: frequency 0", still, pairs);
  const Index outside = spec.head_dim - 2 * pairs;
  if (still + outside == 0) return "";
  std::string why;
  if (still > 0)
    why = fmt::format("{} of frequency 0",
                      still == 1 ? "1 pair is" : fmt::format("{} pairs are", still));
  if (outside > 0)
    why += fmt::format("{}{} lie outside the pairs", why.empty() ? "" : ", ", outside);
  return fmt::format("{} of {} channels do not rotate: {}", 2 * still + outside, spec.head_dim,
                     why);
}

namespace {

Figure heat_map(const Spectrum& s, const PositionList& list, bool sine, const std::string& title,
                const std::string& note) {
  const Positions view = spread_over_axes(list, s.axes);
  const Index rows = view.batch * view.count;
  Array a = make_array(DType::f32, {rows, s.pairs()});
  phase_rows(s, view, sine ? TensorView{} : a.view(), sine ? a.view() : TensorView{},
             TableLayout::half);
  HeatMap h;
  h.title = sine ? "Sine of every pair and position" : "Cosine of every pair and position";
  h.subtitle = title;
  h.x = {"pair", "index", false, {}, {}, true};
  name_rows(h, list);
  h.note = note;
  h.value_label = sine ? "sin" : "cos";
  h.rows = static_cast<int>(rows), h.columns = static_cast<int>(s.pairs());
  h.limit = std::max(1.0, std::abs(s.gain));
  const std::vector<double> v = a.doubles();
  h.values.assign(v.begin(), v.end());
  return {std::move(h), "Fast pairs on the left, slow ones on the right."};
}

// Positions in which half of the pairs complete a turn, within what a picture shows.
Index usual_rows(const Drawn& d) {
  std::vector<double> f = flat(d.spec);
  std::erase(f, 0.0);
  Index rows = 64;
  if (!f.empty()) {
    std::nth_element(f.begin(), f.begin() + static_cast<std::ptrdiff_t>(f.size() / 2), f.end());
    const double wavelength = 2 * std::numbers::pi / f[f.size() / 2];
    rows = static_cast<Index>(std::ceil(std::clamp(wavelength, 64.0, 1024.0)));
  }
  return std::min(rows, d.context.value_or(rows));
}

}  // namespace

std::vector<Figure> plot_rotary_rows(const Drawn& d, const std::string& text) {
  const PositionList list = text.empty() ? first_positions(usual_rows(d)) : read_positions(text);
  std::vector<Figure> out;
  for (std::size_t b = 0; b < d.spec.blocks.size(); ++b) {
    const Spectrum& s = d.spec.blocks[b].spectrum;
    check_drawable(list.owned.batch * list.owned.count(), s.pairs());
    if (s.heads != 1) throw InputError("rows draws one spectrum for all heads");
    const std::string title =
        d.spec.blocks.size() == 1 ? d.title : fmt::format("{}, block {}", d.title, b);
    for (const bool sine : {false, true})
      out.push_back(heat_map(s, list, sine, title, unturned(d.spec)));
  }
  return out;
}

}  // namespace posenc::report
