// SPDX-License-Identifier: Apache-2.0
// Learned tables as in programs: offsets, limits, padding, initial values. `positions` is the model's
// number of positions, from which the number of stored rows follows. Each comment names the function of
// posenc/positions.h that makes the positions.
#pragma once
#include <cmath>

#include "posenc/absolute/learned.h"

namespace posenc::inline v0 {

inline Learned learned_rows(Index width, Index rows, Index offset = 0) {
  Learned s;
  s.width = width, s.rows = rows, s.offset = offset;
  return s;
}
// arange(past, count), with padding included. 512 rows.
inline Learned bert_positions(Index width, Index positions = 512) {
  Learned s = learned_rows(width, positions);
  s.initializer = TableInitial::truncated_normal;  // the authors' code; transformers: normal
  return s;
}
// arange(past, count) without position_ids, from_mask(mask, 0) (transformers 5) when generating.
inline Learned gpt2_positions(Index width, Index positions = 1024) {
  return learned_rows(width, positions);
}
// OpenAI's own code initialises with half the deviation.
inline Learned openai_gpt2_positions(Index width, Index positions = 1024) {
  Learned s = gpt2_positions(width, positions);
  s.init = 0.01;
  return s;
}
// RoBERTa, XLM-R, Longformer, CamemBERT: from_tokens(ids, padding_idx, past) is the row itself;
// padding reads row padding_idx, which is not trained. 514 rows for 512 positions.
inline Learned roberta_positions(Index width, Index positions = 512, Index padding_idx = 1) {
  Learned s = learned_rows(width, positions + padding_idx + 1);
  s.frozen_row = padding_idx;
  return s;
}
// fairseq: from_tokens(ids, padding_idx). Its decode step ignores padding on the left: the token
// after n tokens reads row padding_idx + n, arange(padding_idx + n, 1).
inline Learned fairseq_positions(Index width, Index positions, Index padding_idx = 1) {
  Learned s = roberta_positions(width, positions, padding_idx);
  s.init = 1 / std::sqrt(static_cast<double>(width));
  return s;
}
// fairseq's convolutional model (ConvS2S): deviation 0.1.
inline Learned convs2s_positions(Index width, Index positions = 1024, Index padding_idx = 1) {
  Learned s = roberta_positions(width, positions, padding_idx);
  s.init = 0.1;
  return s;
}
// fairseq2: right_padded; row 0 is the padding row, position p reads row p + 1.
inline Learned fairseq2_positions(Index width, Index positions) {
  Learned s = learned_rows(width, positions + 1, 1);
  s.frozen_row = 0;
  return s;
}
// OPT: from_mask(mask, -1), so that masked tokens read row 1; row 0 is never read.
inline Learned opt_positions(Index width, Index positions = 2048) {
  return learned_rows(width, positions + 2, 2);
}
// BART, mBART, PLBart: arange(past, count), with padding included; rows 0 and 1 are never read.
inline Learned bart_positions(Index width, Index positions = 1024) {
  return learned_rows(width, positions + 2, 2);
}
// keras-hub: arange(start_index, count).
inline Learned keras_hub_positions(Index width, Index positions) {
  Learned s = learned_rows(width, positions);
  s.initializer = TableInitial::glorot_uniform;
  return s;
}
// tensor2tensor: rows beyond the table are zero.
inline Learned tensor2tensor_positions(Index width, Index positions) {
  Learned s = learned_rows(width, positions);
  s.beyond = Beyond::zero;
  s.init = 1 / std::sqrt(static_cast<double>(width));
  return s;
}
// OpenNMT-tf: counts from 1, clamped to the last row; row 0 is never read.
inline Learned opennmt_tf_positions(Index width, Index positions) {
  Learned s = learned_rows(width, positions + 1, 1);
  s.beyond = Beyond::clamp;
  s.initializer = TableInitial::glorot_uniform;
  return s;
}
// Marian: clamped, the embedding unscaled (it is scaled only with the sinusoid).
inline Learned marian_positions(Index width, Index positions) {
  Learned s = learned_rows(width, positions);
  s.beyond = Beyond::clamp;
  s.initializer = TableInitial::glorot_uniform;
  return s;
}
// x-transformers: times width^-1/2, or rows of norm 1; from_starts(starts, count) for padding on
// the left.
inline Learned x_transformers_positions(Index width, Index positions, bool l2norm = false) {
  Learned s = learned_rows(width, positions);
  s.l2norm = l2norm;
  if (!l2norm) s.gain = 1 / std::sqrt(static_cast<double>(width));
  s.init = l2norm ? 1e-5 : 1;
  return s;
}
// bert4keras with hierarchical positions: n rows reach n^2 positions.
inline Learned bert4keras_positions(Index width, Index rows, double alpha = 0.4) {
  Learned s = learned_rows(width, rows);
  s.beyond = Beyond::extend;
  s.alpha = alpha;
  s.initializer = TableInitial::zeros;
  return s;
}
// bert4keras with merge_mode="mul": x (1 + P), P from zeros.
inline Learned bert4keras_mul_positions(Index width, Index positions) {
  Learned s = learned_rows(width, positions);
  s.compose = Compose::one_plus;
  s.initializer = TableInitial::zeros;
  return s;
}

}  // namespace posenc::v0
