// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <csignal>
#include <exception>
#include <memory>
#include <new>
#include <system_error>
#include <vector>

#include "exit.h"
#include "memory.h"
#include "posenc/report/command_line.h"
#include "signals.h"
#include "streams.h"

namespace posenc::cli {

int run_program(int argc, char** argv) {
  open_standard_streams();
  try {
    remove_files_on_signals();
    std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of write, said like others
    std::unique_ptr<ProgressLine> line;
    report::Console console{.out = &write_stdout, .note = &say};
    console.color = style_for_stdout().color;
    console.progress = [&line](const char* what, Index done, Index total, std::string_view detail) {
      if (!line) line = std::make_unique<ProgressLine>(what);
      line->step(done, total, detail);
    };
    console.checks = checks_of(argv);
    const std::vector<std::string> words(argv, argv + argc);
    const int code = report::run_command(words, console);
    line.reset();
    return finished(code);
  } catch (const report::UsageError& e) {
    return fail(report::kUsage, e.what());
  } catch (const std::bad_alloc&) {
    return fail(report::kResources, not_enough_memory());
  } catch (const std::system_error& e) {
    return fail(code_of(e), e.what());
  } catch (const std::exception& e) {  // FormatError, InputError, std::invalid_argument
    return fail(report::kBadInput, e.what());
  }
}

}  // namespace posenc::cli
