// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/mrope.h"

#include <string>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

std::vector<Index> greedy_axes(std::vector<Index> count) {
  const bool t_last = count.size() == 3;
  if (t_last && count[0] == 0)
    refuse_field("mrope", "openpangu", "needs a section of t above 0", count[0]);
  if (t_last) --count[0];
  std::vector<Index> placed(count.size(), 0), axis;
  Index total = 0, last = -1;
  for (const Index c : count) total += c;
  while (static_cast<Index>(axis.size()) < total) {
    Index best = -1;
    for (int repeat = 0; repeat < 2 && best < 0; ++repeat)  // the one before only if none is left
      for (std::size_t a = 0; a < count.size(); ++a) {
        if (placed[a] == count[a] || (repeat == 0 && static_cast<Index>(a) == last)) continue;
        const auto b = static_cast<std::size_t>(best);
        if (best < 0 || placed[a] * count[b] < placed[b] * count[a]) best = static_cast<Index>(a);
      }
    axis.push_back(best);
    ++placed[static_cast<std::size_t>(best)];
    last = best;
  }
  if (t_last) axis.push_back(0);
  return axis;
}

Index ggml_axis(bool imrope, const std::vector<Index>& sections, Index sector) {
  const auto section = [&](std::size_t a) { return a < sections.size() ? sections[a] : 0; };
  if (!imrope) {
    Index end = 0;
    for (std::size_t a = 0; a < 3; ++a)
      if (sector < (end += section(a))) return static_cast<Index>(a);
    return 3;
  }
  const Index axis = sector % 3;
  return sector < 3 * section(static_cast<std::size_t>(axis)) ? axis : 3;
}

}  // namespace

Spectrum Mrope::spectrum() const {
  return rope().spectrum();
}

Rope Mrope::rope() const {
  Rope r;
  r.head_dim = head_dim;
  r.rotary_dim = rotary_dim;
  r.offset = offset;
  r.base = base;
  r.pairing = pairing;
  r.direction = direction;
  r.output_order = output_order;
  return r;
}

Index Mrope::streams() const {
  if (layout == MropeLayout::ggml_mrope || layout == MropeLayout::ggml_imrope) return 4;
  return static_cast<Index>(sections.size());
}

RotarySpec Mrope::place(const Spectrum& scaled) const {
  if (scaled.heads != 1 || scaled.axes != 1)
    refuse("mrope", "the spectrum must have one head and one axis", scaled.axes);
  const Index pairs = scaled.pairs();
  const std::vector<Index> axis = mrope_axes(layout, sections, pairs);
  RotarySpec spec = rope().place(scaled);
  Spectrum& s = spec.blocks.front().spectrum;
  s.axes = streams();
  s.frequency.assign(static_cast<std::size_t>(s.axes * pairs), 0.0);
  for (Index i = 0; i < pairs; ++i) {
    const auto k = static_cast<std::size_t>(i);
    s.frequency[static_cast<std::size_t>(axis[k] * pairs + i)] = scaled.frequency[k];
  }
  return spec;
}

Mrope xd_rope(Index head_dim, std::vector<Index> sections, double base) {
  Mrope m;
  m.head_dim = head_dim;
  m.base = base;
  m.pairing = Pairing::half_split;
  m.sections = std::move(sections);
  m.layout = MropeLayout::chunked;
  return m;
}

std::vector<Index> mrope_axes(MropeLayout layout, const std::vector<Index>& sections, Index pairs) {
  Index sum = 0;
  for (const Index n : sections) {
    if (n < 0) refuse_field("mrope", "sections", "must not be negative", n);
    if (n > 65536) refuse_field("mrope", "sections", "must be at most 65536", n);
    sum += n;
  }
  const bool ggml = layout == MropeLayout::ggml_mrope || layout == MropeLayout::ggml_imrope;
  const auto size = static_cast<Index>(sections.size());
  if (layout == MropeLayout::unset) refuse_field("mrope", "layout", "must be given", "unset");
  if (sum == 0) refuse_field("mrope", "sections", "must not be empty or all 0", size);
  if (!ggml && sum != pairs)
    refuse_field("mrope", "sections",
                 "must sum to " + std::to_string(pairs) + ", the number of pairs", sum);
  if (layout == MropeLayout::openpangu) {
    if (size != 2 && size != 3) refuse_field("mrope", "openpangu", "needs 2 or 3 sections", size);
    return greedy_axes(sections);
  }
  if (ggml && size > 4) refuse("mrope", "ggml has at most 4 sections", size);
  if (!ggml && layout != MropeLayout::chunked && size != 3)
    refuse_field("mrope", enum_text(layout), "needs 3 sections", size);

  std::vector<Index> axis(static_cast<std::size_t>(pairs), 0);
  const bool ernie = layout == MropeLayout::ernie;
  const Index h = !ernie && size > 1 ? sections[1] : sections[0];
  const Index w = ernie ? sections[1] : size > 2 ? sections[2] : 0;
  if (ernie && h != w) refuse_field("mrope", "ernie", "needs equal sections of h and w", w);
  for (Index i = 0; i < pairs; ++i) {
    Index& a = axis[static_cast<std::size_t>(i)];
    if (ggml)
      a = ggml_axis(layout == MropeLayout::ggml_imrope, sections, i % sum);
    else if (layout == MropeLayout::chunked)
      for (Index end = sections[0]; i >= end; end += sections[static_cast<std::size_t>(++a)]) {
      }
    else if (layout == MropeLayout::interleaved)
      a = i % 3 == 1 && i < 3 * h ? 1 : i % 3 == 2 && i < 3 * w ? 2 : 0;
    else
      a = i >= h + w ? 0 : 1 + i % 2;
  }
  return axis;
}

}  // namespace posenc::v0
