// SPDX-License-Identifier: Apache-2.0
#include "relative/learned.h"

#include <algorithm>

#include "relative/find_name.h"

namespace posenc::inline v0::detail {

LearnedValues::LearnedValues(std::string_view who, std::vector<Parameter> declared,
                             std::span<const ConstTensorView> p)
    : who_(who), declared_(std::move(declared)), given_(p) {
  check_parameter_count(who, declared_.size(), p.size());
}

std::vector<double> LearnedValues::operator[](std::string_view name) const {
  const std::size_t n = index_of(who_, declared_, name);
  return parameter_values(who_, declared_[n], given_[n]);
}

std::vector<double> LearnedValues::if_any(std::string_view name) const {
  return has(name) ? (*this)[name] : std::vector<double>();
}

bool LearnedValues::has(std::string_view name) const noexcept {
  return std::ranges::find(declared_, name, &Parameter::name) != declared_.end();
}

const ArrayShape& LearnedValues::shape(std::string_view name) const {
  return declared_[index_of(who_, declared_, name)].shape;
}

std::vector<double>& LearnedGradients::operator[](std::string_view name) {
  return sums_[index_of(who_, declared_, name)];
}

void LearnedGradients::accumulate(std::span<const TensorView> to) {
  for (std::size_t n = 0; n < sums_.size(); ++n)
    if (sums_[n].empty()) {
      std::size_t size = 1;
      for (const Index axis : declared_[n].shape) size *= static_cast<std::size_t>(axis);
      sums_[n].assign(size, 0.0);
    }
  v0::accumulate(who_, declared_, to, sums_);
}

}  // namespace posenc::v0::detail
