// SPDX-License-Identifier: Apache-2.0
// What messages of functions that several files implement begin with.
#pragma once

namespace posenc::inline v0 {

inline constexpr const char* kApplyInput = "apply_input";
inline constexpr const char* kEmbed = "embed";
inline constexpr const char* kExtend = "extend";
inline constexpr const char* kInputPlan = "input_plan";

}  // namespace posenc::v0
