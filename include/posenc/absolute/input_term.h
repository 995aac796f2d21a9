// SPDX-License-Identifier: Apache-2.0
// What an absolute scheme lowers to: rows that are composed with the token embeddings.
//
//   y_i = compose(input_gain * x_i, gain * row(p_i))      on channels [first, first + width)
//
// The rows come from a phase (sine and cosine of position x frequency), from a table picked by the
// position, from the position itself (affine), or from the caller, one for each token. A few schemes
// apply dense layers to them first.
#pragma once
#include <array>
#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "posenc/core/composition.h"
#include "posenc/core/describe.h"
#include "posenc/core/parameter.h"
#include "posenc/core/tensor_view.h"
#include "posenc/phase.h"
#include "posenc/positions/view.h"

namespace posenc::inline v0 {

// out = activation(weight in + bias). gelu is x (1 + erf(x / sqrt 2)) / 2, silu x / (1 + e^-x),
// square x^2, root sqrt(x) for x >= 0 with slope 0 at 0, as of a norm. The last two compute distances;
// no field selects them.
enum class Activation : std::uint8_t { identity, gelu, silu, relu, square, root };
template <>
struct EnumNames<Activation> {
  static constexpr std::array<std::string_view, 4> value{"identity", "gelu", "silu", "relu"};
};
struct DenseLayer {
  ConstTensorView weight;  // [out, in] f64
  ConstTensorView bias;    // [1, out] f64; empty: none
  Activation activation = Activation::identity;
};

struct InputTerm {
  const Spectrum* phase = nullptr;  // rows of a phase; its gain is not applied; one head, or ...
  SineLayout layout = SineLayout::interleaved;
  ConstTensorView
      table;  // ... [N, width] f64, row floor((p - p[minus]) / divide) mod wrap + offset, or
  ConstTensorView
      affine;  // ... [axes + 1, width] f64: sum over axes of p[a] affine[a] + last, or ...
  ConstTensorView rows;            // ... the caller's rows [t, width] or [b, t, width], any float
  std::vector<DenseLayer> layers;  // layers that the row passes before it is composed with x
  Index source_width = 0;          // of the row before the layers; 0: width
  std::int32_t axis = 0;           // of the positions: tables, and phases of one axis
  Index offset = 0;                // added to the position: OPT and BART 2, CTranslate2 1
  std::int32_t minus = -1;  // tables: axis that is subtracted (a box's height is y1 - y0); -1: none
  Index divide = 1, wrap = 0;  // tables: of one number that counts a grid; wrap 0: none
  Beyond beyond = Beyond::error;
  double extension = 0;                // alpha / (1 - alpha) of Beyond::extend
  std::optional<Index> frozen_row;     // this row of the table has no gradient
  std::optional<Index> zero_position;  // this position's row is zero and has no gradient (padding)
  Index first = 0, width = 0;          // channel window of x; concat appends `width` channels
  Compose compose = Compose::add;
  double gain = 1;
};
// A phase of n pairs fills `width` channels: with one channel less than its layout the last
// cosine is dropped (with sines only the last sine), with more channels zeros are appended. A table
// accepts real positions if they are whole numbers.

// Terms and the memory that they point to, which keeps its address when the lists grow or are moved. Not
// copyable.
struct LoweredInput {
  std::vector<std::shared_ptr<Spectrum>> spectra;
  std::vector<std::vector<double>> values;
  std::vector<InputTerm> terms;
  double input_gain = 1;

  LoweredInput() = default;
  LoweredInput(LoweredInput&&) = default;
  LoweredInput& operator=(LoweredInput&&) = default;
  LoweredInput(const LoweredInput&) = delete;
  LoweredInput& operator=(const LoweredInput&) = delete;

  POSENC_API const Spectrum* spectrum(Spectrum);
  POSENC_API ConstTensorView table(std::vector<double> v, Index rows, Index width);
  // weight [out, in], bias [out] or empty. Throws [lowered] when sizes disagree.
  POSENC_API DenseLayer dense(std::vector<double> weight, std::vector<double> bias, Index out,
                              Activation);
};

// The largest n such that every table has its own row for each of the positions 0 .. n - 1 on all axes;
// at least 1. None: no table is looked up, or every position has a row.
POSENC_API std::optional<Index> positions_with_rows(const LoweredInput&);

// Gradients of one term, f64, ACCUMULATED; empty: not computed.
struct DenseGradient {
  TensorView weight, bias;  // of the shapes of the layer's
};
struct InputGradient {
  TensorView table;                   // [N, width]
  TensorView affine;                  // [axes + 1, width]
  TensorView rows;                    // of the shape of the caller's rows
  TensorView frequency;               // [axes of the phase, pairs]
  std::vector<DenseGradient> layers;  // one a layer, or none
  TensorView gain;                    // [1]
  TensorView position;                // [axes, B, T]: phases and affine rows of real positions
};

// Zeros for every gradient that the terms have; those of positions where there are positions.
struct OwnedInputGradients {
  std::vector<std::vector<double>> values;
  std::vector<InputGradient> terms;

  OwnedInputGradients() = default;
  OwnedInputGradients(OwnedInputGradients&&) = default;
  OwnedInputGradients& operator=(OwnedInputGradients&&) = default;
  OwnedInputGradients(const OwnedInputGradients&) = delete;
  OwnedInputGradients& operator=(const OwnedInputGradients&) = delete;
};
POSENC_API OwnedInputGradients zero_gradients(const LoweredInput&, const Positions& = {});

// parameters: names, shapes, published initialisers. lower: in double. pull_back: its transpose,
// accumulating into dp; `g` has an entry for each term that lower appended.
template <class S>
concept AbsoluteScheme = Described<S> &&
    requires(const S& s, std::span<const ConstTensorView> p, LoweredInput& out,
             std::span<const InputGradient> g, std::span<const TensorView> dp) {
  { s.parameters() } -> std::same_as<std::vector<Parameter>>;
  { s.lower(p, out) } -> std::same_as<void>;
  { s.pull_back(p, g, dp) } -> std::same_as<void>;
};

// y = compose(x, rows) for every token, term after term. x [t, C] or [b, t, C], y the same with the
// channels that concat appends; f64, f32, f16 or bf16, in double arithmetic, rounded once. y may be
// x unless something is appended. x empty: y is the composition with zeros (add: the rows
// themselves). Throws [apply_input]: shapes, dtypes, a position without a row in its table, positions
// whose batch does not fit.
POSENC_API void apply_input(const ConstTensorView& x, const Positions&, const LoweredInput&,
                            const TensorView& y);
// The transpose: d_x (may be empty) = of the shape and dtype of x, overwritten; gradients of the
// terms accumulated (one each, or none), without overlap. d_y may be d_x unless something is
// appended. Gradients of a product need x.
POSENC_API void input_gradient(const ConstTensorView& x, const Positions&, const LoweredInput&,
                               const ConstTensorView& d_y, const TensorView& d_x,
                               std::span<const InputGradient>);

}  // namespace posenc::v0
