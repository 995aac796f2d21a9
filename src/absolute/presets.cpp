// SPDX-License-Identifier: Apache-2.0
// The presets of schemes at the input, by name, with the sizes that their programs are used at.
#include <numbers>

#include "posenc/absolute/boxes_presets.h"
#include "posenc/absolute/cape2d.h"
#include "posenc/absolute/complex_order.h"
#include "posenc/absolute/convolutional.h"
#include "posenc/absolute/coordinates.h"
#include "posenc/absolute/crossmodal.h"
#include "posenc/absolute/fourier_features.h"
#include "posenc/absolute/hierarchy_presets.h"
#include "posenc/absolute/learned_axes_presets.h"
#include "posenc/absolute/learned_presets.h"
#include "posenc/absolute/sinusoidal_nd_presets.h"
#include "posenc/absolute/sinusoidal_presets.h"

namespace posenc::inline v0 {

namespace {

using Sizes = std::span<const Index>;

// Settings of a width alone.
template <class T, T (*of)(Index)>
T wide(Sizes n) {
  return of(n[0]);
}

}  // namespace

std::vector<Preset<Sinusoidal>> Sinusoidal::presets() {
  namespace of = sinusoidal_presets;
  using S = Sinusoidal;
  const auto width = [](Index usual) { return std::vector<PresetSize>{{"width", usual}}; };
  const auto w = width(512);
  return {
      {"paper", wide<S, of::paper>, w},
      {"tutorial", wide<S, of::tutorial>, w},
      {"shape", wide<S, of::shape>, w},
      {"multiplicative", wide<S, of::multiplicative>, w},
      {"bert4keras", [](Sizes n) { return of::bert4keras(n[0]); }, w},
      {"bert4keras_mul", [](Sizes n) { return of::bert4keras(n[0], Compose::one_plus); }, w},
      {"tensor2tensor", [](Sizes n) { return of::tensor2tensor(n[0]); }, w},
      {"fairseq", [](Sizes n) { return of::fairseq(n[0]); }, w},
      {"fairseq2", [](Sizes n) { return of::fairseq2(n[0]); }, w},
      {"marian", wide<S, of::marian>, w},
      {"hf_marian", wide<S, of::hf_marian>, w},
      {"transformer_xl", wide<S, of::transformer_xl>, w},
      {"xlnet", wide<S, of::xlnet>, w},
      {"tener", wide<S, of::tener>, width(64)},
      {"tener_paper", wide<S, of::tener_paper>, width(64)},
      {"nezha", wide<S, of::nezha>, width(64)},
      {"timesfm", [](Sizes n) { return of::timesfm(n[0]); }, width(1280)},
      {"musicgen", wide<S, of::musicgen>, w},
      {"whisper", [](Sizes n) { return of::whisper(n[0]); }, w},
      {"speecht5", wide<S, of::speecht5>, w},
      {"ctranslate2", wide<S, of::ctranslate2>, w},
      {"opennmt_tf", wide<S, of::opennmt_tf>, w},
      {"opennmt_py_concat", wide<S, of::opennmt_py_concat>, w},
      {"mlx", [](Sizes n) { return of::mlx(n[0]); }, w},
      {"x_transformers_scaled", [](Sizes n) { return of::x_transformers_scaled(n[0]); }, w},
      {"tatp22", wide<S, of::tatp22>, w},
      {"deepmind", [](Sizes n) { return of::deepmind(n[0]); }, w},
      {"timestep", [](Sizes n) { return of::timestep(n[0]); }, w},
      {"tape", [](Sizes n) { return of::tape(n[0], n[1]); }, {{"width", 512}, {"length", 1024}}},
      {"cape", [](Sizes n) { return of::cape(n[0]); }, w}};
}

std::vector<Preset<SinusoidalNd>> SinusoidalNd::presets() {
  namespace of = sinusoidal_nd_presets;
  const std::vector<PresetSize> w{{"width", 768}};
  return {{"tatp22_2d", [](Sizes n) { return of::tatp22(n[0], 2); }, w},
          {"tatp22_3d", [](Sizes n) { return of::tatp22(n[0], 3); }, w},
          {"tensor2tensor",
           [](Sizes n) { return of::tensor2tensor(n[0], n[1]); },
           {{"width", 768}, {"axes", 2}}},
          {"mae", [](Sizes n) { return of::mae(n[0]); }, w},
          {"hf_vision", [](Sizes n) { return of::hf_vision(n[0]); }, w},
          {"diffusers_3d", [](Sizes n) { return of::diffusers_3d(n[0]); }, w},
          {"detr", [](Sizes n) { return of::detr(n[0]); }, {{"num_pos_feats", 128}}},
          {"timm", [](Sizes n) { return of::timm(n[0]); }, w},
          {"timm_interleaved", [](Sizes n) { return of::timm(n[0], 10000, true); }, w}};
}

std::vector<Preset<Learned>> Learned::presets() {
  const auto sized = [](Index positions) {
    return std::vector<PresetSize>{{"width", 768}, {"positions", positions}};
  };
  return {
      {"bert", [](Sizes n) { return bert_positions(n[0], n[1]); }, sized(512)},
      {"gpt2", [](Sizes n) { return gpt2_positions(n[0], n[1]); }, sized(1024)},
      {"openai_gpt2", [](Sizes n) { return openai_gpt2_positions(n[0], n[1]); }, sized(1024)},
      {"roberta", [](Sizes n) { return roberta_positions(n[0], n[1]); }, sized(512)},
      {"fairseq", [](Sizes n) { return fairseq_positions(n[0], n[1]); }, sized(1024)},
      {"convs2s", [](Sizes n) { return convs2s_positions(n[0], n[1]); }, sized(1024)},
      {"fairseq2", [](Sizes n) { return fairseq2_positions(n[0], n[1]); }, sized(1024)},
      {"opt", [](Sizes n) { return opt_positions(n[0], n[1]); }, sized(2048)},
      {"bart", [](Sizes n) { return bart_positions(n[0], n[1]); }, sized(1024)},
      {"keras_hub", [](Sizes n) { return keras_hub_positions(n[0], n[1]); }, sized(512)},
      {"tensor2tensor", [](Sizes n) { return tensor2tensor_positions(n[0], n[1]); }, sized(512)},
      {"opennmt_tf", [](Sizes n) { return opennmt_tf_positions(n[0], n[1]); }, sized(512)},
      {"marian", [](Sizes n) { return marian_positions(n[0], n[1]); }, sized(512)},
      {"x_transformers", [](Sizes n) { return x_transformers_positions(n[0], n[1]); }, sized(1024)},
      {"x_transformers_l2norm", [](Sizes n) { return x_transformers_positions(n[0], n[1], true); },
       sized(1024)},
      {"bert4keras", [](Sizes n) { return bert4keras_positions(n[0], n[1]); }, sized(512)},
      {"bert4keras_mul", [](Sizes n) { return bert4keras_mul_positions(n[0], n[1]); }, sized(512)}};
}

std::vector<Preset<FourierFeatures>> FourierFeatures::presets() {
  namespace of = fourier_presets;
  const auto image = [](Index usual) {
    return std::vector<PresetSize>{{"bands", usual}, {"pixels", 224}};
  };
  const std::vector<PresetSize> space{{"axes", 3}, {"bands", 10}};
  return {{"perceiver",
           [](Sizes n) {
             const auto pixels = static_cast<double>(n[1]);
             return of::perceiver(n[0], {pixels, pixels});
           },
           image(64)},
          {"nerf", [](Sizes n) { return of::nerf(n[0], n[1]); }, space},
          {"nerf_code", [](Sizes n) { return of::nerf_code(n[0], n[1]); }, space},
          {"sam", [](Sizes n) { return of::sam(n[0]); }, {{"bands", 128}}},
          {"timm_pixels", [](Sizes n) { return of::timm_pixels(n[0], static_cast<double>(n[1])); },
           image(32)},
          {"timm_index", [](Sizes n) { return of::timm_index(n[0]); }, {{"bands", 32}}}};
}

std::vector<Preset<LearnedAxes>> LearnedAxes::presets() {
  namespace of = learned_axes_presets;
  const std::vector<PresetSize> grid{{"width", 512}, {"rows", 64}, {"columns", 64}};
  return {{"reformer",
           [](Sizes n) {
             return of::reformer({n[0], n[1]}, {n[2], n[3]});
           },
           {{"rows", 64}, {"columns", 64}, {"row_width", 64}, {"column_width", 192}}},
          {"axial_positional_embedding",
           [](Sizes n) {
             return of::axial_positional_embedding(n[0], {n[1], n[2]});
           },
           grid},
          {"detr", [](Sizes n) { return of::detr(n[0], n[1]); }, {{"width", 256}, {"rows", 50}}},
          {"tensor2tensor",
           [](Sizes n) {
             return of::tensor2tensor(n[0], {n[1], n[2]});
           },
           grid}};
}

std::vector<Preset<Boxes>> Boxes::presets() {
  namespace of = boxes_presets;
  const std::vector<PresetSize> parts{{"coordinate", 128}, {"shape", 128}, {"rows", 1024}};
  return {{"layoutlm",
           [](Sizes n) { return of::layoutlm(n[0], n[1]); },
           {{"width", 768}, {"rows", 1024}}},
          {"layoutlmv2", [](Sizes n) { return of::layoutlmv2(n[0], n[1], n[2]); }, parts},
          {"layoutlmv3", [](Sizes n) { return of::layoutlmv3(n[0], n[1], n[2]); }, parts}};
}

std::vector<Preset<Hierarchy>> Hierarchy::presets() {
  namespace of = hierarchy_presets;
  return {{"segatron_bert",
           [](Sizes n) { return of::segatron_bert(n[0], n[1], n[2], n[3]); },
           {{"width", 768}, {"tokens", 512}, {"sentences", 100}, {"paragraphs", 50}}},
          {"segatron_xl", [](Sizes n) { return of::segatron_xl(n[0]); }, {{"width", 410}}}};
}

std::vector<Preset<Cape2d>> Cape2d::presets() {
  namespace of = cape2d_presets;
  return {{"code", [](Sizes n) { return of::code(n[0]); }, {{"width", 768}}},
          {"package", [](Sizes n) { return of::package(n[0]); }, {{"width", 768}}}};
}

std::vector<Preset<Coordinates>> Coordinates::presets() {
  namespace of = coordinates_presets;
  return {{"coordconv", [](Sizes) { return of::coordconv(); }, {}},
          {"coordconv_r", [](Sizes) { return of::coordconv(true); }, {}}};
}

// Our own worked example: words, patches and sound on one axis of twentieths of a second.
std::vector<Preset<CrossModal>> CrossModal::presets() {
  return {{"seconds",
           [](Sizes n) {
             CrossModal s;
             s.width = n[0], s.modalities = 3, s.widths = {n[0]}, s.scale = {20};
             return s;
           },
           {{"width", 768}}}};
}

std::vector<Preset<ComplexOrder>> ComplexOrder::presets() {
  namespace of = complex_order_presets;
  const std::vector<PresetSize> words{{"width", 512}, {"vocabulary", 30000}};
  return {{"paper", [](Sizes n) { return of::paper(n[0], n[1]); }, words},
          {"transformer", [](Sizes n) { return of::transformer(n[0], n[1]); }, words},
          {"convolutional", [](Sizes n) { return of::convolutional(n[0], n[1]); }, words},
          {"language_model", [](Sizes n) { return of::language_model(n[0], n[1]); }, words}};
}

std::vector<Preset<Convolutional>> Convolutional::presets() {
  namespace of = convolutional_presets;
  return {{"wav2vec2", [](Sizes n) { return of::wav2vec2(n[0]); }, {{"width", 768}}},
          {"wav2vec2_large", [](Sizes n) { return of::wav2vec2(n[0]); }, {{"width", 1024}}}};
}

}  // namespace posenc::v0
