// SPDX-License-Identifier: Apache-2.0
// The three standard streams: there from the start, written without surprises.
#pragma once
#include <string_view>

namespace posenc::cli {

// Streams that the caller closed are opened on /dev/null: else the first output file would take the
// place of one and get the messages.
void open_standard_streams();

// To stderr. One that is closed or full is nobody's error.
void say(std::string_view) noexcept;

}  // namespace posenc::cli
