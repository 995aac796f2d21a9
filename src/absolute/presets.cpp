// SPDX-License-Identifier: Apache-2.0
// The presets of schemes whose list is shown by name, each at one usual width.
#include <numbers>

#include "posenc/absolute/fourier_features.h"
#include "posenc/absolute/learned_presets.h"
#include "posenc/absolute/sinusoidal_nd_presets.h"
#include "posenc/absolute/sinusoidal_presets.h"

namespace posenc {

std::vector<std::pair<std::string_view, Sinusoidal>> Sinusoidal::presets() {
  namespace of = sinusoidal_presets;
  constexpr Index w = 512;
  return {{"paper", of::paper(w)},
          {"tutorial", of::tutorial(w)},
          {"bert4keras", of::bert4keras(w)},
          {"tensor2tensor", of::tensor2tensor(w)},
          {"fairseq", of::fairseq(w)},
          {"fairseq2", of::fairseq2(w)},
          {"marian", of::marian(w)},
          {"hf_marian", of::hf_marian(w)},
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
          {"bert4keras", bert4keras_positions(w, 512)}};
}

std::vector<std::pair<std::string_view, FourierFeatures>> FourierFeatures::presets() {
  namespace of = fourier_presets;
  return {{"perceiver", of::perceiver(64, {224, 224})}, {"nerf", of::nerf(3, 10)},
          {"nerf_code", of::nerf_code(3, 10)},          {"sam", of::sam(128)},
          {"timm_pixels", of::timm_pixels(32, 224)},    {"timm_index", of::timm_index(32)}};
}

}  // namespace posenc
