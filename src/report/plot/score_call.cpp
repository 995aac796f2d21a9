// SPDX-License-Identifier: Apache-2.0
// A call of attention for pictures: queries, keys and inputs from files or drawn, the scores by
// what they read, and the distance of every pair.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "extend_rows.h"
#include "posenc/core/philox.h"
#include "row_axis.h"
#include "score.h"

namespace posenc::report {
namespace {

constexpr Index kMostPairs = Index{1} << 24;  // of all heads
constexpr Index kMostDistances = 1 << 16;

Array drawn_normal(std::vector<Index> shape, const Draws& draws) {
  Array a = make_array(DType::f64, std::move(shape));
  auto* to = reinterpret_cast<double*>(a.bytes.data());
  const auto n = static_cast<std::uint64_t>(
      std::accumulate(a.shape.begin(), a.shape.end(), Index{1}, std::multiplies<>()));
  for (std::uint64_t i = 0; i < n; ++i) to[i] = draws.normal(i);
  return a;
}

Index usual_head_dim(const Subject& s, const ScoreEncodings& e, const PlotOptions& o) {
  if (o.head_dim > 0) return o.head_dim;
  if (e.layer != nullptr && e.layer->rotary) return e.layer->rotary->head_dim;
  if (s.encoding && is_rotary(s.encoding->scheme)) return turned_by(s, o.subject).head_dim;
  return 64;
}

// The words of attend, of numbers that are drawn too.
AttendOptions options_of_call(const PlotOptions& o) {
  AttendOptions a = o.call;
  a.subject = o.subject;
  a.positions = o.positions;
  a.order = o.extend.order;
  a.scale.reset();  // the layer's, or what the schemes ask for
  return a;
}

// As many tokens as --positions or --grid have, else --context; of decay twice as many, so that the
// largest distance has as many pairs as it is long.
Index drawn_tokens(const PlotOptions& o, const PositionList& cells) {
  if (!o.extend.grid.empty()) return cells.owned.count();
  if (!o.positions.empty()) return read_positions(o.positions).owned.count();
  return o.subject.context.value_or(128) * (o.kind == "decay" ? 2 : 1);
}

void add_numbers(ScoreCall& s, AttendOptions& a, const PlotOptions& o, const Subject& subject,
                 const ScoreEncodings& e, Index tokens, Index seed) {
  if (a.q.empty() != a.k.empty()) throw UsageError("--q and --k go together");
  const auto draw = [&](const char* name, std::vector<Index> shape, std::uint64_t which) {
    s.call.arrays.emplace(
        name, drawn_normal(std::move(shape), Draws(static_cast<std::uint64_t>(seed), 1, which)));
  };
  if (!a.q.empty()) {
    if (o.heads > 0 || o.head_dim > 0)
      throw UsageError("--heads and --head-dim are of q and k that are drawn, not of files");
    s.numbers = "q and k are those of the files";
    if (a.v.empty()) draw("v", read_array(a.k, "k").shape, 2);
    return;
  }
  if (!a.v.empty() || !a.order.empty()) throw UsageError("--v and --order go with --q and --k");
  const Index heads = o.heads > 0 ? o.heads : 8;
  if (tokens < 1 || tokens > kMostPairs || tokens * tokens > kMostPairs / heads)
    throw UsageError(fmt::format("{} heads of {} tokens are more pairs than the {} of a picture",
                                 heads, tokens, kMostPairs));
  const std::vector<Index> shape{tokens, heads, usual_head_dim(subject, e, o)};
  draw("q", shape, 0);
  draw("k", shape, 1);
  draw("v", shape, 2);
  s.note = fmt::format("q and k are random, seed {}", seed);
  s.numbers = fmt::format("q and k are normal random numbers of deviation 1, seed {}", seed);
}

// The distance of every visible pair; `within`: none farther is drawn.
void find_distances(ScoreCall& s, std::optional<Index> within) {
  const AttentionArgs& a = s.call.args;
  const Positions q = s.call.query_positions, k = s.call.key_positions;
  const std::int32_t axes = s.plane ? q.axes : 1;
  const Index n = a.k.tokens;
  const double* score = reinterpret_cast<const double*>(s.scores.bytes.data());
  const auto visible = [&](Index b, Index i, Index j) {
    for (Index h = 0; h < a.q.heads; ++h)
      if (std::isfinite(score[s.pair(b, h, i, j)])) return true;
    return false;
  };
  std::vector<double> length(static_cast<std::size_t>(a.q.batch * a.q.tokens * n), NAN);
  double low = INFINITY, high = -INFINITY;
  std::size_t at = 0;
  for (Index b = 0; b < a.q.batch; ++b)
    for (Index i = 0; i < a.q.tokens; ++i)
      for (Index j = 0; j < n; ++j, ++at) {
        double square = 0, last = 0;
        for (std::int32_t x = 0; x < axes; ++x) {
          last = position_at(q, x, q.batch == 1 ? 0 : b, i) -
                 position_at(k, x, k.batch == 1 ? 0 : b, j);
          square += last * last;
        }
        const double d = s.plane ? std::round(std::sqrt(square)) : std::floor(last);
        if ((within && std::abs(d) > static_cast<double>(*within)) || !visible(b, i, j)) continue;
        length[at] = d;
        low = std::min(low, d), high = std::max(high, d);
      }
  if (!(low <= high)) throw InputError("no query sees a key: there is nothing to draw");
  if (high - low >= static_cast<double>(kMostDistances))
    throw InputError(fmt::format("a picture shows at most {} distances, these are {} to {}",
                                 kMostDistances, low, high));
  for (Index d = static_cast<Index>(low); d <= static_cast<Index>(high); ++d)
    s.distance.push_back(d);
  s.bin.assign(length.size(), -1);
  for (std::size_t p = 0; p < length.size(); ++p)
    if (!std::isnan(length[p])) s.bin[p] = static_cast<Index>(length[p] - low);
}

// The cells of --grid, counted row by row.
PositionList grid_cells(const PlotOptions& o) {
  if (!o.positions.empty()) throw UsageError("--grid and --positions: one of the two");
  Index count = 1;
  for (const Index n : sizes("--grid", o.extend.grid)) count *= std::min(n, kMostPairs / count + 1);
  if (count > kMostPairs) throw UsageError("--grid " + o.extend.grid + " has too many cells");
  return cells_of(o.extend.grid, first_positions(count));
}

void name_layer(ScoreCall& s, const LayerSpec& layer) {
  s.layer = fmt::format("layer {}", layer.index);
  for (const Sourced<Encoding>& x : layer.encodings) s.layer += ", " + to_text(x.value);
  s.numbers +=
      "; q.k is scaled as the schemes ask, else by head_dim^-1/2: a model's own scale, soft cap "
      "and sinks are not read from its file";
}

void check_drawn_call(const AttentionArgs& c) {
  if (!c.mask.bias.empty())
    throw UsageError("--mask of a picture hides pairs: a file of numbers goes with attend");
  if (c.q.batch * c.q.tokens * c.k.tokens > kMostPairs / std::max<Index>(c.q.heads, 1))
    throw InputError(
        fmt::format("{} heads of {} queries and {} keys are more pairs than the {} of a picture",
                    c.q.batch * c.q.heads, c.q.tokens, c.k.tokens, kMostPairs));
}

void fill_scores(ScoreCall& s, const LoweredAttention& lowered, const NamedFiles& files) {
  const AttentionArgs& c = s.call.args;
  const std::vector<Index> shape{c.q.batch, c.q.heads, c.q.tokens, c.k.tokens};
  AttentionScores want;
  for (const auto& [array, view] :
       {std::pair{&s.parts[0], &want.content}, std::pair{&s.parts[1], &want.query_position},
        std::pair{&s.parts[2], &want.position_key}, std::pair{&s.parts[3], &want.position_position},
        std::pair{&s.scores, &want.scores}, std::pair{&s.probabilities, &want.probabilities}}) {
    *array = make_array(DType::f64, shape);
    *view = array->view();
  }
  lowered.scores(c, files.inputs(), want);
}

}  // namespace

ScoreCall run_score_call(const Subject& subject, const PlotOptions& o) {
  ScoreCall s;
  const Index seed = o.subject.start.value_or(1);
  const ScoreEncodings e = score_encodings(subject, o.subject, o.call.with);
  AttendOptions a = options_of_call(o);
  PositionList cells;
  s.plane = !o.extend.grid.empty();
  if (s.plane) cells = grid_cells(o), a.grid = o.extend.grid;
  add_numbers(s, a, o, subject, e, drawn_tokens(o, cells), seed);
  read_call(s.call, a, e);
  const AttentionArgs& c = s.call.args;
  check_drawn_call(c);
  const AttentionPlan plan = plan_of_call(s.call, a, e);
  NamedFiles files;
  files.read_parameters(plan.parameters(), a.params.empty() ? o.subject.arrays : a.params,
                        o.subject.start, e);
  const std::string drawn =
      files.draw_inputs(plan.inputs(), a.inputs,
                        {.batch = c.q.batch, .queries = c.q.tokens, .keys = c.k.tokens}, seed);
  if (!drawn.empty()) s.numbers += ", and so " + drawn;
  files.read_inputs(plan.inputs(), a.inputs);
  if (e.layer != nullptr) name_layer(s, *e.layer);
  const LoweredAttention lowered =
      plan.lower(files.parameters(), distance_ranges(c.query_positions, c.key_positions));
  s.reads_content = lowered.reads_content();
  fill_scores(s, lowered, files);
  const bool all = o.kind != "decay" || !a.q.empty() || s.plane || !o.positions.empty();
  find_distances(s, all ? std::nullopt : std::optional(o.subject.context.value_or(128)));
  return s;
}

}  // namespace posenc::report
