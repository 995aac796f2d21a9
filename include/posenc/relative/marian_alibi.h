// SPDX-License-Identifier: Apache-2.0
// Marian's form of ALiBi (alibi.h), with a learned slope and a learned offset for each head:
//   S_ij += -|m_h| |j - i + b_h|       absolute=false: m_h |j - i + b_h|, Marian's first version
// The key at j - i = -b has the largest score; there and at m = 0 the derivatives are those of the
// side above, as in Marian (without `absolute` 0). Marian also subtracts a shift from j - i, of the
// separators passed so far: that is a query's position of i + shift. Its window is the call's mask.
// Starts (marian-dev, layers_new/alibi.h):
//   encoder   m = -2, -1, -0.5, -0.25, then -0.05;   b = 1, -2, 3, -4, 5, -6, 7, -8, then 0
//   decoder   m = -2^(-8 (h + 1) / heads);           b = 0
//   cross     m = -0.1;                              b = 0.3
// What computes it is in src/relative/marian_alibi.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

enum class MarianAttention : std::uint8_t { encoder, decoder, cross };
template <>
struct EnumNames<MarianAttention> {
  static constexpr std::array<std::string_view, 3> value{"encoder", "decoder", "cross"};
};

struct MarianAlibi {
  static constexpr Card card{"marian_alibi", "ALiBi with learned slopes and offsets", "marian-dev",
                             "code"};
  MarianAttention attention = MarianAttention::encoder;
  bool absolute = true;
  Index axis = 0;

  // slopes, biases [heads].
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const MarianAlibi&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("attention", s.attention, Field{.doc = "initial values, by kind of attention"});
    v("absolute", s.absolute, Field{.doc = "the slope is -|m|, else m"});
    v("axis", s.axis, Field{.doc = "axis of the positions", .min = 0, .max = 7});
  }
};

}  // namespace posenc::v0
