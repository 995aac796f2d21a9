// SPDX-License-Identifier: Apache-2.0
// Memory of one attention call: the caller's workspace, or memory of its own. The code that makes the
// arrays of a call runs with a counting arena too, so that the bytes it counts are those it uses.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "core/huge_pages.h"
#include "posenc/core/executor.h"

namespace posenc::inline v0::detail {

// Thrown where a workspace ends: whoever gave it to the arena counts and refuses it.
struct WorkspaceEnds {};

struct FreeMemory {
  std::size_t size = 0;
  void operator()(std::byte* p) const noexcept { HugePages<std::byte>().deallocate(p, size); }
};
using MemoryBlock = std::unique_ptr<std::byte, FreeMemory>;

class CallArena {
 public:
  // What becomes of its own memory: freed with the arena; or the thread keeps as much as the last call took, up to
  // kMostKept, for its next call, because the system clears new pages in each call.
  enum class Own : std::uint8_t { freed, kept };
  // Empty: memory of its own.
  explicit CallArena(Workspace w = {}, Own own = Own::freed) noexcept;
  ~CallArena();
  CallArena(const CallArena&) = delete;
  CallArena& operator=(const CallArena&) = delete;
  static constexpr std::size_t kMostKept = std::size_t{16} << 20;
  static CallArena counting() noexcept { return CallArena(Counting{}); }

  // n elements from a cache line on, not initialised. A counting arena gives them a size and no
  // memory: whoever fills them asks `counts`. Throws WorkspaceEnds.
  template <class T>
  std::span<T> array(Index n) {
    static_assert(std::is_trivially_copyable_v<T>);
    return {static_cast<T*>(take(n, sizeof(T), !counts_)), static_cast<std::size_t>(n)};
  }
  // n elements with their default values, and memory in a counting arena too.
  template <class T>
  std::span<T> objects(Index n) {
    static_assert(std::is_trivially_destructible_v<T>);
    T* first = static_cast<T*>(take(n, sizeof(T), true));
    std::uninitialized_value_construct_n(first, n);
    return {first, static_cast<std::size_t>(n)};
  }

  // n elements make(0), make(1), ...: what has no default values.
  template <class T, class Make>
  std::span<T> made(Index n, const Make& make) {
    static_assert(std::is_trivially_destructible_v<T>);
    T* first = static_cast<T*>(take(n, sizeof(T), true));
    for (Index i = 0; i < n; ++i) new (static_cast<void*>(first + i)) T(make(i));
    return {first, static_cast<std::size_t>(n)};
  }

  bool counts() const noexcept { return counts_; }
  // Of a workspace that holds what was taken, wherever it begins. Never 0.
  std::size_t bytes() const noexcept;

 private:
  struct Counting {};
  explicit CallArena(Counting) noexcept : counts_(true) {}
  void* take(Index n, std::size_t size, bool memory);
  void* take_own(std::size_t bytes);
  void take_kept();

  std::byte *next_ = nullptr, *end_ = nullptr;
  std::size_t used_ = 0;  // whole cache lines
  bool given_ = false, counts_ = false;
  bool keeps_ = false, asked_ = false;  // whether the thread keeps its memory, and was asked for it
  struct Kept;
  static Kept& of_thread() noexcept;
  MemoryBlock kept_;
  std::vector<MemoryBlock> blocks_;
};

// Bytes of a workspace for run(arena).
template <class F>
std::size_t bytes_of(const F& run) {
  CallArena arena = CallArena::counting();
  run(arena);
  return arena.bytes();
}

// A list that cannot outgrow its memory.
template <class T>
class BoundedList {
 public:
  BoundedList() = default;
  explicit BoundedList(std::span<T> memory) noexcept : memory_(memory) {}
  void clear() noexcept { size_ = 0; }
  void push_back(const T& x) noexcept { memory_[size_++] = x; }
  T& back() noexcept { return memory_[size_ - 1]; }
  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t n) const noexcept { return memory_[n]; }
  T* data() const noexcept { return memory_.data(); }
  T* begin() const noexcept { return memory_.data(); }
  T* end() const noexcept { return memory_.data() + size_; }

 private:
  std::span<T> memory_;
  std::size_t size_ = 0;
};

}  // namespace posenc::v0::detail
