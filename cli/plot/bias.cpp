// SPDX-License-Identifier: Apache-2.0
// posenc plot --kind bias: what a scheme adds to the score by distance, a line a head.
#include <fmt/format.h>

#include <algorithm>

#include "attention_call.h"
#include "rotary.h"

namespace posenc::cli {

std::vector<Figure> plot_bias(const Subject& s, const PlotOptions& o) {
  constexpr Index kMostLines = 7;  // colours
  if (o.heads < 1) throw UsageError("--kind bias needs --heads N");
  const PositionList list =
      read_positions(o.positions.empty() ? std::string("-128:129") : o.positions);
  const auto* whole = std::get_if<std::vector<Index>>(&list.owned.value);
  if (whole == nullptr || list.owned.axes != 1 || list.owned.batch != 1)
    throw UsageError("--positions of a bias are one list of whole distances, query - key");
  const std::vector<Index>& distances = *whole;
  if (distances.empty() || distances.size() > std::size_t{1} << 16)
    throw UsageError(
        fmt::format("--kind bias draws 1 to 65536 distances, got {}", distances.size()));
  const ScoreEncodings e = bias_encodings(s, o.subject);
  const std::vector<double> v =
      distance_bias(e, o.subject, o.subject.arrays, list, o.heads).doubles();
  LineChart c;
  c.title = "Bias of the score by distance";
  c.subtitle = s.is_model() ? fmt::format("{}: {}", s.title, fmt::join(e.texts, ", ")) : s.title;
  c.x = {"distance, query - key", "tokens", false, {}, {}, true};
  c.y = {"added to the score", ""};
  const Index lines = std::min(o.heads, kMostLines);
  for (Index i = 0; i < lines; ++i) {
    // First and last, and others evenly between.
    const Index head = lines == 1 ? 0 : i * (o.heads - 1) / (lines - 1);
    Series line{fmt::format("head {}", head), {}, {}};
    for (std::size_t k = 0; k < distances.size(); ++k) {
      line.x.push_back(static_cast<double>(distances[k]));
      line.y.push_back(v[static_cast<std::size_t>(head) * distances.size() + k]);
    }
    c.series.push_back(std::move(line));
  }
  if (lines < o.heads) c.note = fmt::format("{} of {} heads are drawn", lines, o.heads);
  return {Figure{std::move(c),
                 "Keys of the past stand at positive distances, those of the future at "
                 "negative ones, where a causal mask hides them."}};
}

}  // namespace posenc::cli
