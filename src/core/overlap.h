// SPDX-License-Identifier: Apache-2.0
// Whether elements of strided views are the same memory, exactly. Strides that run into each other
// in very many ways are not followed to the end: they count as shared.
#pragma once
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "posenc/core/heads.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0::detail {

// `stride` x any integer in [low, high]; stride 0 contributes nothing.
struct StrideRange {
  Index stride, low, high;
};

// Whether one number of each range together make `distance`. Reorders the ranges.
bool can_reach(StrideRange* ranges, int count, Index distance) noexcept;

struct ViewAxis {
  Index size, stride;
};
// Whether two elements of one view are the same memory: no output may be such a view.
bool shares_with_itself(const ViewAxis* axes, int count) noexcept;

// Where the elements of a tensor lie: `size` bytes each, along axes of more than one element. No
// data: there are none.
struct Memory {
  const void* data = nullptr;
  Index size = 1;
  int count = 0;
  std::array<ViewAxis, TensorView::kMaxRank> axis{};
};
Memory memory_of(const ConstTensorView&) noexcept;
Memory memory_of(const ConstHeads&) noexcept;
Memory memory_of(std::span<const std::byte>) noexcept;
// Whether both are the same elements in the same order.
bool same_view(const Memory&, const Memory&) noexcept;
// Whether a byte of one is a byte of the other.
bool overlaps(const Memory&, const Memory&) noexcept;

// An argument of a call, as its errors name it.
struct Operand {
  std::string_view name;
  Memory memory;
};
// Throws [who]: two elements of `out` are the same memory.
void check_no_self_overlap(std::string_view who, const Operand& out);
// Throws [who]: they share memory without being the same view. For what is written where, and only
// after, it was read.
void check_in_place(std::string_view who, const Operand& in, const Operand& out);
// Throws [who]: they share memory.
void check_separate(std::string_view who, const Operand& in, const Operand& out);
// Outputs of a call: none overlaps itself, another or an input of `other`; it may be the
// very same view as one of `same`, which is read before it is written.
void check_outputs(std::string_view who, std::span<const Operand> outputs,
                   std::span<const Operand> same, std::span<const Operand> other);
void check_outputs(std::string_view who, std::initializer_list<Operand> outputs,
                   std::initializer_list<Operand> same, std::initializer_list<Operand> other);

}  // namespace posenc::v0::detail
