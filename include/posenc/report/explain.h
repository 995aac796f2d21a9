// SPDX-License-Identifier: Apache-2.0
// posenc explain as text. As data it is explain_json of posenc/model/read.h.
#pragma once
#include <optional>
#include <string>

#include "posenc/model/spec.h"
#include "posenc/report/request.h"

namespace posenc::report {

// Which positions a model without errors uses: all layers and towers, or one layer with the source
// of each value. The layer must exist.
std::string explain_text(const ModelSpec&, std::optional<Index> layer, const Style& = {});

}  // namespace posenc::report
