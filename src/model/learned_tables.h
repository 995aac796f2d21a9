// SPDX-License-Identifier: Apache-2.0
// What a scheme at the input learns, and how its sizes are written in a message.
#pragma once
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "posenc/absolute/input_term.h"
#include "posenc/registry.h"

namespace posenc {

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

inline std::string shape_text(const std::vector<Index>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace posenc
