// SPDX-License-Identifier: Apache-2.0
// What a scheme at the input learns, and how its sizes are written in a message.
#pragma once
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "model/diagnostics.h"
#include "posenc/absolute/input_term.h"
#include "posenc/model/weights.h"
#include "posenc/registry.h"

namespace posenc::inline v0 {

// None for schemes that do not act at the input.
inline std::vector<Parameter> learned_parameters(const Encoding& e) {
  return std::visit(
      [](const auto& s) -> std::vector<Parameter> {
        if constexpr (AbsoluteScheme<std::decay_t<decltype(s)>>)
          return s.parameters();
        else
          return {};
      },
      e.scheme);
}

// A stored tensor as one table: what stands before its last axis counts rows (1 x n x d, a grid
// h x w x d, two tables 2 x n x d).
inline std::vector<Index> as_rows(const std::vector<Index>& shape) {
  if (shape.size() < 3) return shape;
  Index rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) {
    if (shape[i] > 0 && rows > (Index{1} << 40) / shape[i]) return shape;  // no table
    rows *= shape[i];
  }
  return {rows, shape.back()};
}

// Of parameter k: where several stand in one tensor, how many, and which this one is.
struct Stacked {
  Index count = 1, at = 0;
};
inline Stacked stacked(const std::vector<std::string>& tensors, std::size_t k) {
  Stacked out{0, 0};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] != tensors[k]) continue;
    out.at += i < k;
    ++out.count;
  }
  return out;
}

// The one tensor that a name means. `what`: "the rows are those". Throws std::runtime_error:
// none, several.
StoredTensor the_tensor(ModelWeights&, const std::string& name, std::string_view what);

// Of the tensor that holds a parameter.
inline std::vector<Index> stored_shape(const Parameter& p, const Stacked& place) {
  std::vector<Index> shape = p.shape;
  if (!shape.empty()) shape.front() *= place.count;
  return shape;
}

inline std::string shape_text(const std::vector<Index>& shape) {
  return "[" + listed(shape) + "]";
}

}  // namespace posenc::v0
