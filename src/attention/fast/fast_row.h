// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "attention/call/visible_runs.h"

namespace posenc::inline v0::detail {

// One row of queries of one head.
struct FastRow {
  Index b = 0, h = 0, i = 0;
  QueryPlace place{};
  VisibleBounds bounds{};
  Index entry = 0;    // Starts::entry_of
  double offset = 0;  // Starts::offset_of
  RankRuns orders{};  // rank_runs, where ranks are read
};

}  // namespace posenc::v0::detail
