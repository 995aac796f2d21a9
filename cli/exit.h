// SPDX-License-Identifier: Apache-2.0
// How the program ends: its message and its code.
#pragma once
#include <string_view>
#include <system_error>

namespace posenc::cli {

// Says "posenc: message" on stderr; returns the code.
int fail(int code, std::string_view message);
// A full disk is not the user's mistake in the words.
int code_of(const std::system_error&);
// What a person reads is buffered: a full disk shows when the buffer goes out.
int finished(int code);

}  // namespace posenc::cli
