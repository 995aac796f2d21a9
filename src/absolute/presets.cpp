// SPDX-License-Identifier: Apache-2.0
// The presets of schemes whose list is shown by name, each at one usual width.
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

namespace posenc {

std::vector<std::pair<std::string_view, Sinusoidal>> Sinusoidal::presets() {
  namespace of = sinusoidal_presets;
  constexpr Index w = 512;
  return {{"paper", of::paper(w)},
          {"tutorial", of::tutorial(w)},
          {"shape", of::shape(w)},
          {"multiplicative", of::multiplicative(w)},
          {"bert4keras", of::bert4keras(w)},
          {"bert4keras_mul", of::bert4keras(w, Compose::one_plus)},
          {"tensor2tensor", of::tensor2tensor(w)},
          {"fairseq", of::fairseq(w)},
          {"fairseq2", of::fairseq2(w)},
          {"marian", of::marian(w)},
          {"hf_marian", of::hf_marian(w)},
          {"transformer_xl", of::transformer_xl(w)},
          {"xlnet", of::xlnet(w)},
          {"tener", of::tener(64)},
          {"tener_paper", of::tener_paper(64)},
          {"nezha", of::nezha(64)},
          {"timesfm", of::timesfm(1280)},
          {"musicgen", of::musicgen(w)},
          {"whisper", of::whisper(w)},
          {"speecht5", of::speecht5(w)},
          {"ctranslate2", of::ctranslate2(w)},
          {"opennmt_tf", of::opennmt_tf(w)},
          {"opennmt_py_concat", of::opennmt_py_concat(w)},
          {"mlx", of::mlx(w)},
          {"x_transformers_scaled", of::x_transformers_scaled(w)},
          {"tatp22", of::tatp22(w)},
          {"deepmind", of::deepmind(w)},
          {"timestep", of::timestep(w)},
          {"tape", of::tape(w, 1024)},
          {"cape", of::cape(w)}};
}

std::vector<std::pair<std::string_view, SinusoidalNd>> SinusoidalNd::presets() {
  namespace of = sinusoidal_nd_presets;
  constexpr Index w = 768;
  return {{"tatp22_2d", of::tatp22(w, 2)},
          {"tatp22_3d", of::tatp22(w, 3)},
          {"tensor2tensor", of::tensor2tensor(w, 2)},
          {"mae", of::mae(w)},
          {"hf_vision", of::hf_vision(w)},
          {"diffusers_3d", of::diffusers_3d(w)},
          {"detr", of::detr(128)},
          {"timm", of::timm(w)},
          {"timm_interleaved", of::timm(w, 10000, true)}};
}

std::vector<std::pair<std::string_view, Learned>> Learned::presets() {
  constexpr Index w = 768;
  return {{"bert", bert_positions(w)},
          {"gpt2", gpt2_positions(w)},
          {"openai_gpt2", openai_gpt2_positions(w)},
          {"roberta", roberta_positions(w)},
          {"fairseq", fairseq_positions(w, 1024)},
          {"convs2s", convs2s_positions(w)},
          {"fairseq2", fairseq2_positions(w, 1024)},
          {"opt", opt_positions(w)},
          {"bart", bart_positions(w)},
          {"keras_hub", keras_hub_positions(w, 512)},
          {"tensor2tensor", tensor2tensor_positions(w, 512)},
          {"opennmt_tf", opennmt_tf_positions(w, 512)},
          {"marian", marian_positions(w, 512)},
          {"x_transformers", x_transformers_positions(w, 1024)},
          {"x_transformers_l2norm", x_transformers_positions(w, 1024, true)},
          {"bert4keras", bert4keras_positions(w, 512)},
          {"bert4keras_mul", bert4keras_mul_positions(w, 512)}};
}

std::vector<std::pair<std::string_view, FourierFeatures>> FourierFeatures::presets() {
  namespace of = fourier_presets;
  return {{"perceiver", of::perceiver(64, {224, 224})}, {"nerf", of::nerf(3, 10)},
          {"nerf_code", of::nerf_code(3, 10)},          {"sam", of::sam(128)},
          {"timm_pixels", of::timm_pixels(32, 224)},    {"timm_index", of::timm_index(32)}};
}

std::vector<std::pair<std::string_view, LearnedAxes>> LearnedAxes::presets() {
  namespace of = learned_axes_presets;
  return {{"reformer", of::reformer()},
          {"axial_positional_embedding", of::axial_positional_embedding(512, {64, 64})},
          {"detr", of::detr()},
          {"tensor2tensor", of::tensor2tensor(512, {64, 64})}};
}

std::vector<std::pair<std::string_view, Boxes>> Boxes::presets() {
  namespace of = boxes_presets;
  return {{"layoutlm", of::layoutlm()},
          {"layoutlmv2", of::layoutlmv2()},
          {"layoutlmv3", of::layoutlmv3()}};
}

std::vector<std::pair<std::string_view, Hierarchy>> Hierarchy::presets() {
  namespace of = hierarchy_presets;
  return {{"segatron_bert", of::segatron_bert()}, {"segatron_xl", of::segatron_xl(410)}};
}

std::vector<std::pair<std::string_view, Cape2d>> Cape2d::presets() {
  namespace of = cape2d_presets;
  return {{"code", of::code(768)}, {"package", of::package(768)}};
}

std::vector<std::pair<std::string_view, Coordinates>> Coordinates::presets() {
  namespace of = coordinates_presets;
  return {{"coordconv", of::coordconv()}, {"coordconv_r", of::coordconv(true)}};
}

// Our own worked example: words, patches and sound on one axis of twentieths of a second.
std::vector<std::pair<std::string_view, CrossModal>> CrossModal::presets() {
  CrossModal s;
  s.width = 768, s.modalities = 3, s.widths = {768}, s.scale = {20};
  return {{"seconds", s}};
}

std::vector<std::pair<std::string_view, ComplexOrder>> ComplexOrder::presets() {
  namespace of = complex_order_presets;
  return {{"paper", of::paper(512, 30000)},
          {"transformer", of::transformer(512, 30000)},
          {"language_model", of::language_model(512, 30000)}};
}

std::vector<std::pair<std::string_view, Convolutional>> Convolutional::presets() {
  namespace of = convolutional_presets;
  return {{"wav2vec2", of::wav2vec2(768)}, {"wav2vec2_large", of::wav2vec2(1024)}};
}

}  // namespace posenc
