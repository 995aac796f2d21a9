// SPDX-License-Identifier: Apache-2.0
#include "parallel/counted_memory.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

// What a thread frees is nearly always its own.
thread_local long held = 0, most = 0;

void* counted_or_null(std::size_t size, std::size_t alignment) noexcept {
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, std::max(rounded, alignment));
  if (memory == nullptr) return nullptr;
  held += static_cast<long>(malloc_usable_size(memory));
  most = std::max(most, held);
  return memory;
}

void* counted_block(std::size_t size, std::size_t alignment) {
  if (void* const memory = counted_or_null(size, alignment)) return memory;
  throw std::bad_alloc();
}

void release_block(void* memory) {
  if (memory != nullptr) held -= static_cast<long>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) {
  return counted_block(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted_block(size, static_cast<std::size_t>(alignment));
}
// std::stable_sort asks so. Where AddressSanitizer answered, it would refuse that the block is freed here.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted_or_null(size, alignof(std::max_align_t));
}
void operator delete(void* memory) noexcept {
  release_block(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release_block(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  release_block(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release_block(memory);
}

void posenc::test::begin_counting() {
  held = most = 0;
}
std::size_t posenc::test::most_bytes() {
  return static_cast<std::size_t>(most);
}
