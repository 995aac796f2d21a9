// SPDX-License-Identifier: Apache-2.0
// What a plan or a table holds, for the library's own code: public classes befriend this struct and
// show nothing of their state.
#pragma once
#include <utility>

namespace posenc::inline v0::detail {

struct StateAccess {
  template <class T>
  static auto& of(const T& x) noexcept {
    return *x.state_;
  }
  template <class T>
  static auto& shared(const T& x) noexcept {
    return x.state_;
  }
  template <class T, class State>
  static T make(State state) {
    return T(std::move(state));
  }
};

}  // namespace posenc::v0::detail
