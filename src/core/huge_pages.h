// SPDX-License-Identifier: Apache-2.0
// Large arrays on large pages, where the system gives them: an array of 8 MiB is 4 pages in place of
// 2048, each of which costs a fault when it is first touched.
#pragma once
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <new>
#include <vector>

namespace posenc::inline v0::detail {

template <class T>
struct HugePages {
  using value_type = T;
  static constexpr std::size_t kPage = std::size_t{2} << 20, kLarge = 2 * kPage;  // bytes

  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) noexcept {}

  T* allocate(std::size_t n) {
    if (n > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    const std::size_t bytes = n * sizeof(T);
    if (bytes < kLarge) return static_cast<T*>(::operator new(bytes));
    void* p = ::operator new (bytes, std::align_val_t{kPage});
#if defined(__linux__)
    ::madvise(p, bytes, MADV_HUGEPAGE);  // a wish: without it all is as before
#endif
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t n) noexcept {
    if (n * sizeof(T) < kLarge)
      ::operator delete(p);
    else
      ::operator delete (p, std::align_val_t{kPage});
  }
  bool operator==(const HugePages&) const = default;
};

// Numbers of an engine, of which there may be many.
using Numbers = std::vector<double, HugePages<double>>;

// The same without values: resize writes nothing, so that pages which nobody writes cost nothing.
template <class T>
struct UnwrittenPages : HugePages<T> {
  UnwrittenPages() = default;
  template <class U>
  UnwrittenPages(const UnwrittenPages<U>&) noexcept {}
  template <class U>
  struct rebind {
    using other = UnwrittenPages<U>;
  };
  template <class U>
  void construct(U*) noexcept {}
  template <class U, class X>
  void construct(U* p, const X& x) noexcept {
    ::new (static_cast<void*>(p)) U(x);
  }
};
using DoubleBuffer = std::vector<double, UnwrittenPages<double>>;

}  // namespace posenc::v0::detail
