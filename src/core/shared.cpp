// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/shared.h"

#include <memory>
#include <new>

namespace posenc::inline v0::detail {
namespace {

using Pointer = std::shared_ptr<void>;
static_assert(sizeof(Pointer) == sizeof(Owner) && alignof(Pointer) <= alignof(Owner));

Pointer& in(std::byte* bytes) noexcept {
  return *std::launder(reinterpret_cast<Pointer*>(bytes));
}
const Pointer& in(const std::byte* bytes) noexcept {
  return *std::launder(reinterpret_cast<const Pointer*>(bytes));
}

}  // namespace

Owner::Owner() noexcept {
  new (pointer_) Pointer;
}
Owner::Owner(void* object, void (*destroy)(void*)) {
  new (pointer_) Pointer(object, destroy);
}
Owner::Owner(const Owner& other) noexcept {
  new (pointer_) Pointer(in(other.pointer_));
}
Owner::Owner(Owner&& other) noexcept {
  new (pointer_) Pointer(std::move(in(other.pointer_)));
}
Owner& Owner::operator=(const Owner& other) noexcept {
  in(pointer_) = in(other.pointer_);
  return *this;
}
Owner& Owner::operator=(Owner&& other) noexcept {
  in(pointer_) = std::move(in(other.pointer_));
  return *this;
}
Owner::~Owner() {
  in(pointer_).~Pointer();
}

}  // namespace posenc::v0::detail
