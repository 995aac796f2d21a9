// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/array_shape.h"

#include <utility>

namespace posenc::inline v0 {

std::string AxisSize::text() const {
  return name.empty() ? std::to_string(size) : name;
}

AxisSize operator*(const AxisSize& a, const AxisSize& b) {
  const bool number = a.name.empty() && b.name.empty();
  return {a.size * b.size, number ? std::string() : a.text() + " * " + b.text()};
}

ArrayShape::ArrayShape(std::initializer_list<AxisSize> axes) {
  sizes_.reserve(axes.size()), names_.reserve(axes.size());
  for (const AxisSize& a : axes) sizes_.push_back(a.size), names_.push_back(a.name);
}

ArrayShape::ArrayShape(std::vector<Index> sizes)
    : sizes_(std::move(sizes)), names_(sizes_.size()) {}

void ArrayShape::add_front(AxisSize a) {
  sizes_.insert(sizes_.begin(), a.size);
  names_.insert(names_.begin(), std::move(a.name));
}

void ArrayShape::drop_last() {
  sizes_.pop_back();
  names_.pop_back();
}

}  // namespace posenc::v0
