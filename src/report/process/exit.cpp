// SPDX-License-Identifier: Apache-2.0
#include "process/exit.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "posenc/report/process.h"
#include "posenc/report/request.h"
#include "process/streams.h"

namespace posenc::report {

int fail(int code, std::string_view message) {
  say(fmt::format("posenc: {}\n", message));
  return code;
}

int code_of(const std::system_error& e) {
  for (const std::errc full :
       {std::errc::no_space_on_device, std::errc::file_too_large, std::errc::io_error,
        std::errc::not_enough_memory, std::errc::bad_file_descriptor,
        std::errc::too_many_files_open, std::errc::too_many_files_open_in_system})
    if (e.code() == full) return kResources;
  return e.code().value() == EDQUOT ? kResources : kBadInput;
}

int finished(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return fail(kResources, fmt::format("stdout cannot be written: {}", std::strerror(errno)));
}

}  // namespace posenc::report
