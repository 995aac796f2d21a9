// SPDX-License-Identifier: Apache-2.0
#include "posenc/report/verb.h"
#include "scripts.h"

namespace posenc::report {
namespace {

Verb::Run declare_man(Words&) {
  return [](const Request&) { return Report{.text = manual_page()}; };
}

}  // namespace

const Verb man_verb{"man", "print the manual page in roff", &declare_man,
                    "Example:\n  posenc man | man -l -"};

}  // namespace posenc::report
