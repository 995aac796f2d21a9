// SPDX-License-Identifier: Apache-2.0
// pope: polar queries and keys, their scores and every gradient, in double.
#include "conformance/runner/encoding.h"
#include "conformance/runner/position_list.h"
#include "conformance/runner/tensors.h"
#include "posenc/core/error.h"
#include "posenc/rotary/pope.h"

namespace posenc::conformance {
namespace {

// [b, t, h, d] of the same batch, tokens and heads as `like`.
HeadsArray zeros(const HeadsArray& like, Index dim) {
  const std::vector<Index> shape{like.axes['b'].size, like.axes['t'].size, like.axes['h'].size,
                                 dim};
  return {make_array(DType::f64, shape), Axes(shape, "bthd", {})};
}

double& element(HeadsArray& x, Index b, Index t, Index h, Index d) {
  const Axes& a = x.axes;
  return reinterpret_cast<double*>(x.data.bytes.data())[b * a['b'].stride + t * a['t'].stride +
                                                        h * a['h'].stride + d * a['d'].stride];
}

// One of q, k: what goes in, what comes out, and the gradients of both.
struct Side {
  std::string letters;
  std::optional<HeadsArray> in, out, grad_out, grad_in;
  TensorView bias;
};

struct Pass {
  Check& check;
  const PopePlan& plan;
  const Index dim;
  const OwnedPositions& positions;

  Side forward(std::string_view ours, const TensorView& bias) const {
    Side side;
    side.bias = bias;
    if (check.array_name("in", ours) == nullptr) return side;
    const Slice s = check.input(ours);
    side.letters = letters_of(check, s);
    side.in = heads_of(s, DType::f64, side.letters, dim);
    side.out = zeros(*side.in, 2 * dim);
    plan.apply(side.in->view(), side.out->view(), positions, bias);
    expect_heads(check, ours, *side.out, side.letters, 2 * dim);
    return side;
  }

  void backward(std::string_view ours, Side& side, Array* grad_bias) const {
    side.grad_in = zeros(*side.in, dim);
    plan.gradient(side.in->view(), side.grad_out->view(), positions, side.bias,
                  side.grad_in->view(), grad_bias == nullptr ? TensorView{} : grad_bias->view());
    expect_heads(check, ours, *side.grad_in, side.letters, dim);
  }
};

// scores[b, h, i, j] = q_i . k_j; with `grad` also what goes back to q and k.
std::vector<double> scores(Side& q, Side& k, const std::vector<double>& grad) {
  const Axes& a = q.out->axes;
  for (const char letter : {'b', 'h'})
    if (k.out->axes[letter].size != a[letter].size)
      refuse("case", "q and k must have one batch and as many heads", k.out->axes[letter].size);
  const Index rows = a['t'].size, columns = k.out->axes['t'].size, dim = a['d'].size;
  std::vector<double> values(static_cast<std::size_t>(a['b'].size * a['h'].size * rows * columns));
  if (!grad.empty() && grad.size() != values.size())
    refuse_field("case", "grad_scores", "must be [batch, head, query, key], size",
                 static_cast<Index>(grad.size()));
  q.grad_out = zeros(*q.in, dim);
  k.grad_out = zeros(*k.in, dim);
  std::size_t at = 0;
  for (Index b = 0; b < a['b'].size; ++b)
    for (Index h = 0; h < a['h'].size; ++h)
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < columns; ++j, ++at)
          for (Index d = 0; d < dim; ++d) {
            const double x = element(*q.out, b, i, h, d), y = element(*k.out, b, j, h, d);
            values[at] += x * y;
            if (grad.empty()) continue;
            element(*q.grad_out, b, i, h, d) += grad[at] * y;
            element(*k.grad_out, b, j, h, d) += grad[at] * x;
          }
  return values;
}

}  // namespace

void run_pope(Check& check) {
  const Spectrum spectrum = spectrum_of(check);
  const PopePlan plan(spectrum, DType::f64, {.outside = OutsideRange::allow});
  check.expect("inv_freq", spectrum.frequency, {spectrum.heads, spectrum.axes, spectrum.pairs()});
  const OwnedPositions positions = positions_of(check);
  Array bias;
  if (check.array_name("in", "bias") != nullptr) bias = dense(check.input("bias"), DType::f64);
  const TensorView added = bias.shape.empty() ? TensorView{} : bias.view();
  const Pass pass{check, plan, spectrum.pairs(), positions};
  Side q = pass.forward("q", {}), k = pass.forward("k", added);
  if (!q.in || !k.in) return;
  std::vector<double> grad;
  if (check.array_name("in", "grad_scores") != nullptr) grad = check.input("grad_scores").values();
  const Axes &a = q.out->axes, &b = k.out->axes;
  check.expect("scores", scores(q, k, grad), {a['b'].size, a['h'].size, a['t'].size, b['t'].size});
  if (grad.empty()) return;
  Array grad_bias = make_array(DType::f64, bias.shape);
  pass.backward("grad_q", q, nullptr);
  pass.backward("grad_k", k, bias.shape.empty() ? nullptr : &grad_bias);
  if (!bias.shape.empty()) check.expect("grad_bias", grad_bias.doubles(), grad_bias.shape);
}

}  // namespace posenc::conformance
