// SPDX-License-Identifier: Apache-2.0
#include "process/signals.h"

#include <signal.h>

#include "posenc/io/array.h"

namespace posenc::report {
namespace {

// Only what a handler may call. The signal comes again with its default action, which ends the
// process and tells its parent why.
void remove_and_end(int signal) {
  remove_unfinished_files();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

void remove_files_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    // nohup and a shell's background jobs ignore some of them: so does the program.
    if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = remove_and_end;
    ::sigfillset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace posenc::report
