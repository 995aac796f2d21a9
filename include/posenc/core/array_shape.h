// SPDX-License-Identifier: Apache-2.0
// The shape of a learned array or of an input: numbers, and what each number follows from.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "posenc/core/export.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

// A number, or a number that depends on a size of the model: its name says on which. A product keeps
// both: heads * head_dim is 512 and "heads * head_dim".
struct AxisSize {
  Index size;
  std::string name{};  // empty: the number holds for every model

  AxisSize(Index n) : size(n) {}  // NOLINT(google-explicit-constructor): shapes mix both
  AxisSize(Index n, std::string what) : size(n), name(std::move(what)) {}
  // The name, or the number.
  POSENC_API std::string text() const;
};
POSENC_API AxisSize operator*(const AxisSize&, const AxisSize&);

// A list of sizes, read as a vector of numbers.
class POSENC_API ArrayShape {
 public:
  using value_type = Index;
  using const_iterator = std::vector<Index>::const_iterator;
  using iterator = const_iterator;

  ArrayShape() = default;
  ArrayShape(std::initializer_list<AxisSize>);
  ArrayShape(std::vector<Index> sizes);  // NOLINT(google-explicit-constructor)

  const std::vector<Index>& sizes() const noexcept { return sizes_; }
  operator const std::vector<Index>&() const noexcept { return sizes_; }  // NOLINT
  std::size_t size() const noexcept { return sizes_.size(); }
  bool empty() const noexcept { return sizes_.empty(); }
  const Index& operator[](std::size_t axis) const noexcept { return sizes_[axis]; }
  const_iterator begin() const noexcept { return sizes_.begin(); }
  const_iterator end() const noexcept { return sizes_.end(); }
  // What the size of an axis depends on; empty where it is a number for every model.
  const std::string& name(std::size_t axis) const noexcept { return names_[axis]; }

  void add_front(AxisSize);
  void drop_last();

  // The numbers alone: an array that is read has no names.
  friend bool operator==(const ArrayShape& a, const ArrayShape& b) { return a.sizes_ == b.sizes_; }

 private:
  std::vector<Index> sizes_;
  std::vector<std::string> names_;
};

}  // namespace posenc::v0
