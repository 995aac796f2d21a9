// SPDX-License-Identifier: Apache-2.0
// Regions of a call in double: q and k that came with them, or those of the call rotated once more.
#pragma once
#include "attention/exact/call_view.h"

namespace posenc::inline v0::detail {

inline bool ends_with_rotation(const AttentionArgs& a) noexcept {
  return !a.prepare.empty() && a.prepare.back().kind == StageKind::rotate;
}
// Copies of what came with regions: before the stages.
void load_regions(CallView&, CallArena&, const Executor&);
// Rotated copies of q and k as they are now: after all stages but the rotation.
void make_rotated_regions(CallView&, CallArena&, const Executor&);
// Their gradients, back to those of q and k at the same place.
void pull_rotated_regions(const CallView&, const StagePull&, const Executor&);

}  // namespace posenc::v0::detail
