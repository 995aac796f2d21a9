// SPDX-License-Identifier: Apache-2.0
// operator new of this program counts the bytes that a thread holds.
#pragma once
#include <cstddef>

namespace posenc::test {

// From now on, of the calling thread.
void begin_counting();
// The most bytes that it held at once since then.
std::size_t most_bytes();

}  // namespace posenc::test
