// SPDX-License-Identifier: Apache-2.0
// The law of every scheme of the score: what goes back through pull_back, to parameters, to what a
// call brings and to q, k and v, is the derivative of what attention gives; it is added to what is
// there, and what does not fit is refused before anything is written.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "posenc/relative/any_scheme.h"

namespace posenc::test {

struct LawCall {
  Index batch = 2, queries = 5, keys = 7, query_offset = 2;
  Index heads = 4, key_heads = 2, head_dim = 4, value_dim = 3;
  std::optional<double> scale = 0.4;  // absent: the scheme's
  bool causal = false;
  Index window_right = kUnbounded;  // -1: not one's own key
  std::map<std::string, Index>
      classes{};  // of an integer input: its numbers are 0 .. n - 1; else 2
  // Position of a token on an axis, by its order. Default: order, order / 2, order % 3.
  std::function<Index(std::int32_t axis, Index order)> position{};
  std::int32_t axes = 3;
  // Number i of a parameter or a real input. Default: 0.4 sin(7 i + 3 + a number of the name).
  std::function<double(const std::string& name, Index i)> number{};
  double tolerance = 2e-8;  // of a derivative, absolute and relative
};

void check_scheme_laws(const AnyRelativeScheme&, const LawCall& = {});

}  // namespace posenc::test
