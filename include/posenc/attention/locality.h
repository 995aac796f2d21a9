// SPDX-License-Identifier: Apache-2.0
// How far attention looks: its probabilities by distance.
#pragma once
#include <vector>

#include "posenc/core/dtype.h"
#include "posenc/core/export.h"
#include "posenc/core/positions.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

struct Locality {
  std::vector<Index> distance;  // query - key on the first axis, rounded down, without gaps
  std::vector<double> mass;     // [heads, distances]
};

// The sum of the probabilities at each distance, the mean over the queries that see a key.
// probabilities: [batch, heads, queries, keys] of f64 or f32, as attend_scores writes them.
// Throws [locality]: another shape; positions that do not fit; more than 2^24 distances.
POSENC_API Locality locality(const ConstTensorView& probabilities, const Positions& query,
                             const Positions& key);

}  // namespace posenc::v0
