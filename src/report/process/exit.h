// SPDX-License-Identifier: Apache-2.0
// How a process ends: its code.
#pragma once
#include <system_error>

namespace posenc::report {

// A full disk is not the user's mistake in the words.
int code_of(const std::system_error&);
// What a person reads is buffered: a full disk shows when the buffer goes out.
int finished(int code);

}  // namespace posenc::report
