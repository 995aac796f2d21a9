// SPDX-License-Identifier: Apache-2.0
// Arrays in the caller's workspace, one behind the other. The same code runs twice: without memory
// it counts the bytes, with memory it gives the arrays out, so that size and use cannot differ.
//
//   std::size_t bytes_needed(shape) { Arena count; arrays(count, shape); return count.bytes(); }
//   void call(shape, workspace)     { Arena arena(workspace); use(arrays(arena, shape)); }
#pragma once
#include <cassert>
#include <cstdint>
#include <type_traits>

#include "posenc/core/executor.h"

namespace posenc::inline v0::detail {

class Arena {
 public:
  Arena() = default;  // counts; what it gives out must not be used
  explicit Arena(Workspace w) noexcept : memory_(w.data()), size_(w.size()) {}

  // n elements, not initialised. The workspace may begin anywhere.
  template <class T>
  T* take(Index n) noexcept {
    static_assert(std::is_trivial_v<T>);
    const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(memory_) + used_;
    const std::size_t padding = (alignof(T) - at % alignof(T)) % alignof(T);
    T* begin = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(at + padding);
    if (n <= 0) return begin;  // aligned, and takes nothing
    used_ += padding + static_cast<std::size_t>(n) * sizeof(T);
    if (alignment_ < alignof(T)) alignment_ = alignof(T);
    assert(memory_ == nullptr || used_ <= size_);
    return begin;
  }

  // That hold all that was taken, wherever they begin. 0: nothing was.
  std::size_t bytes() const noexcept { return used_ == 0 ? 0 : used_ + alignment_; }

 private:
  std::byte* memory_ = nullptr;
  std::size_t size_ = 0, used_ = 0, alignment_ = 0;
};

}  // namespace posenc::v0::detail
