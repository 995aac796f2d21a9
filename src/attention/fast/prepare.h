// SPDX-License-Identifier: Apache-2.0
// q and k through the stages of a call, in float: copies of both, [B, T, heads, D].
#pragma once
#include <span>
#include <string_view>

#include "attention/call/ready_call.h"
#include "attention/lowered/lowered_call.h"
#include "posenc/core/executor.h"

namespace posenc::inline v0::detail {

struct PreparedQK {
  ConstHeads q{}, k{};  // the call's own where there are no stages
  // Of a copy of k: one flag a tile, [rows of keys, tiles]. Tiles that no query may see hold anything. Empty: all are.
  std::span<const std::uint8_t> seen{};
};
// A counting arena counts, and nothing is read.
PreparedQK prepare_qk(const ReadyCall&, const LoweredCall&, CallArena&, const Executor&);
// Why the stages of a call are not computed here; empty: they are.
std::string_view stages_why_not(const AttentionArgs&) noexcept;

}  // namespace posenc::v0::detail
