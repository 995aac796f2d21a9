// SPDX-License-Identifier: Apache-2.0
// Wavelengths and inner products of rows at the input whose channels are sines and cosines.
#pragma once
#include <optional>
#include <string>

#include "chart.h"
#include "options.h"
#include "posenc/absolute/input_term.h"

namespace posenc::report {

// What the scheme becomes, where all of it is sines and cosines of fixed frequencies; nothing for
// other schemes and for learned ones.
std::optional<LoweredInput> phases_of(const Encoding&, Context);

// Positions a full turn of every pair, a series an axis.
Figure phase_wavelengths(const LoweredInput&, const std::string& title,
                         std::optional<Index> context);
// Inner product of two rows that lie a distance apart along one axis, over that of a row with
// itself. Throws InputError where it is no function of the distance: a sine without its cosine.
Figure phase_inner_products(const LoweredInput&, const std::string& title,
                            std::optional<Index> context);

}  // namespace posenc::report
