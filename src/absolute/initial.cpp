// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/initial.h"

#include <cmath>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

std::vector<double> initial_values(const Parameter& p, const Draws& draws) {
  Index count = 1;
  for (const Index n : p.shape) {
    if (n < 0 || (n > 0 && count > kUnbounded / 16 / n))
      refuse("initial", "a parameter must fit memory, size", n);
    count *= n;
  }
  if (!p.initial_values.empty()) {
    if (static_cast<Index>(p.initial_values.size()) != count)
      refuse("initial", "given values must fill their parameter", count);
    return p.initial_values;
  }
  std::vector<double> v(static_cast<std::size_t>(count), 0.0);
  const double a = p.initial.a, b = p.initial.b;
  for (std::size_t i = 0; i < v.size(); ++i) switch (p.initial.kind) {
      case InitialKind::zeros:
        break;
      case InitialKind::constant:
        v[i] = a;
        break;
      case InitialKind::normal:
        v[i] = a + b * draws.normal(i);
        break;
      case InitialKind::truncated_normal:
        v[i] = a + b * draws.truncated_normal(i);
        break;
      case InitialKind::uniform:
        v[i] = a + (b - a) * draws.uniform(i);
        break;
    }
  return v;
}

Initial initial_of(TableInitial kind, double init, Index rows, Index width) {
  switch (kind) {
    case TableInitial::normal:
      return {InitialKind::normal, 0, init};
    case TableInitial::truncated_normal:
      return {InitialKind::truncated_normal, 0, init};
    case TableInitial::uniform:
      return {InitialKind::uniform, -init, init};
    case TableInitial::uniform_positive:
      return {InitialKind::uniform, 0, init};
    case TableInitial::glorot_uniform: {
      const double limit = std::sqrt(6 / (static_cast<double>(rows) + static_cast<double>(width)));
      return {InitialKind::uniform, -limit, limit};
    }
    default:
      return {};
  }
}

}  // namespace posenc::v0
