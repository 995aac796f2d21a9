// SPDX-License-Identifier: Apache-2.0
// Enformer's relative positions: Transformer-XL's score on a basis of its own. Avsec et al., Nature
// Methods 18 (2021), 1196, methods; deepmind-research, enformer/attention_module.py:
//   S_ij = (s q_i + u_h) . k_j + (s q_i + v_h) . (W f(j - i))_h
// s is the scale of the content, ScoreShape::scale; u and v are not scaled, unlike Transformer-XL's.
// With L = length and n = features / 6 functions of a kind, m = 0 .. n - 1, x = |j - i|:
//   exponential   2^(-x / 2^(3 + m (log2 L - 3) / (n - 1)))
//   central mask  1 where x < 2^(m + 1) - 1, else 0
//   gamma         the density at x of the gamma law of mean L (1 + m) / n and deviation L / (2 n),
//                 plus 1e-8, divided by its largest value: each function by its own over
//                 x = 0 .. L - 1 (the trained model; the authors' code since 57456a0)
// f is these 3 n numbers, then the same times sign(j - i). L is the number of tokens that the model
// was trained with (1536): longer distances are rejected.
// What computes it is in src/relative/enformer.cpp.
#pragma once
#include <array>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

// The largest value that divides the gamma functions. function: of each function by itself. all: of
// all functions together (the authors' code before 57456a0, which does not fit the published
// weights). distance: of all functions at one distance (enformer-pytorch without its table).
enum class EnformerMaximum : std::uint8_t { function, all, distance };
template <>
struct EnumNames<EnformerMaximum> {
  static constexpr std::array<std::string_view, 3> value{"function", "all", "distance"};
};

struct Enformer {
  static constexpr Card card{"enformer", "Enformer relative positions", "Avsec et al. 2021",
                             "methods"};
  Index length = 1536, features = 192;
  EnformerMaximum gamma_maximum = EnformerMaximum::function;

  // f of delta = query - key, [features].
  POSENC_API std::vector<double> basis(Index delta) const;

  // w_r [heads * head_dim, features], u and v_bias [heads, head_dim]; truncated normal laws with
  // variance 2 / features and, as Sonnet counts the inputs of the biases, 2 / heads.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Enformer&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("length", s.length,
      Field{.doc = "number of tokens for which the basis is computed",
            .unit = "tokens",
            .min = 2,
            .max = 16777216});
    v("features", s.features,
      Field{.doc = "functions of the basis, a multiple of 6", .min = 6, .max = 3072});
    v("gamma_maximum", s.gamma_maximum,
      Field{.doc =
                "largest value that divides a gamma function: its own, that of all functions, or "
                "that of all at one distance"});
  }

 private:
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
