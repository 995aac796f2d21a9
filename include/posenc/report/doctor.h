// SPDX-License-Identifier: Apache-2.0
// Findings for a person: worst first, what, where, and the fix.
#pragma once
#include <string>
#include <vector>

#include "posenc/model/spec.h"
#include "posenc/report/request.h"

namespace posenc::report {

std::string findings_text(const std::vector<Finding>&, const Style& = {});
// The doctor's report: notes that hold for every model of a kind only with `notes`, otherwise counted
// in the last line, which says of a sound model that nothing is wrong.
std::string doctor_text(const std::string& file, const std::vector<Finding>&, bool notes,
                        const Style& = {});

}  // namespace posenc::report
