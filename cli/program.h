// SPDX-License-Identifier: Apache-2.0
// The command line as functions: what main calls, and what the Python package calls.
#pragma once

namespace posenc::cli {

// The program: words, errors as messages on stderr, the exit code.
int run_program(int argc, char** argv);

// One verb, its errors thrown; words that make no call are said on stderr and give 2. Data and
// messages go to the streams, or to the Capture (streams.h) of the calling thread.
int run_verb(int argc, char** argv);

}  // namespace posenc::cli
