// SPDX-License-Identifier: Apache-2.0
// Views that a caller made by hand: their sizes and strides are checked before arithmetic on 64 bits
// meets them.
#pragma once
#include <initializer_list>
#include <string_view>

#include "posenc/core/heads.h"
#include "posenc/core/positions.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0::detail {

// Limits that no machine's memory reaches: of an axis, of all numbers of a view.
inline constexpr Index kMostSize = Index{1} << 40, kMostNumbers = Index{1} << 48;

// The product of sizes, none negative; the largest Index where 64 bits do not hold it.
Index saturated_product(std::initializer_list<Index> sizes) noexcept;

// Throws [who]: a size that is negative or above 2^40, more than 2^48 numbers (an axis without
// elements counts as one), strides whose elements lie 2^61 bytes apart.
void check_extent(std::string_view who, std::string_view what, const ConstHeads&);
void check_extent(std::string_view who, std::string_view what, const ConstTensorView&);
// The same of positions, and [who]: another type than i64, i32 or f64, no axis, null data where
// there are positions.
void check_positions_view(std::string_view who, std::string_view what, const Positions&);

}  // namespace posenc::v0::detail
