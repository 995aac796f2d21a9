// SPDX-License-Identifier: Apache-2.0
// Regions of the score with positions of their own (positions/distance_map.h), at which a call rotates its q and k.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "attention_call.h"
#include "posenc/rotary/plan.h"

namespace posenc::python {

class Regions {
 public:
  // `given`: {"0.query": positions, "0.key": positions, "0.bounds": [chunk, low, high], "0.rotation":
  // a plan, or missing: that of the encodings, ...}.
  Regions(const nb::object& given, const std::vector<std::string>& encodings);

  std::span<const ScoreRegion> list() const { return list_; }
  // Throws where the memory of a tensor moved since.
  void require_in_place() const;

 private:
  std::deque<RotarySpec> specs_;             // of regions with a rotation of their own
  std::deque<PositionsArgument> positions_;  // of query and key, by turns
  std::vector<ScoreRegion> list_;
};

}  // namespace posenc::python
