// SPDX-License-Identifier: Apache-2.0
// Regions of the score with positions of their own (positions/distance_map.h): q and k rotated once
// more for each, and the gradients of the copies as those of q and k.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "attention_call.h"
#include "posenc/rotary/plan.h"

namespace posenc::python {

class Regions {
 public:
  // `given`: {"0.query": positions, "0.key": positions, "0.bounds": [chunk, low, high], "0.rotation":
  // a plan, or missing: that of the encodings, ...}.
  Regions(const CallArguments&, const nb::object& given, const std::vector<std::string>& encodings,
          Index length);

  std::span<const ScoreRegion> list() const { return list_; }
  // Zeros that gradients of the copies are added to, f64 or f32.
  std::span<const QK> gradients(DType);
  // Rotates them back and adds them to those of q and k, where they are wanted.
  void pull_back(const Heads& d_q, const Heads& d_k);

 private:
  struct Copy {
    std::vector<std::byte> q, k;
  };
  const CallArguments& call_;
  std::deque<RotarySpec> specs_;             // of each region
  std::deque<PositionsArgument> positions_;  // of query and key, by turns
  std::deque<Copy> copies_, sums_;
  std::vector<ScoreRegion> list_;
  std::vector<QK> gradients_;
};

}  // namespace posenc::python
