// SPDX-License-Identifier: Apache-2.0
#include "posenc/report/process.h"
#include "program.h"

int main(int argc, char** argv) {
  return posenc::report::run_process(
      {argv, argv + argc}, {posenc::cli::checks_of(argv), &posenc::cli::not_enough_memory});
}
