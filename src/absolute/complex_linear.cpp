// SPDX-License-Identifier: Apache-2.0
#include "absolute/rows.h"
#include "posenc/absolute/complex_order.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kComplexLinear = "complex_linear";

// [out, in] or [out], f64 or f32; empty reads 0.
template <class Data>
struct BasicMatrix {
  BasicTensorView<Data> v;
  double get(Index i, Index j = 0) const {
    if (v.empty()) return 0;
    const Index at = i * v.stride[0] + (v.rank == 2 ? j * v.stride[1] : 0);
    return v.dtype == DType::f64 ? static_cast<const double*>(v.data)[at]
                                 : static_cast<const float*>(v.data)[at];
  }
  void add(Index i, Index j, double x) const requires(!std::is_const_v<Data>) {
    if (v.empty()) return;
    static_cast<double*>(v.data)[i * v.stride[0] + (v.rank == 2 ? j * v.stride[1] : 0)] += x;
  }
};

void check_matrix(const ConstTensorView& v, Index out, Index in, bool wanted) {
  const bool fits =
      v.rank == (in > 0 ? 2 : 1) && v.shape[0] == out && (in == 0 || v.shape[1] == in);
  if (v.empty() ? wanted : !fits || (v.dtype != DType::f64 && v.dtype != DType::f32))
    refuse_field(kComplexLinear, "weights", "must be [out, in] and biases [out] of f64 or f32, out",
                 out);
}

using Matrix = BasicMatrix<const void>;
using MatrixGradient = BasicMatrix<void>;

struct LinearCall {
  ConstTokenView x_re, x_im, y_re, y_im;
  Matrix a, b, bias_re, bias_im;
};
LinearCall check_call(const ComplexMap& m, const ConstComplexParts& x, const ConstComplexParts& y) {
  LinearCall c{tokens_of(x.re, "x re"),
               tokens_of(x.im, "x im"),
               tokens_of(y.re, "y re"),
               tokens_of(y.im, "y im"),
               {m.weight.re},
               {m.weight.im},
               {m.bias.re},
               {m.bias.im}};
  for (const ConstTokenView* t : {&c.x_im, &c.y_re, &c.y_im})
    if (t->batch != c.x_re.batch || t->tokens != c.x_re.tokens)
      refuse(kComplexLinear, "all parts must have the same tokens", t->tokens);
  if (c.x_re.width != c.x_im.width || c.y_re.width != c.y_im.width)
    refuse(kComplexLinear, "real and imaginary part must have the same width", c.x_im.width);
  check_matrix(m.weight.re, c.y_re.width, c.x_re.width, true);
  check_matrix(m.weight.im, c.y_re.width, c.x_re.width, false);
  check_matrix(m.bias.re, c.y_re.width, 0, false);
  check_matrix(m.bias.im, c.y_re.width, 0, false);
  return c;
}

void check_gradient(const ConstTensorView& v, Index out, Index in) {
  check_matrix(v, out, in, false);
  if (!v.empty() && v.dtype != DType::f64)
    refuse(kComplexLinear, "gradients of a map must be f64", dtype_name(v.dtype));
}

detail::Memory of(const ConstTensorView& v) {
  return detail::memory_of(v);
}

// A token of x is read before its gradient is written: d_x may be x. d_y is read for every channel.
void check_gradient_memory(const ComplexMap& m, const ConstComplexParts& x,
                           const ConstComplexParts& d_y, const ComplexParts& d_x,
                           const ComplexMapGradient& d_map) {
  const detail::Operand up[] = {{"d_y re", of(d_y.re)}, {"d_y im", of(d_y.im)}};
  const detail::Operand weight[] = {{"the weight", of(m.weight.re)},
                                    {"the weight", of(m.weight.im)}};
  detail::check_outputs(kComplexLinear, {{"d_x re", of(d_x.re)}, {"d_x im", of(d_x.im)}},
                        {{"x re", of(x.re)}, {"x im", of(x.im)}},
                        {up[0], up[1], weight[0], weight[1]});
  for (const TensorView* v : {&d_map.weight.re, &d_map.weight.im, &d_map.bias.re, &d_map.bias.im}) {
    const detail::Operand sum{"a gradient of the map", of(*v)};
    for (const detail::Operand& in :
         {up[0], up[1], weight[0], weight[1], detail::Operand{"x re", of(x.re)},
          detail::Operand{"x im", of(x.im)}, detail::Operand{"d_x re", of(d_x.re)},
          detail::Operand{"d_x im", of(d_x.im)}})
      detail::check_separate(kComplexLinear, in, sum);
  }
}

}  // namespace

void complex_linear(const ComplexMap& m, const ConstComplexParts& x, const ComplexParts& y) {
  const LinearCall c = check_call(m, x, y);
  // An output channel reads all channels of x: not in place either.
  detail::check_outputs(kComplexLinear, {{"y re", of(y.re)}, {"y im", of(y.im)}}, {},
                        {{"x re", of(x.re)},
                         {"x im", of(x.im)},
                         {"the weight", of(m.weight.re)},
                         {"the weight", of(m.weight.im)},
                         {"the bias", of(m.bias.re)},
                         {"the bias", of(m.bias.im)}});
  const TokenView y_re = tokens_of(y.re, "y re"), y_im = tokens_of(y.im, "y im");
  for (Index b = 0; b < c.x_re.batch; ++b)
    for (Index t = 0; t < c.x_re.tokens; ++t)
      for (Index i = 0; i < c.y_re.width; ++i) {
        double re = c.bias_re.get(i), im = c.bias_im.get(i);
        for (Index j = 0; j < c.x_re.width; ++j) {
          const double u = c.x_re.get(b, t, j), v = c.x_im.get(b, t, j);
          re += c.a.get(i, j) * u - c.b.get(i, j) * v;
          im += c.b.get(i, j) * u + c.a.get(i, j) * v;
        }
        y_re.put(b, t, i, re);
        y_im.put(b, t, i, im);
      }
}

void complex_linear_gradient(const ComplexMap& m, const ConstComplexParts& x,
                             const ConstComplexParts& d_y, const ComplexParts& d_x,
                             const ComplexMapGradient& d_map) {
  const LinearCall c = check_call(m, x, d_y);
  const Index out = c.y_re.width, in = c.x_re.width;
  check_gradient(d_map.weight.re, out, in);
  check_gradient(d_map.weight.im, out, in);
  check_gradient(d_map.bias.re, out, 0);
  check_gradient(d_map.bias.im, out, 0);
  const bool want_x = !d_x.re.empty() || !d_x.im.empty();
  TokenView to_re, to_im;
  if (want_x) {
    check_call(m, d_x, d_y);
    to_re = tokens_of(d_x.re, "d_x re"), to_im = tokens_of(d_x.im, "d_x im");
  }
  check_gradient_memory(m, x, d_y, d_x, d_map);
  const MatrixGradient a{d_map.weight.re}, w{d_map.weight.im}, bias_re{d_map.bias.re},
      bias_im{d_map.bias.im};
  for (Index b = 0; b < c.x_re.batch; ++b)
    for (Index t = 0; t < c.x_re.tokens; ++t) {
      for (Index i = 0; i < out; ++i) {
        const double re = c.y_re.get(b, t, i), im = c.y_im.get(b, t, i);
        bias_re.add(i, 0, re);
        bias_im.add(i, 0, im);
        for (Index j = 0; j < in; ++j) {
          const double u = c.x_re.get(b, t, j), v = c.x_im.get(b, t, j);
          a.add(i, j, re * u + im * v);
          w.add(i, j, im * u - re * v);
        }
      }
      for (Index j = 0; want_x && j < in; ++j) {
        double u = 0, v = 0;
        for (Index i = 0; i < out; ++i) {
          const double re = c.y_re.get(b, t, i), im = c.y_im.get(b, t, i);
          u += c.a.get(i, j) * re + c.b.get(i, j) * im;
          v += c.a.get(i, j) * im - c.b.get(i, j) * re;
        }
        to_re.put(b, t, j, u);
        to_im.put(b, t, j, v);
      }
    }
}

}  // namespace posenc::v0
