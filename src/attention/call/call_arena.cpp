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

MemoryBlock new_block(std::size_t size) {
  return MemoryBlock(HugePages<std::byte>().allocate(size), FreeMemory{size});
}

}  // namespace

struct CallArena::Kept {
  MemoryBlock block;
  std::size_t wanted = 0;  // what the last call took
};

CallArena::Kept& CallArena::of_thread() noexcept {
  thread_local Kept kept;
  return kept;
}

// Whether a workspace is large enough must not depend on where it begins.
CallArena::CallArena(Workspace w, Own own) noexcept
    : given_(!w.empty()), keeps_(w.empty() && own == Own::kept) {
  if (w.size() < kCacheLine) return;
  next_ = next_line(w.data());
  end_ = next_ + (w.size() - kCacheLine) / kCacheLine * kCacheLine;
}

CallArena::~CallArena() {
  if (!asked_) return;
  Kept& kept = of_thread();
  if (const std::size_t wanted = bytes(); wanted <= kMostKept) kept.wanted = wanted;
  if (kept_ != nullptr && kept.block == nullptr) kept.block = std::move(kept_);
}

// A call inside of a call has memory of its own.
void CallArena::take_kept() {
  asked_ = true;
  Kept& kept = of_thread();
  kept_ = std::move(kept.block);
  if (kept_.get_deleter().size < kept.wanted) kept_ = new_block(kept.wanted);
  if (kept_ == nullptr) return;
  next_ = next_line(kept_.get());
  end_ = next_ + (kept_.get_deleter().size - kCacheLine) / kCacheLine * kCacheLine;
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
  if (keeps_ && !asked_) take_kept();
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
  blocks_.push_back(new_block(size));
  std::byte* first = next_line(blocks_.back().get());
  if (shared) next_ = first + bytes, end_ = first + kSharedBlock;
  return first;
}

}  // namespace posenc::v0::detail
