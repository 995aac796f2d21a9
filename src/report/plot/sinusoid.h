// SPDX-License-Identifier: Apache-2.0
// The pictures of a sinusoid added at the input.
#pragma once
#include <string>
#include <vector>

#include "chart.h"
#include "options.h"
#include "posenc/absolute/sinusoidal.h"

namespace posenc::report {

// rows: the encoding of every position and channel; wavelengths; decay: the inner product of two
// rows against their distance, with its logarithmic law beside it. Other kinds are refused.
std::vector<Figure> plot_sinusoid(const Sinusoidal&, const std::string& title, const PlotOptions&);

}  // namespace posenc::report
