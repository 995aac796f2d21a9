// SPDX-License-Identifier: Apache-2.0
// Sinusoids as programs make them, by name. `width` is the model's; positions as the program makes
// them. docs/absolute/sinusoidal.md says who uses what; programs that agree share a name.
#pragma once
#include <algorithm>
#include <cmath>

#include "posenc/absolute/sinusoidal.h"

namespace posenc::inline v0::sinusoidal_presets {

// Vaswani et al., sections 3.4 and 3.5: sqrt(width) times the embedding. Also Annotated
// Transformer, OpenNMT-py, CAPE in one dimension and SHAPE.
inline Sinusoidal paper(Index width) {
  return {.width = width, .input_gain = std::sqrt(static_cast<double>(width))};
}
// The usual tutorial code, pytorch/examples, XLM in transformers, KerasHub: the embedding unscaled.
inline Sinusoidal tutorial(Index width) {
  return {.width = width};
}
// SHAPE: the paper's, at positions that start at shape_offsets (positions/random.h).
inline Sinusoidal shape(Index width) {
  return paper(width);
}
// x P(p): half of the channels are 0 at position 0. kexue.fm/archives/8130; no program is known.
inline Sinusoidal multiplicative(Index width) {
  return {.width = width, .compose = Compose::multiply};
}
// bert4keras; multiply: x (1 + P).
inline Sinusoidal bert4keras(Index width, Compose compose = Compose::add) {
  return {.width = width, .compose = compose};
}
// tensor2tensor's timing signal; start_index is the first position.
inline Sinusoidal tensor2tensor(Index width, double min_timescale = 1,
                                double max_timescale = 10000) {
  return {.width = width,
          .layout = SineLayout::halves,
          .spacing = SineSpacing::t2t,
          .base = max_timescale,
          .min_timescale = min_timescale,
          .odd = OddWidth::zero_pad};
}
// fairseq and transformers' M2M-100: positions count real tokens from padding_idx + 1
// (from_tokens), the row of padding_idx is zero. Widths 2 and 3 divide by zero there.
inline Sinusoidal fairseq(Index width, Index padding_idx = 1, bool scale_embedding = true) {
  if (width == 2 || width == 3)
    refuse("sinusoidal", "fairseq divides by zero at widths 2 and 3", width);
  Sinusoidal s = tensor2tensor(width);
  s.zero_position = padding_idx;
  if (scale_embedding) s.input_gain = std::sqrt(static_cast<double>(width));
  return s;
}
// fairseq2: positions from 0, -1 is padding; with legacy_pad_idx from legacy_pad_idx + 1.
inline Sinusoidal fairseq2(Index width, std::optional<Index> legacy_pad_idx = {}) {
  Sinusoidal s = tensor2tensor(width);
  s.odd = OddWidth::refuse;
  s.zero_position = -1;
  s.offset = legacy_pad_idx ? *legacy_pad_idx + 1 : 0;
  return s;
}
// marian-nmt: an odd width wraps.
inline Sinusoidal marian(Index width) {
  Sinusoidal s = tensor2tensor(width);
  s.odd = OddWidth::marian;
  s.input_gain = std::sqrt(static_cast<double>(width));
  return s;
}
// transformers' port of Marian: paper spacing in halves (another spacing than the program's).
// RoFormer's sinusoid is the same at even widths.
inline Sinusoidal hf_marian(Index width) {
  return {.width = width, .layout = SineLayout::halves, .odd = OddWidth::truncate};
}
// Transformer-XL's rows R of d_model channels, at distances query - key (relative/transformer_xl.h
// is the score that reads them).
inline Sinusoidal transformer_xl(Index d_model) {
  return {.width = d_model, .layout = SineLayout::halves};
}
// XLNet's: the same rows, at distances of both signs; with bi_data half of a batch has key - query.
inline Sinusoidal xlnet(Index d_model) {
  return transformer_xl(d_model);
}
// TENER's rows R of head_dim channels. The paper: at query - key. Its code: halves, t2t spacing, at
// key - query. A head of 2 divides by zero there.
inline Sinusoidal tener_paper(Index head_dim) {
  return {.width = head_dim};
}
inline Sinusoidal tener(Index head_dim) {
  if (head_dim == 2 || head_dim == 3)
    refuse("sinusoidal", "TENER divides by zero at heads of 2 and 3", head_dim);
  return tensor2tensor(head_dim);
}
// NEZHA's rows of head_dim channels, at clip(key - query, -k, k) + k: its table is not centred.
inline Sinusoidal nezha(Index head_dim) {
  return {.width = head_dim};
}
// TimesFM: tensor2tensor's law; positions count from the first segment that is no padding.
inline Sinusoidal timesfm(Index width, double min_timescale = 1, double max_timescale = 10000) {
  Sinusoidal s = tensor2tensor(width, min_timescale, max_timescale);
  s.odd = OddWidth::refuse;
  return s;
}
// MusicGen: cosine first. Widths 2 and 3 divide by zero there.
inline Sinusoidal musicgen(Index width) {
  if (width == 2 || width == 3)
    refuse("sinusoidal", "MusicGen divides by zero at widths 2 and 3", width);
  Sinusoidal s = tensor2tensor(width);
  s.layout = SineLayout::halves_cos_first;
  return s;
}
// Whisper's encoder. Widths below 4 divide by zero there; odd ones are rejected.
inline Sinusoidal whisper(Index width, double max_timescale = 10000) {
  if (width < 4) refuse("sinusoidal", "Whisper divides by zero below width 4", width);
  Sinusoidal s = tensor2tensor(width, 1, max_timescale);
  s.odd = OddWidth::refuse;
  return s;
}
// SpeechT5: one learned number multiplies the encoding.
inline Sinusoidal speecht5(Index width) {
  return {.width = width, .learned_gain = true};
}
// CTranslate2: row i is position i + 1.
inline Sinusoidal ctranslate2(Index width) {
  Sinusoidal s = tensor2tensor(width);
  s.odd = OddWidth::refuse;
  s.offset = 1;
  s.input_gain = std::sqrt(static_cast<double>(width));
  return s;
}
// OpenNMT-tf: positions from 1.
inline Sinusoidal opennmt_tf(Index width) {
  return ctranslate2(width);
}
// OpenNMT-py's SinusoidalConcat.
inline Sinusoidal opennmt_py_concat(Index width) {
  Sinusoidal s = ctranslate2(width);
  s.offset = 0;
  return s;
}
// MLX: frequencies from max_freq down to min_freq, gain sqrt(2 / width) by default; full_turns:
// frequencies in turns.
inline Sinusoidal mlx(Index width, double min_freq = 1e-4, double max_freq = 1,
                      bool cos_first = false, bool full_turns = false) {
  if (!(min_freq > 0) || !(max_freq > 0))
    refuse("sinusoidal", "MLX's frequencies must be positive", std::min(min_freq, max_freq));
  return {.width = width,
          .layout = cos_first ? SineLayout::halves_cos_first : SineLayout::halves,
          .spacing = SineSpacing::t2t,
          .base = max_freq / min_freq,
          .scale = max_freq * (full_turns ? 6.283185307179586 : 1.0),
          .gain = std::sqrt(2 / static_cast<double>(width))};
}
// x-transformers' ScaledSinusoidalEmbedding: gain learned from width^-1/2.
inline Sinusoidal x_transformers_scaled(Index width, double theta = 10000) {
  return {.width = width, .layout = SineLayout::halves, .base = theta, .learned_gain = true};
}
// tatp22's PositionalEncoding1D.
inline Sinusoidal tatp22(Index width) {
  return {.width = width, .exponent_width = width + width % 2, .odd = OddWidth::truncate};
}
// DeepMind's randomised encodings; also diffusers' 1-D sincos at base 10000.
inline Sinusoidal deepmind(Index width, double max_timescale = 10000) {
  return {.width = width, .layout = SineLayout::halves, .base = max_timescale};
}
// diffusers' timestep embedding of real timesteps. DiT and most diffusion models: flip, shift 0;
// DDPM: no flip, shift 1.
inline Sinusoidal timestep(Index width, bool flip_sin_to_cos = true, double shift = 0,
                           double scale = 1, double max_period = 10000) {
  return {.width = width,
          .layout = flip_sin_to_cos ? SineLayout::halves_cos_first : SineLayout::halves,
          .spacing = SineSpacing::shifted,
          .base = max_period,
          .scale = scale,
          .shift = shift,
          .odd = OddWidth::zero_pad};
}
// tAPE, ConvTran (arXiv:2305.16642, eq. 13): every frequency times width / length, so that short
// series and small widths keep distant positions apart.
inline Sinusoidal tape(Index width, Index length) {
  if (length < 1) refuse("sinusoidal", "tAPE's length must be positive", length);
  return {.width = width, .scale = static_cast<double>(width) / static_cast<double>(length)};
}
// CAPE in one dimension (arXiv:2106.03143): positions are cape_positions(..).
inline Sinusoidal cape(Index width, double freq_scale = 1) {
  Sinusoidal s = paper(width);
  s.scale = freq_scale;
  return s;
}

}  // namespace posenc::v0::sinusoidal_presets
