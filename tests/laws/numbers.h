// SPDX-License-Identifier: Apache-2.0
// Numbers for the laws: a shape filled with a wave, and the channels that lowered terms take.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "posenc/absolute/input_term.h"

namespace posenc::test {

struct Numbers {
  std::vector<double> value;
  std::vector<Index> shape;
  TensorView view() { return tensor(static_cast<void*>(value.data()), DType::f64, shape); }
};
inline Numbers waves(std::vector<Index> shape, double size, double phase) {
  Numbers n{{}, std::move(shape)};
  Index count = 1;
  for (const Index s : n.shape) count *= s;
  for (Index i = 0; i < count; ++i)
    n.value.push_back(size * std::sin(static_cast<double>(i) * 1.7 + phase));
  return n;
}
template <class T>
std::vector<TensorView> views(std::vector<T>& all) {
  std::vector<TensorView> v;
  for (T& x : all) v.push_back(x.view());
  return v;
}

// Every parameter a wave of its own; zeros of the same shapes.
inline std::vector<Numbers> waves_for(const std::vector<Parameter>& parameters) {
  std::vector<Numbers> all;
  double phase = 0.3;
  for (const Parameter& p : parameters) all.push_back(waves(p.shape, 0.6, phase += 0.9));
  return all;
}
inline std::vector<Numbers> zeros_for(const std::vector<Parameter>& parameters) {
  std::vector<Numbers> all;
  for (const Parameter& p : parameters) all.push_back(waves(p.shape, 0, 0));
  return all;
}

// Channels of x that the terms reach, and those that they append.
struct Channels {
  Index reached = 0, appended = 0;
};
inline Channels channels_of(const LoweredInput& low) {
  Channels c;
  for (const InputTerm& t : low.terms) {
    if (t.compose == Compose::concat)
      c.appended += t.width;
    else
      c.reached = std::max(c.reached, t.first + t.width);
  }
  return c;
}

}  // namespace posenc::test
