// SPDX-License-Identifier: Apache-2.0
// Parameters of a scheme in double, by their own names: arrays of `in`, or numbers of `parameters`.
#pragma once
#include <vector>

#include "conformance/runner/tensors.h"
#include "posenc/core/parameter.h"

namespace posenc::conformance {

struct Given {
  std::vector<Array> arrays;
  std::vector<ConstTensorView> views;
};
// The axes of an array in another order, and the order that the check's `transpose` has for a
// parameter; empty: as it is.
Array transposed(const Array&, const std::vector<Index>& order);
std::vector<Index> transposed_axes(const Check&, std::string_view name);
// An array may have other axes than the parameter when it has as many elements, in its order.
Given given_parameters(const Check&, const std::vector<Parameter>&);

}  // namespace posenc::conformance
