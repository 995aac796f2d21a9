// SPDX-License-Identifier: Apache-2.0
// Whether elements of strided views are the same memory, exactly. Strides that run into each other
// in very many ways are not followed to the end: they count as shared.
#pragma once
#include "posenc/core/dtype.h"

namespace posenc::detail {

// Along one axis: `stride` elements times any of low .. high. A stride of 0 leads nowhere.
struct Way {
  Index stride, low, high;
};

// Whether a way along each axis leads `distance` elements far. Reorders the ways.
bool reaches(Way* ways, int count, Index distance) noexcept;

struct ViewAxis {
  Index size, stride;
};
// Whether two elements of one view are the same memory: no output may be such a view.
bool shares_with_itself(const ViewAxis* axes, int count) noexcept;

}  // namespace posenc::detail
