// SPDX-License-Identifier: Apache-2.0
// Axial rotary: axis a of the positions rotates axes_dim[a] channels of the head. One definition for
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
// Implementation: src/rotary/axial.cpp.
#pragma once

#include "posenc/rotary/spec.h"

namespace posenc::inline v0 {

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

// How the pairs of the axes are arranged.
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
  Index streams = 0;          // of the positions of a call; 0: as many as are used
  Index direction = 1;

  // One frequency set for all axes when it is the same, else one after the other.
  POSENC_API Spectrum spectrum() const;
  POSENC_API RotarySpec place(const Spectrum& scaled) const;

  // Named settings of programs (namespace axial_presets, vision_presets.h).
  POSENC_API static std::vector<Preset<Axial>> presets();

  bool operator==(const Axial&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("head_dim", s.head_dim,
      Field{.doc = "channels of a head", .min = 1, .max = 65536, .required = true});
    v("axes_dim", s.axes_dim,
      Field{.doc = "channels of each axis, even", .min = 2, .max = 65536, .required = true});
    v("offset", s.offset, Field{.doc = "first rotated channel", .min = 0, .max = 65536});
    v("pairing", s.pairing, Field{.doc = "which channels rotate together", .required = true});
    v("base", s.base, Field{.doc = "theta", .min = 1e-300});
    v("spacing", s.spacing, Field{.doc = "rule of the frequencies"});
    v("first", s.first, Field{.doc = "of linear, logarithmic, periods", .min = 1e-300});
    v("last", s.last, Field{.doc = "of linear, logarithmic, periods", .min = 0});
    v("scale", s.scale, Field{.doc = "multiplies the frequencies (DINOv3: 2 pi)", .min = 1e-300});
    v("order", s.order, Field{.doc = "order of the pairs of the axes"});
    v("stream", s.stream, Field{.doc = "position stream of each axis", .min = 0, .max = 255});
    v("streams", s.streams,
      Field{.doc = "position streams of a call, 0 = those in use", .min = 0, .max = 256});
    v("direction", s.direction,
      Field{.doc = "1 counter-clockwise, -1 clockwise", .min = -1, .max = 1});
  }

 private:
  bool same_dim() const;
  bool shared() const { return same_dim() && spacing != AxialSpacing::interlaced; }
  Index total() const;
  Index stream_of(std::size_t a) const;
  Index stream_count() const;
  void check() const;
  double frequency(std::size_t a, Index j) const;
};

// Presets of vision towers. `head_dim` is the tower's; positions as its own program makes them.
namespace axial_presets {

POSENC_API Axial two_axes(Index head_dim, Pairing pairing, double base = 10000);
// Qwen2-VL, Qwen2.5-VL, Qwen3-VL, GLM-V, ggml VISION: streams (row, column), half-split.
POSENC_API Axial qwen2_vl_vision(Index head_dim);
// Pixtral as transformers runs it (half-split); its own code pairs neighbours. (row, column).
POSENC_API Axial pixtral_vision(Index head_dim, Pairing pairing = Pairing::half_split);
// Llama-4: streams (column + 1, row + 1), (0, 0) for the class token.
POSENC_API Axial llama4_vision(Index head_dim);
// RoPE-ViT's axial form: streams (column, row).
POSENC_API Axial rope_vit(Index head_dim);
// Gemma-4: streams (x, y), a block of the head each.
POSENC_API Axial gemma4_vision(Index head_dim);
// ChatGLM-6B: streams (position, block position), a block of the head each.
POSENC_API Axial chatglm_2d(Index head_dim);
// DINOv3: patch centres in [-1, 1] (row, column); class and register tokens at (0, 0).
POSENC_API Axial dinov3(Index head_dim);
// Kimi-K2.5 (MoonViT): streams (column, row), which alternate pair by pair.
POSENC_API Axial kimi_vision(Index head_dim);
// FLUX: three streams of real-valued ids.
POSENC_API Axial flux(std::vector<Index> axes_dim, double base = 10000);
// RetNet's spacing on one axis.
POSENC_API Axial retnet(Index head_dim, Pairing pairing = Pairing::interleaved);

}  // namespace axial_presets

}  // namespace posenc::v0
