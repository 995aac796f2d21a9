// SPDX-License-Identifier: Apache-2.0
// Encodings that add rows at the input, by their scheme.
#pragma once
#include <vector>

#include "posenc/core/error.h"
#include "posenc/registry.h"

namespace posenc::python {

inline constexpr const char* kInput = "input_plan";

// The scheme as one of those at the input.
template <class F>
auto with_absolute(const Encoding& e, const F& f) {
  using Result = decltype(f(std::declval<const Learned&>()));
  return std::visit(
      [&](const auto& s) -> Result {
        using S = std::decay_t<decltype(s)>;
        if constexpr (AbsoluteScheme<S>)
          return f(s);
        else
          refuse_field(kInput, "encoding", "must be one that adds rows at the input", S::card.name);
      },
      e.scheme);
}

inline std::vector<Parameter> parameters_of(const Encoding& e) {
  return with_absolute(e, [](const auto& s) { return s.parameters(); });
}

}  // namespace posenc::python
