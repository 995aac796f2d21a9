// SPDX-License-Identifier: Apache-2.0
// The pictures of what acts in the score: a SCHEME, or a model's layer, run on queries and keys.
#pragma once
#include <string>
#include <vector>

#include "attend_call.h"
#include "chart.h"
#include "options.h"

namespace posenc::report {

// Whether `kind` is one of these for that subject: terms and locality of whatever acts in
// attention, decay of what is added to the score (what is rotated has another one).
bool is_score_kind(const Subject&, const PlotOptions&);
// terms: shares of the four products of content and position; decay: what is added to the score by
// distance; locality: the attention by distance. A line or a bar a head.
std::vector<Figure> plot_score(const Subject&, const PlotOptions&);

// At most as many lines as there are colours: first and last head, and others evenly between.
std::vector<Index> drawn_heads(Index heads);

// One call with all that pictures of it need, and where its pairs stand by distance.
struct ScoreCall {
  AttendCall call;
  Array parts[4];  // content-content, content-position, position-content, position-position
  Array scores, probabilities;
  bool reads_content = false;
  bool plane = false;   // positions are cells of --grid: distances are lengths
  std::string layer;    // of a model: which, and what acts there
  std::string note;     // that q and k are drawn, where they are
  std::string numbers;  // where q, k and inputs came from, for a caption
  // Distances that visible pairs have: floor(query - key) on the first axis, or the length.
  std::vector<Index> distance;
  std::vector<Index> bin;  // of every pair [batch, queries, keys], -1: not drawn

  std::size_t pair(Index b, Index h, Index i, Index j) const {
    return static_cast<std::size_t>(
        ((b * call.args.q.heads + h) * call.args.q.tokens + i) * call.args.k.tokens + j);
  }
  Index bin_of(Index b, Index i, Index j) const {
    return bin[static_cast<std::size_t>((b * call.args.q.tokens + i) * call.args.k.tokens + j)];
  }
};
ScoreCall run_score_call(const Subject&, const PlotOptions&);

}  // namespace posenc::report
