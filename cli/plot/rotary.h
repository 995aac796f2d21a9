// SPDX-License-Identifier: Apache-2.0
// The pictures of what turns: what they share.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "chart.h"
#include "verbs.h"

namespace posenc::cli {

struct Drawn {
  RotarySpec spec, unscaled;
  bool scaled = false;
  std::string title;
  std::optional<Index> context;  // what is given, else the model's own
  bool context_given = false;
};

// A line at the context, named.
Rule context_rule(Index context, bool vertical);
// Pictures by distance, and of an error by position, need a second token. Throws UsageError.
void require_two_tokens(std::optional<Index> context, const std::string& kind);
// "32 of 128 channels do not turn: ..."; empty where all do.
std::string unturned(const RotarySpec&);

std::vector<Figure> plot_error(const Drawn&);
std::vector<Figure> plot_rotary_rows(const Drawn&, const std::string& positions);

}  // namespace posenc::cli
