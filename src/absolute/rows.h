// SPDX-License-Identifier: Apache-2.0
// The row of one input term at one token, and what flows back through it.
#pragma once
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "core/element.h"
#include "core/overlap.h"
#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

// [b, t, c] of floats; [t, c] is one row of tokens.
template <class Data>
struct BasicTokenView {
  Data* data = nullptr;
  DType dtype = DType::f64;
  Index batch = 1, tokens = 0, width = 0;
  Index batch_stride = 0, token_stride = 0, width_stride = 1;

  operator BasicTokenView<const void>() const noexcept requires(!std::is_const_v<Data>) {
    return {data, dtype, batch, tokens, width, batch_stride, token_stride, width_stride};
  }
  double get(Index b, Index t, Index c) const {
    return detail::float_element(data, dtype,
                                 b * batch_stride + t * token_stride + c * width_stride);
  }
  // One rounding to the dtype.
  void put(Index b, Index t, Index c, double x) const requires(!std::is_const_v<Data>) {
    detail::put_element(data, dtype, b * batch_stride + t * token_stride + c * width_stride, x);
  }
};
using TokenView = BasicTokenView<void>;
using ConstTokenView = BasicTokenView<const void>;
TokenView tokens_of(const TensorView&, const char* what);
ConstTokenView tokens_of(const ConstTensorView&, const char* what);

namespace detail {
// Throws [who]: two elements of y are the same memory; x and y share memory and are not the same
// view, or channels are appended.
void check_composed(std::string_view who, const Operand& x, const Operand& y, Index appended);
}  // namespace detail

// Throws [who]: what is written lies over rows of the caller's, other than each over its own
// channels, which are read first. `width`: channels of x.
void check_rows_memory(const char* who, const LoweredInput&, const TensorView& out,
                       std::string_view name, Index width);

// Throws [who]: a gradient of a term shares memory with itself or with what the call reads, or
// writes, beside it. Two terms may have one gradient: both are added to it.
void check_gradient_memory(std::string_view who, std::span<const InputGradient>, const Positions&,
                           std::initializer_list<detail::Operand> other);
// Throws [who]: a product whose rows or gain want a gradient is without its x.
void check_product_has_x(std::string_view who, const LoweredInput&, const ConstTensorView& x,
                         std::span<const InputGradient>);

// Throws [who]: a term without just one source of rows.
void check_one_source(const char* who, const InputTerm&);

// Rows of all terms for all tokens of a call; sine and cosine are made once.
class InputRows {
 public:
  InputRows(const LoweredInput&, const Positions&, Index batch, Index tokens);
  // [width] of term n.
  void row(std::size_t n, Index b, Index t, std::vector<double>& out) const;
  // d row -> table, rows and position gradients (the gain is already in d).
  void pull(std::size_t n, Index b, Index t, const std::vector<double>& d,
            const InputGradient&) const;

 private:
  Index table_row(const InputTerm&, Index b, Index t) const;  // -1: zeros; N and above: extended
  Index table_position(std::int32_t axis, Index b, Index t) const;
  void pull_table(const InputTerm&, Index b, Index t, const std::vector<double>& d,
                  const InputGradient&) const;
  double position(std::int32_t axis, Index b, Index t) const;
  void source_row(std::size_t n, Index b, Index t, std::vector<double>& out) const;
  void pull_source(std::size_t n, Index b, Index t, const std::vector<double>& d,
                   const InputGradient&) const;
  void pull_phase(std::size_t n, Index b, Index t, const std::vector<double>& d,
                  const InputGradient&) const;
  void pull_affine(const InputTerm&, Index b, Index t, const std::vector<double>& d,
                   const InputGradient&) const;
  bool is_zero(const InputTerm&, Index b, Index t) const;
  std::size_t phase_at(const InputTerm&, Index b, Index t, Index pair) const;
  double& position_gradient(const InputGradient&, std::int32_t axis, Index b, Index t) const;
  const LoweredInput& lowered_;
  Positions positions_;
  Index tokens_;
  std::vector<std::vector<double>> sine_,
      cosine_;  // a term each, [rows of positions * tokens, pairs]
};

// The width of what a term's source makes.
inline Index source_width(const InputTerm& t) {
  return t.layers.empty() || t.source_width == 0 ? t.width : t.source_width;
}

// y becomes act(W y + b), layer after layer.
void apply_layers(const std::vector<DenseLayer>&, std::vector<double>& y);
// The transpose at the input x: d (of the output) becomes that of the input; gradients of the
// layers accumulated (one a layer, or none).
void pull_layers(const std::vector<DenseLayer>&, const std::vector<double>& x,
                 std::vector<double>& d, const std::vector<DenseGradient>&);
// Shapes that follow each other from `width` to `out`. Throws [apply_input].
void check_layers(const std::vector<DenseLayer>&, Index width, Index out);
void check_layer_gradients(const std::vector<DenseLayer>&, const std::vector<DenseGradient>&);

// Sine or cosine, and of which pair, at a channel of a row of n pairs and `width` channels; pair
// -1: an appended zero.
struct SineChannel {
  Index pair = -1;
  bool cosine = false;
};
SineChannel sine_channel(SineLayout, Index pairs, Index width, Index channel);

}  // namespace posenc::v0
