// SPDX-License-Identifier: Apache-2.0
// The pictures of what acts at the input: a SCHEME's rows, a model's own, a learned table.
#pragma once
#include <string>
#include <vector>

#include "chart.h"
#include "options.h"

namespace posenc::report {

// Whether the subject is drawn by its rows: a SCHEME at the input; a model or tower that turns
// nothing, or that is asked for with --input.
bool is_drawn_by_rows(const Subject&, const PlotOptions&);
// The kind of picture where none is asked for.
std::string usual_kind(const Subject&, const PlotOptions&);
// rows: heat map; decay: mean cosine similarity of two rows by their distance. Sinusoids have
// wavelengths too, and their inner product with its law. `title` gets the name of what is drawn.
std::vector<Figure> plot_input(const Subject&, const PlotOptions&, std::string& title);

// --kind extend WEIGHTS: a learned table before and after it was made another size. A line:
// cosine similarity to one position, and the three channels that vary most; a grid: maps of the
// similarity to one patch.
std::vector<Figure> plot_extend(const PlotOptions&);

// Cosine of the angle between two rows; 0 where one is zero.
double similarity(const double* a, const double* b, Index width);

}  // namespace posenc::report
