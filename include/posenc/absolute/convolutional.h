// SPDX-License-Identifier: Apache-2.0
// Convolutional positions: wav2vec 2.0, arXiv:2006.11477, section 2; HuBERT, WavLM, data2vec:
//   e_t = gelu(bias + sum over k of W_k x_(t + k - kernel / 2)),   y = x + e
// a grouped convolution over time, zeros beyond the ends; the kernel's window has one token more on
// the left when it is even (other programs pad both sides and drop the last output). W_k = g_k v_k /
// |v_k| with weight normalisation, the norm over all channels for each tap of the kernel. A token
// gets its position from its neighbours and the ends; there are no positions as input.
// Implementation: src/absolute/convolutional.cpp.
#pragma once
#include <span>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/core/parameter.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

struct Convolutional {
  static constexpr Card card{"convolutional", "convolutional positions", "arXiv:2006.11477",
                             "sec. 2"};
  Index width = 0, kernel = 128, groups = 16;
  bool weight_norm = true;
  bool add = true;  // y = x + e; false: y = e

  // weight_g [kernel] and weight_v [width, width / groups, kernel], or weight of that shape without
  // weight normalisation; bias [width].
  POSENC_API std::vector<Parameter> parameters() const;

  // Named settings of programs (namespace convolutional_presets).
  POSENC_API static std::vector<Preset<Convolutional>> presets();

  bool operator==(const Convolutional&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width, Field{.doc = "channels", .min = 1, .max = 1e6, .required = true});
    v("kernel", s.kernel,
      Field{.doc = "taps of the kernel", .unit = "tokens", .min = 1, .max = 1e6});
    v("groups", s.groups, Field{.doc = "groups of channels", .min = 1, .max = 1e6});
    v("weight_norm", s.weight_norm, Field{.doc = "weight normalisation"});
    v("add", s.add, Field{.doc = "the result is x plus the encoding, otherwise the encoding"});
  }
};

namespace convolutional_presets {
// wav2vec 2.0, HuBERT, WavLM, UniSpeech: num_conv_pos_embeddings, num_conv_pos_embedding_groups.
POSENC_API Convolutional wav2vec2(Index width, Index kernel = 128, Index groups = 16);
}  // namespace convolutional_presets

// y of x, [t, c] or [b, t, c], f64, f32, f16, bf16, in double, rounded once; no overlap. The
// caller must set padded tokens to zero, as other programs do. Throws [convolutional]: shapes, dtypes, a
// tap of the kernel whose weights are all 0 under weight normalisation.
POSENC_API void convolutional_positions(const Convolutional&,
                                        std::span<const ConstTensorView> parameters,
                                        const ConstTensorView& x, const TensorView& y);
// d_x overwritten (empty: not computed); gradients of the parameters f64 or f32, ACCUMULATED (empty
// views: not computed), in the order of parameters().
POSENC_API void convolutional_gradient(const Convolutional&,
                                       std::span<const ConstTensorView> parameters,
                                       const ConstTensorView& x, const ConstTensorView& d_y,
                                       const TensorView& d_x,
                                       std::span<const TensorView> d_parameters);

}  // namespace posenc::v0
