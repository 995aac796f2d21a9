// SPDX-License-Identifier: Apache-2.0
#include "no_allocation/counted_new.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<long> count{0};

void* counted_or_null(std::size_t size, std::size_t alignment) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

void* counted(std::size_t size, std::size_t alignment) {
  if (void* const memory = counted_or_null(size, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
// Temporary buffers of std::stable_sort. Where AddressSanitizer answered, it would refuse that they are freed here.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted_or_null(size, alignof(std::max_align_t));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

long posenc::test::allocations() {
  return count.load();
}
