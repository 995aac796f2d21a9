// SPDX-License-Identifier: Apache-2.0
// Positions are read while the call writes: its outputs must lie elsewhere.
#pragma once
#include <initializer_list>
#include <string_view>

#include "core/overlap.h"
#include "posenc/positions/view.h"

namespace posenc::inline v0::detail {

Memory memory_of(const Positions&) noexcept;
// Throws [who]: a byte of a position is a byte of an output.
void check_positions_apart(std::string_view who, const Positions&,
                           std::initializer_list<Operand> outputs);

}  // namespace posenc::v0::detail
