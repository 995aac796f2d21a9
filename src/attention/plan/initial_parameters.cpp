// SPDX-License-Identifier: Apache-2.0
#include "posenc/attention/initial_parameters.h"

#include <utility>

#include "posenc/absolute/initial.h"

namespace posenc::inline v0 {

InitialParameters::InitialParameters(std::vector<Parameter> parameters, std::uint64_t seed)
    : parameters_(std::move(parameters)) {
  for (const Parameter& p : parameters_) {
    values_.push_back(initial_values(p, Draws(seed, 0, values_.size())));
    const void* data = values_.back().data();
    named_.push_back({p.name, tensor(data, DType::f64, p.shape)});
  }
}

}  // namespace posenc::v0
