// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

const Spectrum* LoweredInput::spectrum(Spectrum s) {
  check(s);
  spectra.push_back(std::move(s));
  return &spectra.back();
}

TensorView LoweredInput::table(std::vector<double> v, Index rows, Index width) {
  if (rows < 0 || width < 1 || rows * width != static_cast<Index>(v.size()))
    refuse("lowered", "a table must fill its shape, size", static_cast<Index>(v.size()));
  values.push_back(std::move(v));
  const Index shape[] = {rows, width};
  return tensor(static_cast<void*>(values.back().data()), DType::f64, shape);
}

}  // namespace posenc
