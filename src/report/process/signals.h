// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace posenc::report {

// SIGINT, SIGTERM and SIGHUP end the program as they would, and no half of a file stays behind.
void remove_files_on_signals();

}  // namespace posenc::report
