// SPDX-License-Identifier: Apache-2.0
// main alone, so that the rest of the command line links into other programs too.
#include "program.h"

int main(int argc, char** argv) {
  return posenc::cli::run_program(argc, argv);
}
