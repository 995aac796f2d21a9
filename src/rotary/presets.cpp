// SPDX-License-Identifier: Apache-2.0
// The presets of rotary definitions, by name, with the sizes that their programs are used at.
#include "posenc/core/error.h"
#include "posenc/rotary/axial.h"
#include "posenc/rotary/mrope.h"
#include "posenc/rotary/vision_presets.h"
#include "posenc/rotary/xpos.h"

namespace posenc::inline v0 {
namespace {

using Sizes = std::span<const Index>;

// A head of n[0] channels, centred for n[1] positions; the pairings are those of the programs' own
// runs (the cases lr_, xt_, paper_xpos and paper_flash_xpos of the suite rotary_engines).
template <Index (*center)(Index), Pairing pairing = Pairing::interleaved>
Xpos centred(Sizes n) {
  Xpos x;
  x.head_dim = n[0];
  x.pairing = pairing;
  x.center = static_cast<double>(center(n[1]));
  return x;
}
constexpr Index x_transformers_of_length(Index length) {
  return xpos_centers::x_transformers(length - 1);
}

}  // namespace

std::vector<Preset<Axial>> Axial::presets() {
  namespace of = axial_presets;
  const auto head = [](Index usual) { return std::vector<PresetSize>{{"head_dim", usual}}; };
  return {
      {"qwen2_vl_vision", [](Sizes n) { return of::qwen2_vl_vision(n[0]); }, head(80)},
      {"pixtral_vision", [](Sizes n) { return of::pixtral_vision(n[0]); }, head(64)},
      {"llama4_vision", [](Sizes n) { return of::llama4_vision(n[0]); }, head(88)},
      {"rope_vit", [](Sizes n) { return of::rope_vit(n[0]); }, head(64)},
      {"gemma4_vision", [](Sizes n) { return of::gemma4_vision(n[0]); }, head(72)},
      {"chatglm_2d", [](Sizes n) { return of::chatglm_2d(n[0]); }, head(128)},
      {"dinov3", [](Sizes n) { return of::dinov3(n[0]); }, head(64)},
      {"kimi_vision", [](Sizes n) { return of::kimi_vision(n[0]); }, head(72)},
      {"sam3_vision", [](Sizes n) { return of::sam3_vision(n[0], 10000); }, head(64)},
      {"step3_vision", [](Sizes n) { return of::step3_vision(n[0], 10000); }, head(96)},
      {"inkling2_vision", [](Sizes n) { return of::inkling2_vision(n[0], 10000); }, head(64)},
      {"minimax_m3_vision", [](Sizes n) { return of::minimax_m3_vision(n[0], 10000); }, head(80)},
      {"efficient_loftr", [](Sizes n) { return of::efficient_loftr(n[0], 10000); }, head(256)},
      {"flux",
       [](Sizes) {
         return of::flux({16, 56, 56});
       },
       {}},
      {"retnet", [](Sizes n) { return of::retnet(n[0]); }, head(256)}};
}

std::vector<Preset<Xpos>> Xpos::presets() {
  namespace of = xpos_centers;
  const std::vector<PresetSize> sizes{{"head_dim", 64}, {"length", 2048}};
  return {{"torchscale", centred<of::torchscale>, sizes},
          {"flash_attention", centred<of::flash_attention, Pairing::half_split>, sizes},
          {"rotary_embedding_torch", centred<of::rotary_embedding_torch>, sizes},
          {"x_transformers", centred<x_transformers_of_length>, sizes}};
}

// HunYuan's files have equal sections: 16 pairs of 64 each.
std::vector<Preset<Mrope>> Mrope::presets() {
  return {{"xd_rope",
           [](Sizes n) {
             if (n[0] % 8 != 0)
               refuse("mrope", "equal sections of XD-RoPE need a head that is a multiple of 8",
                      n[0]);
             return xd_rope(n[0], std::vector<Index>(4, n[0] / 8));
           },
           {{"head_dim", 128}}}};
}

}  // namespace posenc::v0
