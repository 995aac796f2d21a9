// SPDX-License-Identifier: Apache-2.0
#include "posenc/report/process.h"

#include <csignal>
#include <exception>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

#include "posenc/report/command_line.h"
#include "process/exit.h"
#include "process/signals.h"
#include "process/streams.h"

namespace posenc::report {

int run_process(const std::vector<std::string>& words, const ProcessParts& parts) {
  open_standard_streams();
  try {
    remove_files_on_signals();
    std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of write, said like others
    std::unique_ptr<ProgressLine> line;
    Console console{.out = &write_stdout, .note = &say};
    console.color = style_for_stdout().color;
    console.progress = [&line](const char* what, Index done, Index total, std::string_view detail) {
      if (!line) line = std::make_unique<ProgressLine>(what);
      line->step(done, total, detail);
    };
    console.checks = parts.checks;
    const int code = run_command(words, console);
    line.reset();
    return finished(code);
  } catch (const UsageError& e) {
    return fail(kUsage, e.what());
  } catch (const std::bad_alloc&) {
    return fail(kResources,
                parts.not_enough_memory ? parts.not_enough_memory() : "not enough memory");
  } catch (const std::system_error& e) {
    return fail(code_of(e), e.what());
  } catch (const std::exception& e) {  // FormatError, InputError, std::invalid_argument
    return fail(kBadInput, e.what());
  }
}

}  // namespace posenc::report
