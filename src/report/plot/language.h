// SPDX-License-Identifier: Apache-2.0
// The words of pictures in another language.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "chart.h"

namespace posenc::report {

// en or zh. Throws UsageError.
void check_language(const std::string&);
// Titles, axes, units, legends, notes and captions. SCHEME texts and names of files stay.
void translate(std::vector<Figure>&, const std::string& language);
// One of them, as far as the dictionary goes; the others stay.
std::string translated(std::string_view text);

}  // namespace posenc::report
