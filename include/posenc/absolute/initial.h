// SPDX-License-Identifier: Apache-2.0
// The published initialisers, drawn the same on every machine (core/philox.h).
// Implementation: src/absolute/initial.cpp.
#pragma once
#include <vector>

#include "posenc/core/parameter.h"
#include "posenc/core/philox.h"

namespace posenc::inline v0 {

// The initial values of a table of positions; `init` is the deviation or half of the range.
//   normal            N(0, init): BERT, RoBERTa, GPT-2 in transformers 0.02, OpenAI's GPT-2 0.01,
//                     ConvS2S 0.1, fairseq and tensor2tensor width^-1/2
//   truncated_normal  within two deviations: BERT's authors 0.02, timm's ViT 0.02
//   uniform           -init .. init: complex word order's amplitudes (1) in the authors' network
//   uniform_positive  0 .. init: DETR's tables (1)
//   glorot_uniform    +- sqrt(6 / (rows + width)): Marian, keras-hub, Glorot and Bengio 2010
//   zeros             bert4keras
enum class TableInitial : std::uint8_t {
  normal,
  truncated_normal,
  uniform,
  glorot_uniform,
  zeros,
  uniform_positive
};
template <>
struct EnumNames<TableInitial> {
  static constexpr std::array<std::string_view, 6> value{
      "normal", "truncated_normal", "uniform", "glorot_uniform", "zeros", "uniform_positive"};
};
POSENC_API Initial initial_of(TableInitial kind, double init, Index rows, Index width);

// Element i of the parameter from draw i. Use Draws of different sequences or purposes for the
// parameters of one model.
POSENC_API std::vector<double> initial_values(const Parameter&, const Draws&);

}  // namespace posenc::v0
