// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <optional>
#include <string>

#include "common.h"

namespace posenc::cli {

// Which positions a model without errors uses: all layers and towers, or one layer with the source
// of each value. The layer must exist.
std::string explain_text(const ModelSpec&, std::optional<Index> layer, const Style& = {});

}  // namespace posenc::cli
