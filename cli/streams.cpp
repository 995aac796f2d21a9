// SPDX-License-Identifier: Apache-2.0
#include "streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace posenc::cli {
namespace {

thread_local Capture* capture = nullptr;

}  // namespace

Capture::Capture() noexcept : before_(capture) {
  capture = this;
}
Capture::~Capture() {
  capture = before_;
}
bool captured() noexcept {
  return capture != nullptr;
}

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) == -1) {
      // The lowest number that is free, and all below are taken. Read only: what is written to a
      // closed stdout is lost and must fail.
      [[maybe_unused]] const int opened = open("/dev/null", O_RDONLY);
    }
}

void write_stdout(std::string_view text) {
  if (capture != nullptr) {
    capture->out += text;
    return;
  }
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw std::system_error(errno, std::generic_category(), "stdout cannot be written");
}

void say(std::string_view text) noexcept {
  if (capture != nullptr) {
    capture->err += text;
    return;
  }
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace posenc::cli
