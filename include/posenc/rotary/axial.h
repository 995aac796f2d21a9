// SPDX-License-Identifier: Apache-2.0
// Axial rotary: axis a of the positions turns axes_dim[a] channels of the head. One definition for
// the vision towers, FLUX, ChatGLM-6B's two streams, RetNet's spacing and other spacings of one
// axis. With d channels of an axis and n = d/2 of its pairs, pair j of it has the frequency (times
// scale)
//   geometric    base^(-2j/d)              Qwen2-VL, Llama-4, FLUX, RoPE-ViT, timm's and
//                                          rotary-embedding-torch's "lang"; DINOv3 with scale 2 pi
//   interlaced   base^(-2(j A + a)/D)      of A axes over D channels: Pixtral (rows the even
//                                          frequencies, columns the odd ones)
//   inclusive    base^(-j/(n-1))           RetNet: 10000^-linspace(0, 1, n)
//   linear       pi * (first + j (last - first)/(n-1))           "pixel": first 1, last max_freq/2
//   logarithmic  pi * first * (last/first)^(j/(n-1))             timm's pixel bands: last max_res/2
//   periods      2 pi / (first * (last/first)^(j/(n-1)))         DINOv3's min_period, max_period
//   constant     1                                               rotary-embedding-torch "constant"
// Positions (patch index, index + 1, patch centres in [-1, 1] ...) are the caller's: positions.h.
#pragma once
#include <cmath>
#include <numbers>

#include "posenc/core/error.h"
#include "posenc/rotary/spec.h"

namespace posenc {

enum class AxialSpacing : std::uint8_t {
  geometric,
  interlaced,
  inclusive,
  linear,
  logarithmic,
  periods,
  constant
};
template <>
struct EnumNames<AxialSpacing> {
  static constexpr std::array<std::string_view, 7> value{
      "geometric", "interlaced", "inclusive", "linear", "logarithmic", "periods", "constant"};
};

// Where the pairs of the axes stand.
//   sections   all pairs of the first axis, then the second .. in one block
//   alternate  pair 0 of every axis, pair 1 of every axis .. in one block (Kimi-K2.5)
//   blocks     a block of channels for each axis, paired within itself (Gemma-4 vision, ChatGLM-6B)
enum class AxialOrder : std::uint8_t { sections, alternate, blocks };
template <>
struct EnumNames<AxialOrder> {
  static constexpr std::array<std::string_view, 3> value{"sections", "alternate", "blocks"};
};

struct Axial {
  static constexpr Card card{"axial", "axial rotary", "arXiv:2403.13298", "3"};
  Index head_dim = 0;
  std::vector<Index> axes_dim;
  Index offset = 0;
  Pairing pairing = Pairing::unset;
  double base = 10000;
  AxialSpacing spacing = AxialSpacing::geometric;
  double first = 1, last = 0;
  double scale = 1;
  AxialOrder order = AxialOrder::sections;
  std::vector<Index> stream;  // of each axis; empty: 0, 1, 2 ..
  Index streams = 0;          // that a call gives; 0: as many as are used
  Index direction = 1;

  // One frequency set for all axes when it is the same, else one after the other.
  Spectrum spectrum() const {
    check();
    if (spacing == AxialSpacing::geometric && same_dim()) {
      Spectrum s = geometric_spectrum(base, axes_dim.front());
      if (scale != 1) {
        s.geometric.reset();
        if (s.ggml) s.ggml->freq_scale *= scale;
        for (double& f : s.frequency) f *= scale;
      }
      return s;
    }
    Spectrum s;
    if (shared()) {
      for (Index j = 0; j < axes_dim.front() / 2; ++j) s.frequency.push_back(frequency(0, j));
    } else {
      for (std::size_t a = 0; a < axes_dim.size(); ++a)
        for (Index j = 0; j < axes_dim[a] / 2; ++j) s.frequency.push_back(frequency(a, j));
    }
    return s;
  }
  RotarySpec place(const Spectrum& scaled) const;

  // Named settings of programs (namespace axial_presets, vision_presets.h).
  POSENC_API static std::vector<Preset<Axial>> presets();

  bool operator==(const Axial&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("head_dim", s.head_dim,
      Field{.doc = "channels of a head", .min = 1, .max = 65536, .required = true});
    v("axes_dim", s.axes_dim,
      Field{.doc = "channels of each axis, even", .min = 2, .max = 65536, .required = true});
    v("offset", s.offset, Field{.doc = "first turned channel", .min = 0, .max = 65536});
    v("pairing", s.pairing, Field{.doc = "which channels turn together", .required = true});
    v("base", s.base, Field{.doc = "theta", .min = 1e-300});
    v("spacing", s.spacing, Field{.doc = "rule of the frequencies"});
    v("first", s.first, Field{.doc = "of linear, logarithmic, periods", .min = 1e-300});
    v("last", s.last, Field{.doc = "of linear, logarithmic, periods", .min = 0});
    v("scale", s.scale, Field{.doc = "multiplies the frequencies (DINOv3: 2 pi)", .min = 1e-300});
    v("order", s.order, Field{.doc = "where the pairs of the axes stand"});
    v("stream", s.stream, Field{.doc = "position stream of each axis", .min = 0, .max = 255});
    v("streams", s.streams,
      Field{.doc = "position streams of a call, 0 = those in use", .min = 0, .max = 256});
    v("direction", s.direction,
      Field{.doc = "1 counter-clockwise, -1 clockwise", .min = -1, .max = 1});
  }

 private:
  bool same_dim() const {
    for (const Index d : axes_dim)
      if (d != axes_dim.front()) return false;
    return true;
  }
  bool shared() const { return same_dim() && spacing != AxialSpacing::interlaced; }
  Index total() const {
    Index sum = 0;
    for (const Index d : axes_dim) sum += d;
    return sum;
  }
  Index stream_of(std::size_t a) const {
    return stream.empty() ? static_cast<Index>(a) : stream[a];
  }
  Index stream_count() const {
    Index used = 0;
    for (std::size_t a = 0; a < axes_dim.size(); ++a)
      used = stream_of(a) + 1 > used ? stream_of(a) + 1 : used;
    if (streams != 0 && streams < used)
      refuse("axial", "streams must be at least the streams in use", streams);
    return streams == 0 ? used : streams;
  }
  void check() const;
  double frequency(std::size_t a, Index j) const;
};

inline void Axial::check() const {
  if (axes_dim.empty()) refuse("axial", "axes_dim must name at least one axis");
  if (axes_dim.size() > 256) refuse("axial", "axes_dim has at most 256 axes");
  for (const Index d : axes_dim)
    if (d <= 0 || d % 2 != 0 || d > 65536)
      refuse("axial", "axes_dim must be positive, even and at most 65536", d);
  if (!(base > 0) || !std::isfinite(base))
    refuse("axial", "base must be finite and positive", base);
  if (!(scale > 0) || !std::isfinite(scale))
    refuse("axial", "scale must be finite and positive", scale);
  if (!(first > 0) || !std::isfinite(first))
    refuse("axial", "first must be finite and positive", first);
  const bool ends = spacing == AxialSpacing::linear || spacing == AxialSpacing::logarithmic ||
                    spacing == AxialSpacing::periods;
  if (ends ? !(last > 0) || !std::isfinite(last) : last != 0)
    refuse("axial",
           ends ? "last must be finite and positive"
                : "last belongs to spacing linear, logarithmic and periods",
           last);
  if (!ends && first != 1)
    refuse("axial", "first belongs to spacing linear, logarithmic and periods", first);
  if (!stream.empty() && stream.size() != axes_dim.size())
    refuse("axial", "stream must name one stream an axis", static_cast<Index>(stream.size()));
  for (const Index a : stream)
    if (a < 0 || a > 255) refuse("axial", "stream must be from 0 to 255", a);
  if (spacing == AxialSpacing::interlaced && !same_dim())
    refuse("axial", "interlaced needs axes of equal axes_dim");
  if (order == AxialOrder::alternate && !same_dim())
    refuse("axial", "order=alternate needs axes of equal axes_dim");
}

inline double Axial::frequency(std::size_t a, Index j) const {
  const double d = static_cast<double>(axes_dim[a]), n = d / 2, i = static_cast<double>(j);
  const double part = n > 1 ? i / (n - 1) : 0;  // 0 .. 1
  switch (spacing) {
    case AxialSpacing::geometric:
      return scale * std::pow(base, -2 * i / d);
    case AxialSpacing::interlaced:
      return scale *
             std::pow(base,
                      -2 * (i * static_cast<double>(axes_dim.size()) + static_cast<double>(a)) /
                          static_cast<double>(total()));
    case AxialSpacing::inclusive:
      return scale * std::pow(base, -part);
    case AxialSpacing::linear:
      return scale * std::numbers::pi * (first + part * (last - first));
    case AxialSpacing::logarithmic:
      return scale * std::numbers::pi * first * std::pow(last / first, part);
    case AxialSpacing::periods:
      return scale * 2 * std::numbers::pi / (first * std::pow(last / first, part));
    case AxialSpacing::constant:
      break;
  }
  return scale;
}

inline RotarySpec Axial::place(const Spectrum& scaled) const {
  check();
  const Index axes = stream_count(), count = static_cast<Index>(axes_dim.size());
  const Index want = shared() ? axes_dim.front() / 2 : total() / 2;
  if (scaled.heads != 1 || scaled.axes != 1 || scaled.pairs() != want)
    refuse("axial",
           "the spectrum must have one head, one axis and " + std::to_string(want) + " pairs",
           scaled.pairs());
  RotarySpec spec;
  spec.head_dim = head_dim;
  RotaryBlock block;
  block.offset = offset;
  block.pairing = pairing;
  block.direction = block_direction(direction);
  const auto open = [&](Index pairs) {
    block.spectrum = scaled;
    block.spectrum.geometric.reset();
    if (order != AxialOrder::sections || !shared())
      block.spectrum.drop_ggml("axial axes that are no sections of one set of frequencies");
    block.spectrum.axes = axes;
    block.spectrum.frequency.assign(static_cast<std::size_t>(axes * pairs), 0.0);
  };
  const auto put = [&](std::size_t a, Index source, Index at, Index pairs) {
    block.spectrum.frequency[static_cast<std::size_t>(stream_of(a) * pairs + at)] =
        scaled.frequency[static_cast<std::size_t>(source)];
  };
  Index source = 0, at = 0;
  if (order != AxialOrder::blocks) open(total() / 2);
  for (std::size_t a = 0; a < axes_dim.size(); ++a) {
    const Index n = axes_dim[a] / 2;
    if (shared()) source = 0;
    if (order == AxialOrder::blocks) open(n), at = 0;
    for (Index j = 0; j < n; ++j, ++source, ++at)
      if (order == AxialOrder::alternate)
        put(a, source, j * count + static_cast<Index>(a), total() / 2);
      else
        put(a, source, at, order == AxialOrder::blocks ? n : total() / 2);
    if (order == AxialOrder::blocks) {
      spec.blocks.push_back(block);
      block.offset += axes_dim[a];
    }
  }
  if (order == AxialOrder::blocks) return spec;
  if (GgmlForm* g = block.spectrum.ggml ? &*block.spectrum.ggml : nullptr; g && count > 1) {
    // The iterated angle starts anew at each section (ggml's VISION); its divisors repeat.
    const std::vector<double> once = g->factors;
    for (Index a = 1; a < count; ++a) {
      g->restart.push_back(a * axes_dim.front() / 2);
      g->factors.insert(g->factors.end(), once.begin(), once.end());
    }
  }
  spec.blocks.push_back(block);
  return spec;
}
static_assert(RotaryScheme<Axial>);

// Presets: whose tower it is. `head_dim` is the tower's; positions as its own program makes them.
namespace axial_presets {

inline Axial two_axes(Index head_dim, Pairing pairing, double base = 10000) {
  Axial a;
  a.head_dim = head_dim;
  a.axes_dim = {head_dim / 2, head_dim - head_dim / 2};
  a.pairing = pairing;
  a.base = base;
  return a;
}
// Qwen2-VL, Qwen2.5-VL, Qwen3-VL, GLM-V, ggml VISION: streams (row, column), half-split.
inline Axial qwen2_vl_vision(Index head_dim) {
  return two_axes(head_dim, Pairing::half_split);
}
// Pixtral as transformers runs it (half-split); its own code pairs neighbours. (row, column).
inline Axial pixtral_vision(Index head_dim, Pairing pairing = Pairing::half_split) {
  Axial a = two_axes(head_dim, pairing);
  a.spacing = AxialSpacing::interlaced;
  return a;
}
// Llama-4: streams (column + 1, row + 1), (0, 0) for the class token.
inline Axial llama4_vision(Index head_dim) {
  return two_axes(head_dim, Pairing::interleaved);
}
// RoPE-ViT's axial form: streams (column, row).
inline Axial rope_vit(Index head_dim) {
  return two_axes(head_dim, Pairing::interleaved, 100);
}
// Gemma-4: streams (x, y), a block of the head each.
inline Axial gemma4_vision(Index head_dim) {
  Axial a = two_axes(head_dim, Pairing::half_split, 100);
  a.order = AxialOrder::blocks;
  return a;
}
// ChatGLM-6B: streams (position, block position), a block of the head each.
inline Axial chatglm_2d(Index head_dim) {
  Axial a = two_axes(head_dim, Pairing::half_split);
  a.order = AxialOrder::blocks;
  return a;
}
// DINOv3: patch centres in [-1, 1] (row, column); class and register tokens at (0, 0).
inline Axial dinov3(Index head_dim) {
  Axial a = two_axes(head_dim, Pairing::half_split, 100);
  a.scale = 2 * std::numbers::pi;
  return a;
}
// Kimi-K2.5 (MoonViT): streams (column, row), which alternate pair by pair.
inline Axial kimi_vision(Index head_dim) {
  Axial a = two_axes(head_dim, Pairing::interleaved);
  a.order = AxialOrder::alternate;
  return a;
}
// FLUX: three streams of real-valued ids.
inline Axial flux(std::vector<Index> axes_dim, double base = 10000) {
  Axial a;
  for (const Index d : axes_dim) a.head_dim += d;
  a.axes_dim = std::move(axes_dim);
  a.pairing = Pairing::interleaved;
  a.base = base;
  return a;
}
// RetNet's spacing on one axis.
inline Axial retnet(Index head_dim, Pairing pairing = Pairing::interleaved) {
  Axial a;
  a.head_dim = head_dim;
  a.axes_dim = {head_dim};
  a.pairing = pairing;
  a.spacing = AxialSpacing::inclusive;
  return a;
}

}  // namespace axial_presets

}  // namespace posenc
