// SPDX-License-Identifier: Apache-2.0
// Findings for a person: worst first, what, where, how to mend.
#pragma once
#include <cstdio>
#include <vector>

#include "posenc/model/spec.h"

namespace posenc::cli {

void print_findings(const std::vector<Finding>&, std::FILE*);

}  // namespace posenc::cli
