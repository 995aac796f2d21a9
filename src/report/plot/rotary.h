// SPDX-License-Identifier: Apache-2.0
// The pictures of what turns: what they share.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "chart.h"
#include "options.h"

namespace posenc::report {

// Layers that rotate alike, and differ from others of the model.
struct DrawnLayers {
  std::string name;
  RotarySpec spec;
};

struct Drawn {
  RotarySpec spec, unscaled;
  std::vector<DrawnLayers> layers;  // where one picture holds several; else none
  std::vector<std::string> axes;    // names of the axes of the positions, where they have some
  bool scaled = false;
  std::string title;
  std::optional<Index> context;  // what is given, else the model's own
  bool context_given = false;

  std::string axis_name(Index axis) const;
};
// What the subject rotates: of one layer, or for wavelengths and decay of all that differ.
Drawn drawn_of(const Subject&, const PlotOptions&);
// One frequency a pair: of head 0, the sum over axes (most columns have one axis).
std::vector<double> flat(const RotarySpec&);

// A line at the context, named.
Rule context_rule(Index context, bool vertical);
// Pictures by distance, and of an error by position, need a second token. Throws UsageError.
void require_two_tokens(std::optional<Index> context, const std::string& kind);
// "32 of 128 channels do not turn: ..."; empty where all do.
std::string unturned(const RotarySpec&);

std::vector<Figure> plot_decay(const Drawn&);
std::vector<Figure> plot_error(const Drawn&);
std::vector<Figure> plot_bias(const Subject&, const PlotOptions&);
// Whether bias or decay of a SCHEME has no numbers to draw but a table's rows: nothing says what its
// table holds.
bool draws_table_rows(const Subject&, const PlotOptions&);
std::vector<Figure> plot_table_rows(const Subject&, const PlotOptions&);
std::vector<Figure> plot_rotary_rows(const Drawn&, const std::string& positions);
// The angle of the pairs at each position, dials.
std::vector<Figure> plot_rotation(const Drawn&, const std::string& positions);

}  // namespace posenc::report
