// SPDX-License-Identifier: Apache-2.0
// Checks of single views and terms of an attention call.
#pragma once
#include <initializer_list>
#include <string>

#include "posenc/attention/attention.h"

namespace posenc::inline v0 {

// In an expected shape: n; kOneOr + n: 1 or n; -1: anything. An empty view passes.
inline constexpr Index kOneOr = Index{1} << 56;
void check_real(const ConstTensorView&, std::initializer_list<Index> shape,
                const std::string& what);
void check_integer(const ConstTensorView&, std::initializer_list<Index> shape,
                   const std::string& what);
void check_flags(const ConstTensorView&, std::initializer_list<Index> shape,
                 const std::string& what);
// [B|1, H|1, Tq, Tk] or its last two or three axes; flags u8 or real.
void check_pairs(const ConstTensorView&, const AttentionArgs&, bool flags, const std::string& what);
// Positions with that axis, integers if asked.
void needs_axis(const AttentionArgs&, std::int32_t axis, bool integer, const std::string& who);
void check_term(const AttentionArgs&, std::size_t number);

}  // namespace posenc::v0
