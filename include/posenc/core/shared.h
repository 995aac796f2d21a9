// SPDX-License-Identifier: Apache-2.0
// An object that copies of its owner share, deleted with the last of them: std::shared_ptr, which
// shared.cpp keeps in `Owner`. Its header <memory> would be a quarter of what it takes to compile a
// file that includes posenc.h.
#pragma once
#include <cstddef>
#include <type_traits>
#include <utility>

#include "posenc/core/export.h"

namespace posenc::inline v0 {
namespace detail {

// The bytes of a std::shared_ptr<void>.
class POSENC_API Owner {
 public:
  Owner() noexcept;
  // destroy(object) runs once: with the last copy, or here where memory for the count is missing.
  Owner(void* object, void (*destroy)(void*));
  Owner(const Owner&) noexcept;
  Owner(Owner&&) noexcept;  // leaves an owner of nothing
  Owner& operator=(const Owner&) noexcept;
  Owner& operator=(Owner&&) noexcept;
  ~Owner();

 private:
  alignas(void*) std::byte pointer_[2 * sizeof(void*)];
};

}  // namespace detail

// T may be const, and void: then it only keeps alive. Copies may be made and dropped on any thread.
template <class T>
class Shared {
 public:
  Shared() = default;
  template <class... Args>
  static Shared make(Args&&... args) {
    return Shared(new std::remove_const_t<T>(std::forward<Args>(args)...));
  }
  // From Shared<X> to Shared<const X>, and to void.
  template <class U>
  requires std::is_convertible_v<U*, T*> Shared(Shared<U> other)
  noexcept  // NOLINT(google-explicit-constructor)
      : object_(std::exchange(other.object_, nullptr)), owner_(std::move(other.owner_)) {}
  Shared(const Shared&) = default;
  Shared(Shared&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), owner_(std::move(other.owner_)) {}
  Shared& operator=(Shared other) noexcept {
    std::swap(object_, other.object_);
    owner_ = std::move(other.owner_);
    return *this;
  }
  ~Shared() = default;

  T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  std::add_lvalue_reference_t<T> operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  bool operator==(const Shared& other) const noexcept { return object_ == other.object_; }

 private:
  template <class>
  friend class Shared;
  explicit Shared(std::remove_const_t<T>* object)
      : object_(object),
        owner_(object, [](void* p) { delete static_cast<std::remove_const_t<T>*>(p); }) {}

  T* object_ = nullptr;
  detail::Owner owner_;
};

}  // namespace posenc::v0
