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
// A parameter that is an array of the case at another size, where the check's `extended` names it:
// as the operation `extend` makes it; and the gradient of the array itself.
Array extended(const Check&, std::string_view name, const Array&);
std::vector<double> extended_gradient(const Check&, std::string_view name, std::vector<double>);
// An array may have other axes than the parameter when it has as many elements, in its order. A list
// of arrays stands for them one behind another.
Given given_parameters(const Check&, const std::vector<Parameter>&);

}  // namespace posenc::conformance
