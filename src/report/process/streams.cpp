// SPDX-License-Identifier: Apache-2.0
#include "process/streams.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace posenc::report {
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) == -1) {
      // The lowest number that is free, and all below are taken. Read only: what is written to a
      // closed stdout is lost and must fail.
      [[maybe_unused]] const int opened = open("/dev/null", O_RDONLY);
    }
}

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw std::system_error(errno, std::generic_category(), "stdout cannot be written");
}

void say(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

bool stdout_is_terminal() {
  return isatty(STDOUT_FILENO) == 1;
}
bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

Style style_for_stdout() {
  const char* no = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return {stdout_is_terminal() && !(no && *no) && !(term && std::strcmp(term, "dumb") == 0)};
}
ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)), active_(stderr_is_terminal()) {}
ProgressLine::~ProgressLine() {
  if (active_ && last_ >= 0) say("\r\x1b[K");
}
void ProgressLine::step(Index done, Index total, std::string_view detail) {
  if (!active_) return;
  const int percent = total > 0 ? static_cast<int>(100 * done / total) : 0;
  if (percent == last_) return;
  last_ = percent;
  say(fmt::format("\r\x1b[K{} {:3d} % {}", what_, percent, detail));
}

}  // namespace posenc::report
