// SPDX-License-Identifier: Apache-2.0
// Findings for a person: worst first, what, where, and the fix.
#pragma once
#include <string>
#include <vector>

#include "common.h"
#include "posenc/model/spec.h"

namespace posenc::cli {

std::string findings_text(const std::vector<Finding>&, const Style& = {});

}  // namespace posenc::cli
