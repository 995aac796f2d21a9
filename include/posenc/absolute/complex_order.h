// SPDX-License-Identifier: Apache-2.0
// Complex-valued word order. Wang et al., ICLR 2020, arXiv:1912.12333, eq. 5 to 7:
//   f(w, p)[c] = r[w, c] exp(i (omega p + theta)),   re = r cos, im = r sin
// amplitude r, frequency omega and initial phase theta of word w and channel c, each possibly
// shared. No row is added to x: embedding, linear maps and attention are complex, by the paper's algebra. The
// authors' public code differs in places: see docs/absolute/complex_order.md.
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/absolute/initial.h"
#include "posenc/core/describe.h"
#include "posenc/core/heads.h"
#include "posenc/core/parameter.h"
#include "posenc/positions/view.h"

namespace posenc::inline v0 {

enum class WordSharing : std::uint8_t { none, per_word_and_channel, per_channel, per_word };
template <>
struct EnumNames<WordSharing> {
  static constexpr std::array<std::string_view, 4> value{"none", "per_word_and_channel",
                                                         "per_channel", "per_word"};
};

struct ComplexOrder {
  static constexpr Card card{"complex_order", "complex-valued word order", "arXiv:1912.12333",
                             "eq. 5"};
  Index width = 0, vocabulary = 0;
  WordSharing frequency = WordSharing::per_word_and_channel;
  WordSharing phase = WordSharing::none;  // none: no initial phase, as in the public code
  double amplitude_gain = 1;              // sqrt(width) in the authors' language model
  std::optional<Index> padding_word{};    // its amplitude has no gradient
  double init = 1;                        // deviation of the amplitudes at the start
  TableInitial initializer = TableInitial::normal;

  // amplitude [vocabulary, width]; frequency and phase [vocabulary, width], [width] or
  // [vocabulary, 1]. Throws [complex_order].
  POSENC_API std::vector<Parameter> parameters() const;

  // Named settings of programs (namespace complex_order_presets).
  POSENC_API static std::vector<Preset<ComplexOrder>> presets();

  bool operator==(const ComplexOrder&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of each part", .min = 1, .max = 1e6, .required = true});
    v("vocabulary", s.vocabulary, Field{.doc = "words", .min = 1, .max = 1e9, .required = true});
    v("frequency", s.frequency, Field{.doc = "which words and channels share a frequency"});
    v("phase", s.phase, Field{.doc = "which share an initial phase; none: no initial phase"});
    v("amplitude_gain", s.amplitude_gain, Field{.doc = "multiplies the amplitudes"});
    v("padding_word", s.padding_word, Field{.doc = "word whose amplitude has no gradient"});
    v("init", s.init, Field{.doc = "initial deviation of the amplitudes", .min = 0});
    v("initializer", s.initializer, Field{.doc = "initial distribution of the amplitudes"});
  }
};

namespace complex_order_presets {
// Eq. 5 whole: a frequency and an initial phase for every word and channel.
POSENC_API ComplexOrder paper(Index width, Index vocabulary);
// The authors' code has no initial phase. Its Transformer for classification: reversed positions,
// word 0 is padding.
POSENC_API ComplexOrder transformer(Index width, Index vocabulary);
// Its convolutional network: positions 1, 2, .., 0 for padding; amplitudes uniform in (-1, 1)
// without word vectors; frequencies by the number of the word (ComplexStart::convolutional).
POSENC_API ComplexOrder convolutional(Index width, Index vocabulary);
// Its language model: positions 1, 2, ...; sqrt(width) times the amplitudes.
POSENC_API ComplexOrder language_model(Index width, Index vocabulary);
}  // namespace complex_order_presets

// The authors' initial frequencies: their Transformer for all words alike (10000^(-2 floor(c / 2)
// / D)), their convolutional network by the number of the word (w 10000^(-2c / D)). In the shape of
// the parameter; with sharing those of word 1 or channel 0. Throws [complex_order].
enum class ComplexStart : std::uint8_t { transformer, convolutional };
template <>
struct EnumNames<ComplexStart> {
  static constexpr std::array<std::string_view, 2> value{"transformer", "convolutional"};
};
POSENC_API std::vector<double> complex_frequencies(const ComplexOrder&, ComplexStart);

// Real and imaginary part, of equal shape: [t, d] or [b, t, d], f64, f32, f16, bf16.
struct ConstComplexParts {
  ConstTensorView re, im;
};
struct ComplexParts {
  TensorView re, im;
  operator ConstComplexParts() const noexcept { return {re, im}; }
};

// y of words ids ([t] or [b, t] of u8, i32, i64) at positions (batch of 1, or of ids). The angles
// are exact at any position (phase.h). The authors' Transformer uses reversed positions, their
// language model 1 .. length. Throws [complex_order]: shapes, dtypes, an id without a row.
POSENC_API void complex_embedding(const ComplexOrder&, std::span<const ConstTensorView> parameters,
                                  const ConstTensorView& ids, const Positions&,
                                  const ComplexParts& y);
// Its transpose: gradients of the parameters, f64 or f32, ACCUMULATED (empty: not computed), in
// the order of parameters(); d_position [b, t] f64 accumulated, or empty.
POSENC_API void complex_embedding_gradient(const ComplexOrder&,
                                           std::span<const ConstTensorView> parameters,
                                           const ConstTensorView& ids, const Positions&,
                                           const ConstComplexParts& d_y,
                                           std::span<const TensorView> d_parameters,
                                           const TensorView& d_position = {});

// (A + iB)(x + iy) + (a + ib): re = A x - B y + a, im = B x + A y + b. weight.re A, weight.im B
// [out, in]; B empty: 0, one real map for both parts (the authors' Transformer); bias [out] each,
// or empty, f64 or f32. Tokens as above; y must not overlap x or the map. Throws [complex_linear].
struct ComplexMap {
  ConstComplexParts weight, bias;
};
struct ComplexMapGradient {
  ComplexParts weight, bias;
};
POSENC_API void complex_linear(const ComplexMap&, const ConstComplexParts& x,
                               const ComplexParts& y);
// d_x overwritten (empty: not computed), may be x, not d_y; d_map f64, ACCUMULATED (empty: none).
POSENC_API void complex_linear_gradient(const ComplexMap&, const ConstComplexParts& x,
                                        const ConstComplexParts& d_y, const ComplexParts& d_x,
                                        const ComplexMapGradient& d_map);

// Attention over complex q, k, v: S = scale |z|, a real softmax, applied to both parts of v.
//   hermitian  z = sum q conj(k): depends on the difference of positions (the paper's product)
//   bilinear   z = sum q k: depends on their sum (the public code)
enum class ComplexScore : std::uint8_t { hermitian, bilinear };
template <>
struct EnumNames<ComplexScore> {
  static constexpr std::array<std::string_view, 2> value{"hermitian", "bilinear"};
};
struct ConstComplexHeads {
  ConstHeads re, im;
};
struct ComplexHeads {
  Heads re, im;
  operator ConstComplexHeads() const noexcept { return {re, im}; }
};
struct ComplexAttention {
  ComplexScore score = ComplexScore::hermitian;
  double scale = 0;  // 0: 1 / sqrt(dim)
  ConstTensorView
      mask;  // [b|1, h|1, q, k] of u8, 1 = visible; empty: all. A query without any: zeros
};
// out of the shape of q, may be q, not k, v; probabilities [b, h, q, k] f64, or empty. f64 or f32,
// in double, rounded once; memory for the scores of one query. Throws [complex_attention].
POSENC_API void complex_attention(const ComplexAttention&, const ConstComplexHeads& q,
                                  const ConstComplexHeads& k, const ConstComplexHeads& v,
                                  const ComplexHeads& out, const TensorView& probabilities = {});
// d_q, d_k, d_v overwritten, of the dtypes of q, k, v. Where z = 0 the gradient of |z| is 0.
POSENC_API void complex_attention_gradient(const ComplexAttention&, const ConstComplexHeads& q,
                                           const ConstComplexHeads& k, const ConstComplexHeads& v,
                                           const ConstComplexHeads& d_out, const ComplexHeads& d_q,
                                           const ComplexHeads& d_k, const ComplexHeads& d_v);

}  // namespace posenc::v0
