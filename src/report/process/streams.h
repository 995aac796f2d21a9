// SPDX-License-Identifier: Apache-2.0
// The three standard streams: there from the start, written without surprises.
#pragma once
#include <string>
#include <string_view>

#include "posenc/report/request.h"

namespace posenc::report {

// Streams that the caller closed are opened on /dev/null: else the first output file would take the
// place of one and get the messages.
void open_standard_streams();

// To stdout, at once. Throws std::system_error where it is closed or full, however much was written
// before.
void write_stdout(std::string_view);

// To stderr. One that is closed or full is nobody's error.
void say(std::string_view) noexcept;

// A person at a terminal.
bool stdout_is_terminal();
bool stderr_is_terminal();
Style style_for_stdout();

// One line on stderr that rewrites itself; silent when stderr is no terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  ~ProgressLine();
  void step(Index done, Index total, std::string_view detail = {});

 private:
  std::string what_;
  bool active_;
  int last_ = -1;
};

}  // namespace posenc::report
