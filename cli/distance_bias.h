// SPDX-License-Identifier: Apache-2.0
// The bias that ALiBi and T5 add to the score, by distance: for tables and pictures.
#pragma once
#include <vector>

#include "common.h"

namespace posenc::cli {

// The ALiBi or T5 of a SCHEME or of the model's layer. Throws InputError: neither acts there.
const Encoding& biased_by(const Subject&, const SubjectOptions&);
// [heads, distances], f64; a distance is query - key. What T5 learns comes from --arrays (table,
// [num_buckets, heads]) or --start.
Array distance_bias(const Encoding&, const SubjectOptions&, Index heads,
                    const std::vector<Index>& distances);
// Whole numbers of one list. Throws UsageError.
std::vector<Index> distances_of(const PositionList&);

}  // namespace posenc::cli
