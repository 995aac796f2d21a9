// SPDX-License-Identifier: Apache-2.0
// Multi-axis rotary of decoders (M-RoPE): frequencies as rope's over the rotary width; each pair
// follows one of the position streams t, h, w (e). Wang et al., arXiv:2409.12191, section 2.1.
// sections count PAIRS. Text gives every stream the same position, and the result is rope's.
//   chunked        Qwen2-VL: sections[0] pairs t, then sections[1] h, then w; any number of streams
//                  (four: HunYuan's XD-RoPE, ggml's MROPE; a section may be 0)
//   interleaved    Qwen3-VL: all t, but h at pairs 1, 4, 7 .. < 3 sections[1], w at 2, 5, 8 ..
//                  < 3 sections[2]
//   ernie          Ernie-4.5-VL: sections [h, w, t], h = w: pairs h, w, h, w .., the last t
//   bailing        Bailing's "video_rope": the same arrangement of sections [t, h, w], in any sizes
//                  (its "m_rope" is chunked)
//   openpangu      greedy: the stream placed least, for its count, that is not the one before
//   (ties:
//                  the lower); with three sections the last pair follows t. Two sections: h, w only
//   ggml_mrope     ggml's MROPE: chunked, and starting again when the sections are used up
//   ggml_imrope    ggml's IMROPE: pair k follows h if k % 3 = 1 and k < 3 sections[1], w if 2 ..,
//                  t if 0 .., else the FOURTH stream, which llama.cpp leaves 0 for text: Qwen3-VL's
//                  pairs 61 and 62 never turn there (transformers turns them by t)
#pragma once
#include "posenc/core/error.h"
#include "posenc/rotary/rope.h"

namespace posenc {

enum class MropeLayout : std::uint8_t {
  unset,
  chunked,
  interleaved,
  ernie,
  bailing,
  openpangu,
  ggml_mrope,
  ggml_imrope
};
template <>
struct EnumNames<MropeLayout> {
  static constexpr std::array<std::string_view, 8> value{"unset",      "chunked",    "interleaved",
                                                         "ernie",      "bailing",    "openpangu",
                                                         "ggml_mrope", "ggml_imrope"};
};

// The stream that each of `pairs` pairs follows. Throws [mrope].
inline std::vector<Index> mrope_axes(MropeLayout, const std::vector<Index>& sections, Index pairs);

struct Mrope {
  static constexpr Card card{"mrope", "multi-axis rotary (M-RoPE)", "arXiv:2409.12191",
                             "section 2.1"};
  Index head_dim = 0, rotary_dim = 0, offset = 0;
  double base = 10000;
  Pairing pairing = Pairing::unset;
  std::vector<Index> sections;
  MropeLayout layout = MropeLayout::unset;
  Index direction = 1;
  OutputOrder output_order = OutputOrder::in_place;

  Rope rope() const {
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
  // Position streams that a call must give.
  Index streams() const {
    if (layout == MropeLayout::ggml_mrope || layout == MropeLayout::ggml_imrope) return 4;
    return static_cast<Index>(sections.size());
  }
  Spectrum spectrum() const { return rope().spectrum(); }
  RotarySpec place(const Spectrum& scaled) const {
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
  // Named settings of programs (XD-RoPE with equal sections).
  POSENC_API static std::vector<Preset<Mrope>> presets();

  bool operator==(const Mrope&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("head_dim", s.head_dim,
      Field{.doc = "channels of a head", .min = 1, .max = 65536, .required = true});
    v("rotary_dim", s.rotary_dim,
      Field{.doc = "turned channels, 0 = all behind offset", .min = 0, .max = 65536});
    v("offset", s.offset, Field{.doc = "first turned channel", .min = 0, .max = 65536});
    v("base", s.base, Field{.doc = "theta", .min = 1e-300});
    v("pairing", s.pairing, Field{.doc = "which channels turn together", .required = true});
    v("sections", s.sections, Field{.doc = "pairs of each stream", .min = 0, .required = true});
    v("layout", s.layout, Field{.doc = "how the streams share the pairs", .required = true});
    v("direction", s.direction,
      Field{.doc = "1 counter-clockwise, -1 clockwise", .min = -1, .max = 1});
    v("output_order", s.output_order, Field{.doc = "where turned channels are left"});
  }
};
static_assert(RotaryScheme<Mrope>);

// HunYuan's XD-RoPE: four streams (position, w, h, image), chunked; its base comes raised by
// `ntk formula=alpha`.
inline Mrope xd_rope(Index head_dim, std::vector<Index> sections, double base = 10000) {
  Mrope m;
  m.head_dim = head_dim;
  m.base = base;
  m.pairing = Pairing::half_split;
  m.sections = std::move(sections);
  m.layout = MropeLayout::chunked;
  return m;
}

namespace detail {

inline std::vector<Index> greedy_axes(std::vector<Index> count) {
  const bool t_last = count.size() == 3;
  if (t_last && count[0] == 0) refuse("mrope", "openpangu needs a section of t above 0", count[0]);
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

inline Index ggml_axis(bool imrope, const std::vector<Index>& sections, Index sector) {
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

}  // namespace detail

inline std::vector<Index> mrope_axes(MropeLayout layout, const std::vector<Index>& sections,
                                     Index pairs) {
  Index sum = 0;
  for (const Index n : sections) {
    if (n < 0) refuse("mrope", "sections must not be negative", n);
    if (n > 65536) refuse("mrope", "sections must be at most 65536", n);
    sum += n;
  }
  const bool ggml = layout == MropeLayout::ggml_mrope || layout == MropeLayout::ggml_imrope;
  const auto size = static_cast<Index>(sections.size());
  if (layout == MropeLayout::unset) refuse("mrope", "layout must be given", "unset");
  if (sum == 0) refuse("mrope", "sections must not be empty or all 0", size);
  if (!ggml && sum != pairs)
    refuse("mrope", "sections must sum to " + std::to_string(pairs) + ", the number of pairs", sum);
  if (layout == MropeLayout::openpangu) {
    if (size != 2 && size != 3) refuse("mrope", "openpangu needs 2 or 3 sections", size);
    return detail::greedy_axes(sections);
  }
  if (ggml && size > 4) refuse("mrope", "ggml has at most 4 sections", size);
  if (!ggml && layout != MropeLayout::chunked && size != 3)
    refuse("mrope", std::string(enum_text(layout)) + " needs 3 sections", size);

  std::vector<Index> axis(static_cast<std::size_t>(pairs), 0);
  const bool ernie = layout == MropeLayout::ernie;
  const Index h = !ernie && size > 1 ? sections[1] : sections[0];
  const Index w = ernie ? sections[1] : size > 2 ? sections[2] : 0;
  if (ernie && h != w) refuse("mrope", "ernie needs equal sections of h and w", w);
  for (Index i = 0; i < pairs; ++i) {
    Index& a = axis[static_cast<std::size_t>(i)];
    if (ggml)
      a = detail::ggml_axis(layout == MropeLayout::ggml_imrope, sections, i % sum);
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

}  // namespace posenc
