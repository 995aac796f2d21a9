// SPDX-License-Identifier: Apache-2.0
// The phase: sine and cosine of position x frequency, the first of the two sources of position.
//
// THE DOUBLES OF A SPECTRUM ARE THE DEFINITION; every error bound is relative to them.
// position x frequency / 2 pi is computed as a binary fraction of a turn in integer arithmetic, so there
// is no largest position and no table: frequency / 2 pi in 64 bits (f32 work) or 128
// (f64).
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/core/executor.h"
#include "posenc/core/precision.h"
#include "posenc/core/rotation.h"
#include "posenc/core/tensor_view.h"
#include "posenc/positions.h"

namespace posenc::inline v0 {

// frequency[i] = base^(-2i/width): what NTK, YaRN and LongRoPE start from. width is the rotary
// width.
struct Geometric {
  double base = 0;
  Index width = 0;
  bool operator==(const Geometric&) const = default;
};

// The same frequencies as arguments of ggml_rope_ext, from which precision `ggml` computes. A scaling that
// ggml cannot express resets it, and the precision is then rejected with the reason.
struct GgmlForm {
  double base = 10000;
  Index n_dims = 0;  // theta_scale = base^(-2/n_dims)
  double freq_scale = 1, ext_factor = 0, attn_factor = 1, beta_fast = 32, beta_slow = 1;
  Index original_context = 0;
  std::vector<double> factors;  // divisors of the frequency, one a pair; empty: none
  std::vector<Index> restart;   // pairs at which the iterated angle starts again (VISION)
  bool operator==(const GgmlForm&) const = default;
};

// Why a spectrum has no GgmlForm: a literal of the scaling that reset it, "" if there never was one. Any
// two compare equal, because it does not describe the numbers.
struct GgmlDropped {
  std::string_view why;
  bool operator==(const GgmlDropped&) const { return true; }
};

struct Spectrum {
  std::vector<double> frequency;  // [heads, axes, pairs], rad per position; 0 = does not rotate
  Index heads = 1;                // 1: shared by all heads
  Index axes = 1;                 // phase = sum over axes of position[a] * frequency[h, a, i]
  double gain = 1;                // on cos and sin, of q and of k. Only scalings write it
  double logit_factor = 1;        // on the softmax scale, the whole logit. Only scalings write it
  std::optional<Geometric> geometric;  // reset when no longer true
  std::optional<GgmlForm> ggml;        // reset when ggml cannot express it
  GgmlDropped ggml_dropped = {};
  Index valid_from = 0, valid_to = kUnbounded;  // lengths for which these frequencies are valid

  POSENC_API void drop_ggml(std::string_view why);
  Index pairs() const noexcept {
    return heads * axes == 0 ? 0 : static_cast<Index>(frequency.size()) / (heads * axes);
  }
  bool operator==(const Spectrum&) const = default;
};

// base^(-2i/width) for i < pairs (default width / 2). Throws [phase]: base <= 0 or not finite,
// width odd or not positive.
POSENC_API Spectrum geometric_spectrum(double base, Index width, Index pairs = -1);

// Throws [phase]: frequency not finite, sizes that disagree, gain or logit_factor not finite.
POSENC_API void check_spectrum(const Spectrum&);

// frequency / 2 pi as a 128-bit fraction of a turn, hi:lo = round(2^128 * (frequency / 2 pi mod
// 1)); per_unit is frequency / 2 pi as a double, for fractions of a position (f64 positions).
struct Turns {
  std::uint64_t hi = 0, lo = 0;
  double per_unit = 0;
};
POSENC_API std::vector<Turns> exact_turns(const Spectrum&);  // same order as frequency

// Rows of cosine and sine for any list of positions: cos, sin of f64, f32, f16 or bf16, any
// strides, of shape [batch * tokens, heads * columns], [batch * tokens, heads, columns] or [batch,
// tokens, (heads,) columns]; either may be empty. The gain of the spectrum is multiplied in. exact:
// in double from 128-bit turns, rounded once to the output: f32 within 3.0e-8, f64 within 2.3e-16,
// f16 and bf16 half a unit in the last place; twice that with a gain above 1 and up to 2, where
// units are twice as large, and so on. For any 64-bit position and any f64 position up to 2^62 (its
// double is the truth; real positions add 6e-20 * |frequency|). hf_float32: f32 output equals
// transformers' table or differs by one unit in the last place (from its own float32 frequencies,
// over 90 % are equal); f64 output is the same before its last roundings, within 6e-8 to 1.5e-7 of
// that table. hf_bfloat16_table: rounded to bfloat16 again. ggml: within 1.1e-6, see
// docs/numerics.md. Throws [rows] on shape or dtype, [ggml] what ggml cannot express.
POSENC_API void phase_rows(const Spectrum&, const Positions&, const TensorView& cos,
                           const TensorView& sin, TableLayout = TableLayout::half,
                           Precision = Precision::exact, const Executor& = default_executor());
// The two interleaved in one tensor: `pairs` as above, the other layouts as [cos | sin].
POSENC_API void phase_rows(const Spectrum&, const Positions&, const TensorView& cos_sin,
                           TableLayout, Precision = Precision::exact,
                           const Executor& = default_executor());

}  // namespace posenc::v0
