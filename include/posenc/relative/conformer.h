// SPDX-License-Identifier: Apache-2.0
// Transformer-XL's score for the Conformers of speech: keys on both sides. Gulati et al.,
// arXiv:2005.08100, section 2.1, after Dai et al., arXiv:1901.02860:
//   S_ij = s [ (q_i + u_h) . k_j + (q_i + v_h) . (W R_delta)_h ]
//   R_delta = sin(delta w_m), cos(delta w_m) interleaved, w_m = base^(-2m / d_model)
// s is the scale of the content, ScoreShape::scale. ESPnet, fairseq, NeMo and Wav2Vec2-Conformer
// agree, and compute R in float32: with `rows` R is a parameter, so that you can pass theirs.
// Implementations disagree on the scale (SpeechBrain: d_model^-1/2) and on the sine of keys after
// the query (SpeechBrain: that of the keys before, `even`). ESPnet's legacy form is wrong for
// keys after the query; WeNet omits the shift (conformer_absolute_key.h).
// What computes it is in src/relative/conformer.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct Conformer {
  static constexpr Card card{"conformer", "Conformer relative positions", "arXiv:2005.08100",
                             "sec. 2.1"};
  Index d_model = 0;
  double base = 10000;
  Index rows = 0;
  bool even = false;
  bool biases = true, halves = false, t2t = false;

  // R_delta, [d_model].
  POSENC_API std::vector<double> sinusoid(Index delta) const;

  // With rows R [rows, d_model], by falling distance, (rows - 1) / 2 first; w_kr [heads * head_dim,
  // d_model], with biases u and v_bias [heads, head_dim].
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  // gemma3n_audio, by its width.
  POSENC_API static std::vector<Preset<Conformer>> presets();

  bool operator==(const Conformer&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("d_model", s.d_model,
      Field{.doc = "width of the sinusoid", .min = 2, .max = 1e6, .required = true});
    v("base", s.base, Field{.doc = "of the sinusoid", .min = 1e-300});
    v("rows", s.rows,
      Field{.doc = "rows of R as a parameter, an odd number; 0: R is computed",
            .min = 0,
            .max = 16777215});
    v("even", s.even, Field{.doc = "the sine of a distance is that of its absolute value"});
    v("biases", s.biases, Field{.doc = "whether u and v exist"});
    v("halves", s.halves, Field{.doc = "sines before cosines, not interleaved"});
    v("t2t", s.t2t, Field{.doc = "frequencies base^(-m / (d_model / 2 - 1))"});
  }

 private:
  // Distances that the rows of the table have, first and last.
  DistanceRange range(const ScoreShape& s) const;
  std::vector<double> made(const DistanceRange& r) const;
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
