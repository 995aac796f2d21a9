// SPDX-License-Identifier: Apache-2.0
// complex_embedding, complex_attention, convolve: what stands at the input with arithmetic of its
// own, forward and backward, in double.
#include "conformance/runner/axes.h"
#include "conformance/runner/encoding.h"
#include "conformance/runner/parameters.h"
#include "conformance/runner/position_list.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

template <class S>
S scheme_of(const Check& check) {
  const Encoding encoding = encoding_of(check);
  const S* scheme = std::get_if<S>(&encoding.scheme);
  if (scheme == nullptr) refuse("case", "the operation needs the scheme", S::card.name);
  return *scheme;
}

// [b, t, d] row by row, and the way back to the order of an array.
struct Part {
  std::vector<Index> shape;
  std::vector<double> value;
  TensorView view() { return tensor(static_cast<void*>(value.data()), DType::f64, shape); }
};
Axes axes_of(const Check& check, const Slice& s) {
  return Axes(s.shape, letters_of(check, s, s.shape.size() == 2 ? "td" : "btd"), {});
}
Part part_in(const Check& check, std::string_view ours) {
  const Slice s = check.input(ours);
  const Axes axes = axes_of(check, s);
  const std::vector<double> values = s.values();
  Part p{{axes['b'].size, axes['t'].size, axes['d'].size}, {}};
  for (const Index i : axes.walk("btd")) p.value.push_back(values[static_cast<std::size_t>(i)]);
  return p;
}
Part zeros(std::vector<Index> shape) {
  Index n = 1;
  for (const Index s : shape) n *= s;
  return {std::move(shape), std::vector<double>(static_cast<std::size_t>(n), 0.0)};
}
void expect_part(Check& check, std::string_view ours, const Part& got) {
  const std::string* name = check.array_name("out", ours);
  if (name == nullptr) return;
  const Slice want = slice(check.in_case, *name);
  const Axes axes = axes_of(check, want);
  for (std::size_t i = 0; i < 3; ++i)
    if (axes["btd"[i]].size != got.shape.at(i))
      refuse("case", "the result has another shape than the array", ours);
  const std::vector<Index> to = axes.walk("btd");
  std::vector<double> ordered(to.size());
  for (std::size_t i = 0; i < to.size(); ++i)
    ordered[static_cast<std::size_t>(to[i])] = got.value[i];
  check.expect(want, ordered);
}

// Gradients of the parameters, which become out.grad_NAME.
struct Back {
  std::vector<Array> arrays;
  std::vector<TensorView> views;
  explicit Back(const Given& given) {
    for (const Array& a : given.arrays) arrays.push_back(make_array(DType::f64, a.shape));
    for (Array& a : arrays) views.push_back(a.view());
  }
  void expect(Check& check, const std::vector<Parameter>& parameters) const {
    for (std::size_t i = 0; i < arrays.size(); ++i)
      check.expect("grad_" + parameters[i].name, arrays[i].doubles(), arrays[i].shape);
  }
};

Heads heads_of(Array& a) {
  return heads(a.view(), HeadsLayout::bhtd);
}

}  // namespace

void run_complex_embedding(Check& check) {
  const auto scheme = scheme_of<ComplexOrder>(check);
  const std::vector<Parameter> parameters = scheme.parameters();
  const Given given = given_parameters(check, parameters);
  const OwnedPositions at = positions_of(check), words = positions_of(check, "ids");
  const auto& ids = std::get<std::vector<Index>>(words.value);
  const Index batch = words.batch, tokens = words.count();
  const ConstTensorView id_view = tensor(ids.data(), {batch, tokens});
  Part re = zeros({batch, tokens, scheme.width}), im = re;
  complex_embedding(scheme, given.views, id_view, at, {re.view(), im.view()});
  expect_part(check, "re", re);
  expect_part(check, "im", im);
  if (check.array_name("in", "grad_re") == nullptr) return;
  Part up_re = part_in(check, "grad_re"), up_im = part_in(check, "grad_im");
  const Back back(given);
  complex_embedding_gradient(scheme, given.views, id_view, at, {up_re.view(), up_im.view()},
                             back.views);
  back.expect(check, parameters);
}

// Axes [b, h, t, d]; mask [b, h|1, q, k], 1 = visible.
void run_complex_attention(Check& check) {
  ComplexAttention a;
  const std::string score = check.text("score");
  if (score != "hermitian" && score != "bilinear")
    refuse_field("case", "score", "must be hermitian or bilinear", score);
  if (score == "bilinear") a.score = ComplexScore::bilinear;
  std::vector<std::uint8_t> mask;
  if (check.array_name("in", "mask") != nullptr) {
    const Slice s = check.input("mask");
    for (const double x : s.values()) mask.push_back(static_cast<std::uint8_t>(x));
    a.mask = tensor(static_cast<void*>(mask.data()), DType::u8, s.shape);
  }
  std::vector<Array> in, out;
  for (const char* name : {"q_re", "q_im", "k_re", "k_im", "v_re", "v_im"}) {
    in.push_back(dense(check.input(name), DType::f64));
    out.push_back(make_array(DType::f64, in.back().shape));
  }
  const ComplexHeads q{heads_of(in[0]), heads_of(in[1])}, k{heads_of(in[2]), heads_of(in[3])},
      v{heads_of(in[4]), heads_of(in[5])};
  for (const Array& x : in)
    if (x.shape.size() != 4) refuse("case", "complex heads must be [b, h, t, d]", x.count());
  std::vector<Index> shape = in[0].shape;
  shape[3] = in[4].shape[3];
  Array re = make_array(DType::f64, shape), im = re;
  Array probabilities = make_array(DType::f64, {shape[0], shape[1], shape[2], in[2].shape[2]});
  complex_attention(a, q, k, v, {heads_of(re), heads_of(im)}, probabilities.view());
  check.expect("out_re", re.doubles(), re.shape);
  check.expect("out_im", im.doubles(), im.shape);
  check.expect("probabilities", probabilities.doubles(), probabilities.shape);
  if (check.array_name("in", "grad_re") == nullptr) return;
  Array up_re = dense(check.input("grad_re"), DType::f64);
  Array up_im = dense(check.input("grad_im"), DType::f64);
  complex_attention_gradient(
      a, q, k, v, {heads_of(up_re), heads_of(up_im)}, {heads_of(out[0]), heads_of(out[1])},
      {heads_of(out[2]), heads_of(out[3])}, {heads_of(out[4]), heads_of(out[5])});
  const char* names[] = {"grad_q_re", "grad_q_im", "grad_k_re",
                         "grad_k_im", "grad_v_re", "grad_v_im"};
  for (std::size_t i = 0; i < 6; ++i) check.expect(names[i], out[i].doubles(), out[i].shape);
}

void run_convolve(Check& check) {
  const auto scheme = scheme_of<Convolutional>(check);
  const std::vector<Parameter> parameters = scheme.parameters();
  const Given given = given_parameters(check, parameters);
  Part x = part_in(check, "x"), y = zeros(x.shape);
  convolutional_positions(scheme, given.views, x.view(), y.view());
  expect_part(check, "out", y);
  if (check.array_name("in", "grad_out") == nullptr) return;
  Part up = part_in(check, "grad_out"), d_x = zeros(x.shape);
  const Back back(given);
  convolutional_gradient(scheme, given.views, x.view(), up.view(), d_x.view(), back.views);
  expect_part(check, "grad_x", d_x);
  back.expect(check, parameters);
}

}  // namespace posenc::conformance
