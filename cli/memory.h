// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace posenc::cli {

// The message of a std::bad_alloc: with the bytes of the last request that was refused.
std::string not_enough_memory();

}  // namespace posenc::cli
