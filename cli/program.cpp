// SPDX-License-Identifier: Apache-2.0
// The program: what goes wrong as one message and an exit code.
#include <csignal>
#include <exception>
#include <new>
#include <system_error>

#include "common.h"
#include "exit.h"
#include "memory.h"
#include "program.h"
#include "signals.h"
#include "streams.h"

namespace posenc::cli {

int run_program(int argc, char** argv) {
  open_standard_streams();
  try {
    remove_files_on_signals();
    std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of write, said like others
    return finished(run_verb(argc, argv));
  } catch (const UsageError& e) {
    return fail(kUsage, e.what());
  } catch (const std::bad_alloc&) {
    return fail(kResources, not_enough_memory());
  } catch (const std::system_error& e) {
    return fail(code_of(e), e.what());
  } catch (const std::exception& e) {  // FormatError, InputError, std::invalid_argument
    return fail(kBadInput, e.what());
  }
}

}  // namespace posenc::cli
