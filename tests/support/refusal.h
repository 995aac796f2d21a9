// SPDX-License-Identifier: Apache-2.0
// What a call is refused with.
#pragma once
#include <stdexcept>
#include <string>

namespace posenc::test {

// what() of the refusal, "accepted" when nothing was thrown.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace posenc::test
