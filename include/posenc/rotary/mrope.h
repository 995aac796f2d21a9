// SPDX-License-Identifier: Apache-2.0
// Multi-axis rotary of decoders (M-RoPE): frequencies as rope's over the rotary width; each pair
// follows one of the position streams t, h, w (e). Wang et al., arXiv:2409.12191, section 2.1.
// sections count PAIRS. Text has the same position in every stream, so the result is rope's.
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
//                  pairs 61 and 62 do not rotate there (transformers rotates them by t)
// Implementation: src/rotary/mrope.cpp.
#pragma once
#include "posenc/rotary/rope.h"

namespace posenc::inline v0 {

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
POSENC_API std::vector<Index> mrope_axes(MropeLayout, const std::vector<Index>& sections,
                                         Index pairs);

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

  POSENC_API Rope rope() const;
  // Number of position streams that a call must pass.
  POSENC_API Index streams() const;
  POSENC_API Spectrum spectrum() const;
  POSENC_API RotarySpec place(const Spectrum& scaled) const;
  // Named settings of programs (XD-RoPE with equal sections).
  POSENC_API static std::vector<Preset<Mrope>> presets();

  bool operator==(const Mrope&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("head_dim", s.head_dim,
      Field{.doc = "channels of a head", .min = 1, .max = 65536, .required = true});
    v("rotary_dim", s.rotary_dim,
      Field{.doc = "rotated channels, 0 = all from offset on",
            .min = 0,
            .max = 65536,
            .from = "head_dim - offset"});
    v("offset", s.offset, Field{.doc = "first rotated channel", .min = 0, .max = 65536});
    v("base", s.base, Field{.doc = "theta", .min = 1e-300});
    v("pairing", s.pairing, Field{.doc = "which channels rotate together", .required = true});
    v("sections", s.sections, Field{.doc = "pairs of each stream", .min = 0, .required = true});
    v("layout", s.layout, Field{.doc = "which stream rotates each pair", .required = true});
    v("direction", s.direction,
      Field{.doc = "1 counter-clockwise, -1 clockwise", .min = -1, .max = 1});
    v("output_order", s.output_order, Field{.doc = "order of the rotated channels"});
  }
};

// HunYuan's XD-RoPE: four streams (position, w, h, image), chunked; its base comes raised by
// `ntk formula=alpha`.
POSENC_API Mrope xd_rope(Index head_dim, std::vector<Index> sections, double base = 10000);

}  // namespace posenc::v0
