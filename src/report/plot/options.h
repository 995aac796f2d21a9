// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

#include "attend_call.h"
#include "extend_rows.h"
#include "posenc/report/plot.h"
#include "table_input.h"

namespace posenc::report {

int plot(PlotOptions);

class Words;
void add_plot_words(Words&, PlotOptions&);

}  // namespace posenc::report
