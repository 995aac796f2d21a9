// SPDX-License-Identifier: Apache-2.0
#include "attention/call/call_arena.h"

#include <cstdint>
#include <utility>

namespace posenc::inline v0::detail {
namespace {

constexpr std::size_t kCacheLine = 64;
// Small arrays of an arena with its own memory share blocks.
constexpr std::size_t kSharedBlock = std::size_t{32} << 10;

std::byte* next_line(std::byte* p) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  return p + (kCacheLine - at % kCacheLine) % kCacheLine;
}

}  // namespace

// Whether a workspace is large enough must not depend on where it begins.
CallArena::CallArena(Workspace w) noexcept : given_(!w.empty()) {
  if (w.size() < kCacheLine) return;
  next_ = next_line(w.data());
  end_ = next_ + (w.size() - kCacheLine) / kCacheLine * kCacheLine;
}

std::size_t CallArena::bytes() const noexcept {
  return used_ + kCacheLine;
}

void* CallArena::take(Index n, std::size_t size, bool memory) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<std::size_t>(n), size, &bytes) ||
      __builtin_add_overflow(bytes, kCacheLine - 1, &bytes))
    throw std::bad_array_new_length();
  bytes = bytes / kCacheLine * kCacheLine;
  if (__builtin_add_overflow(used_, bytes, &used_)) throw std::bad_array_new_length();
  if (!memory || bytes == 0) return nullptr;
  if (next_ == nullptr || static_cast<std::size_t>(end_ - next_) < bytes) {
    if (given_) throw WorkspaceEnds{};
    return take_own(bytes);
  }
  return std::exchange(next_, next_ + bytes);
}

void* CallArena::take_own(std::size_t bytes) {
  const bool shared = bytes < kSharedBlock / 4;
  const std::size_t size = (shared ? kSharedBlock : bytes) + kCacheLine;
  blocks_.reserve(blocks_.size() + 1);
  blocks_.emplace_back(HugePages<std::byte>().allocate(size), FreeBlock{size});
  std::byte* first = next_line(blocks_.back().get());
  if (shared) next_ = first + bytes, end_ = first + kSharedBlock;
  return first;
}

}  // namespace posenc::v0::detail
