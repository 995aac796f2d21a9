// SPDX-License-Identifier: Apache-2.0
// Regions of the score (positions/distance_map.h), with positions at which a call rotates its q and k, or with q and k of
// their own.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "attention_call.h"
#include "attention_result.h"
#include "posenc/rotary/plan.h"

namespace posenc::python {

class Regions {
 public:
  // `given`: {"0.query": positions, "0.key": positions, "0.bounds": [chunk, low, high], "0.rotation":
  // a plan, or missing: that of the encodings, ...}; "0.q" and "0.k" are in place of positions.
  Regions(const nb::object& given, const std::vector<std::string>& encodings,
          const CallArguments& call);

  std::span<const ScoreRegion> list() const { return list_; }
  // Gradients of all q and k of their own, which become all["regions"]; empty: none of them is wanted.
  std::vector<QK> gradients(nb::dict& all, Wanted& is_wanted) const;
  // Throws where the memory of a tensor moved since.
  void require_in_place() const;

 private:
  std::deque<RotarySpec> specs_;             // of regions with a rotation of their own
  std::deque<PositionsArgument> positions_;  // of query and key, by turns
  std::deque<Borrowed> arrays_;              // q and k, by turns
  std::vector<ScoreRegion> list_;
  HeadsLayout layout_, key_layout_;
};

}  // namespace posenc::python
