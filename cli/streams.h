// SPDX-License-Identifier: Apache-2.0
// The three standard streams: there from the start, written without surprises.
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace posenc::cli {

// Streams that the caller closed are opened on /dev/null: else the first output file would take the
// place of one and get the messages.
void open_standard_streams();

// While it lives, what the calling thread writes to stdout and stderr is kept here instead.
class Capture {
 public:
  Capture() noexcept;
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::string out, err;

 private:
  Capture* before_;
};
bool captured() noexcept;

// To stdout, at once. Throws std::system_error where it is closed or full, however much was written
// before.
void write_stdout(std::string_view);
template <class... T>
void show(fmt::format_string<T...> format, T&&... values) {
  write_stdout(fmt::format(format, std::forward<T>(values)...));
}

// To stderr. One that is closed or full is nobody's error.
void say(std::string_view) noexcept;

}  // namespace posenc::cli
