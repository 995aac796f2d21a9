// SPDX-License-Identifier: Apache-2.0
// What a scheme gives each token.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "posenc/absolute/input_term.h"
#include "posenc/positions.h"

namespace posenc::test {

// The encoding alone, [token][channel].
template <class S>
std::vector<std::vector<double>> rows(const S& s, const Positions& at, Index width,
                                      std::span<const ConstTensorView> parameters = {}) {
  LoweredInput low;
  s.lower(parameters, low);
  std::vector<double> y(static_cast<std::size_t>(at.count * width));
  apply_input({}, at, low, tensor(y.data(), {at.count, width}));
  std::vector<std::vector<double>> out;
  for (Index t = 0; t < at.count; ++t)
    out.emplace_back(y.begin() + t * width, y.begin() + (t + 1) * width);
  return out;
}
inline OwnedPositions real(std::vector<double> v, std::int32_t axes = 1) {
  return explicit_positions(std::move(v), 1, axes);
}

}  // namespace posenc::test
