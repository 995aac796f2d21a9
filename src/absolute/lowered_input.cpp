// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {

const Spectrum* LoweredInput::spectrum(Spectrum s) {
  check_spectrum(s);
  spectra.push_back(std::make_shared<Spectrum>(std::move(s)));
  return spectra.back().get();
}

ConstTensorView LoweredInput::table(std::vector<double> v, Index rows, Index width) {
  if (rows < 0 || width < 1 || rows * width != static_cast<Index>(v.size()))
    refuse("lowered", "a table must fill its shape, size", static_cast<Index>(v.size()));
  values.push_back(std::move(v));
  const Index shape[] = {rows, width};
  return tensor(static_cast<const void*>(values.back().data()), DType::f64, shape);
}

DenseLayer LoweredInput::dense(std::vector<double> weight, std::vector<double> bias, Index out,
                               Activation activation) {
  const auto n = static_cast<Index>(weight.size());
  if (out < 1 || n % out != 0 || n == 0) refuse("lowered", "a weight must fill its rows, size", n);
  DenseLayer l;
  l.weight = table(std::move(weight), out, n / out);
  if (!bias.empty()) l.bias = table(std::move(bias), 1, out);
  l.activation = activation;
  return l;
}

std::optional<Index> positions_with_rows(const LoweredInput& lowered) {
  std::optional<Index> least;
  for (const InputTerm& t : lowered.terms) {
    // A box's height is 0 where both of its sides have one position.
    if (t.table.empty() || t.beyond == Beyond::extend || t.minus >= 0) continue;
    const Index rows = t.table.shape[0] - std::max<Index>(0, t.offset);
    if (t.wrap > 0 && t.wrap <= rows) continue;
    const Index most =
        std::max<Index>(1, rows > kUnbounded / t.divide ? kUnbounded : rows * t.divide);
    least = std::min(least.value_or(most), most);
  }
  return least;
}

OwnedInputGradients zero_gradients(const LoweredInput& lowered, const Positions& p) {
  OwnedInputGradients all;
  const auto zeros = [&](std::initializer_list<Index> shape) {
    Index n = 1;
    for (const Index s : shape) n *= s;
    all.values.emplace_back(static_cast<std::size_t>(std::max<Index>(n, 1)), 0.0);
    return tensor(all.values.back().data(), shape);
  };
  const auto like = [&](const ConstTensorView& v) {
    return v.empty() ? TensorView{} : zeros({v.shape[0], v.shape[1]});
  };
  for (const InputTerm& t : lowered.terms) {
    InputGradient g;
    g.table = like(t.table);
    g.affine = like(t.affine);
    if (!t.rows.empty())
      g.rows = t.rows.rank == 2 ? like(t.rows)
                                : zeros({t.rows.shape[0], t.rows.shape[1], t.rows.shape[2]});
    if (t.phase != nullptr) g.frequency = zeros({t.phase->axes, t.phase->pairs()});
    for (const DenseLayer& l : t.layers) g.layers.push_back({like(l.weight), like(l.bias)});
    g.gain = zeros({1});
    if (p.data != nullptr && (t.phase != nullptr || !t.affine.empty()))
      g.position = zeros({p.axes, p.batch, p.count});
    all.terms.push_back(std::move(g));
  }
  return all;
}

}  // namespace posenc::v0
