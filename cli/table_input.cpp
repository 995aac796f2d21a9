// SPDX-License-Identifier: Apache-2.0
// posenc table SCHEME --what rows: what a scheme at the input adds, multiplies or appends.
#include <algorithm>
#include <variant>

#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"
#include "posenc/registry.h"
#include "verbs.h"

namespace posenc::cli {
namespace {

// Axes of positions that the terms read.
Index axes_of(const LoweredInput& lowered) {
  Index axes = 1;
  for (const InputTerm& t : lowered.terms) {
    axes = std::max<Index>(axes, t.axis + 1);
    if (t.phase != nullptr) axes = std::max(axes, t.phase->axes);
    if (!t.affine.empty()) axes = std::max(axes, t.affine.shape[0] - 1);
  }
  return axes;
}

// Channels that the terms reach, and those that they append.
Index width_of(const LoweredInput& lowered) {
  Index reached = 0, appended = 0;
  for (const InputTerm& t : lowered.terms)
    if (t.compose == Compose::concat)
      appended += t.width;
    else
      reached = std::max(reached, t.first + t.width);
  return reached + appended;
}

template <class S>
Array rows_of(const S& scheme, const PositionList& list, DType dtype) {
  if (!scheme.parameters().empty())
    throw InputError(std::string(S::card.name) + " learns its \"" + scheme.parameters()[0].name +
                     "\": the rows stand in a model's weights, not in the scheme");
  LoweredInput lowered;
  scheme.lower({}, lowered);
  for (InputTerm& t : lowered.terms)
    // Alone, a row is what it is: a product with nothing would be zero.
    if (t.compose != Compose::concat) t.compose = Compose::add;
  const Positions p = spread_over_axes(list, axes_of(lowered));
  Array out = make_array(dtype, {p.batch * p.count, width_of(lowered)});
  const Index shape[] = {p.batch, p.count, width_of(lowered)};
  apply_input({}, p, lowered, tensor(static_cast<void*>(out.bytes.data()), dtype, shape));
  return out;
}

}  // namespace

bool is_input_scheme(const Encoding& e) {
  return std::visit([](const auto& s) { return AbsoluteScheme<std::decay_t<decltype(s)>>; },
                    e.scheme);
}

Array input_rows(const Encoding& e, const PositionList& list, DType dtype) {
  return std::visit(
      [&](const auto& s) -> Array {
        if constexpr (AbsoluteScheme<std::decay_t<decltype(s)>>)
          return rows_of(s, list, dtype);
        else
          throw UsageError("--what rows is for schemes at the input");
      },
      e.scheme);
}

}  // namespace posenc::cli
