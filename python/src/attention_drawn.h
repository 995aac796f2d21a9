// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "posenc/attention/plan.h"

namespace posenc::python {

// The distance that stands for each, from 0 on; future empty: as past (relative/drawn_distances.h).
struct DrawnLists {
  std::vector<Index> past, future;
};
AttentionPlan drawn_plan(std::span<const std::string_view> encodings, const AttentionSizes&,
                         Index length, const DrawnLists&);

}  // namespace posenc::python
