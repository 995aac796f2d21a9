// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "common.h"

namespace posenc::report {

// f64 [batch * tokens, pairs] in rad: position x frequency, rounded once, of whole and fractional
// positions alike. Where several axes turn one pair, the sum of such products, each addition
// rounded once more. Throws InputError for a spectrum per head, and for an angle that a double
// cannot hold.
Array angles(const Spectrum&, const PositionList&);

}  // namespace posenc::report
