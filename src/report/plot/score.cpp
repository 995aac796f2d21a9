// SPDX-License-Identifier: Apache-2.0
// posenc plot --kind terms, decay and locality of what acts in the score.
#include "score.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "rotary.h"

namespace posenc::report {
namespace {

constexpr std::array<const char*, 4> kPartNames{"content-content", "content-position",
                                                "position-content", "position-position"};

const double* doubles_of(const Array& a) {
  return reinterpret_cast<const double*>(a.bytes.data());
}

// Calls f(head, bin, place in the arrays) for every visible pair that is drawn.
template <class F>
void for_each_pair(const ScoreCall& s, F&& f) {
  const AttentionArgs& a = s.call.args;
  const double* score = doubles_of(s.scores);
  for (Index b = 0; b < a.q.batch; ++b)
    for (Index h = 0; h < a.q.heads; ++h)
      for (Index i = 0; i < a.q.tokens; ++i)
        for (Index j = 0; j < a.k.tokens; ++j) {
          const Index bin = s.bin_of(b, i, j);
          const std::size_t at = s.pair(b, h, i, j);
          if (bin >= 0 && std::isfinite(score[at])) f(h, static_cast<std::size_t>(bin), at);
        }
}

// By distance: sum, sum of squares and number of what visible pairs have.
struct Moments {
  double sum = 0, square = 0, count = 0;
  void add(double v) { sum += v, square += v * v, ++count; }
  double mean() const { return count > 0 ? sum / count : NAN; }
  double size() const { return count > 0 ? std::sqrt(square / count) : NAN; }
  double deviation() const {
    return count > 0 ? std::sqrt(std::max(0.0, square / count - mean() * mean())) : NAN;
  }
};

Axis distance_axis(const ScoreCall& s) {
  if (s.plane) return {"distance of two cells, rounded", "cells", false, {}, {}, true};
  return {"distance, query - key", "tokens", false, {}, {}, true};
}

void add_note(LineChart& c, const std::string& words) {
  if (!words.empty()) c.note += (c.note.empty() ? "" : "; ") + words;
}

// A line a head of `value(moments)` by distance.
template <class F>
void add_heads(LineChart& c, const ScoreCall& s, const std::vector<Moments>& all, F&& value) {
  const Index heads = s.call.args.q.heads;
  const std::vector<Index> drawn = drawn_heads(heads);
  for (const Index h : drawn) {
    Series line{fmt::format("head {}", h), {}, {}};
    for (std::size_t d = 0; d < s.distance.size(); ++d) {
      line.x.push_back(static_cast<double>(s.distance[d]));
      line.y.push_back(value(all[static_cast<std::size_t>(h) * s.distance.size() + d]));
    }
    c.series.push_back(std::move(line));
  }
  if (static_cast<Index>(drawn.size()) < heads)
    add_note(c, fmt::format("{} of {} heads are drawn", drawn.size(), heads));
}

std::string subtitle_of(const Subject& subject, const PlotOptions& o, const std::string& layer) {
  std::string title = subject.title + (layer.empty() ? "" : " " + layer);
  for (const std::string& scheme : o.call.with) title += ", " + scheme;
  for (const std::string& mask : o.call.masks) title += ", mask " + mask;
  return title;
}

// Sums of squared deviations from the mean over the keys of a query: what is the same for all keys
// changes no weight.
std::vector<std::array<double, 4>> spread_of_parts(const ScoreCall& s) {
  const AttentionArgs& a = s.call.args;
  const double* score = doubles_of(s.scores);
  std::vector<std::array<double, 4>> all(static_cast<std::size_t>(a.q.heads));
  for (Index b = 0; b < a.q.batch; ++b)
    for (Index h = 0; h < a.q.heads; ++h)
      for (Index i = 0; i < a.q.tokens; ++i)
        for (std::size_t part = 0; part < 4; ++part) {
          const double* value = doubles_of(s.parts[part]);
          double mean = 0, n = 0;
          for (Index j = 0; j < a.k.tokens; ++j)
            if (std::isfinite(score[s.pair(b, h, i, j)]))
              ++n, mean += (value[s.pair(b, h, i, j)] - mean) / n;
          double& sum = all[static_cast<std::size_t>(h)][part];
          for (Index j = 0; j < a.k.tokens; ++j)
            if (std::isfinite(score[s.pair(b, h, i, j)]))
              sum += std::pow(value[s.pair(b, h, i, j)] - mean, 2);
        }
  return all;
}

LineChart shares_chart(const ScoreCall& s, const std::string& subtitle) {
  LineChart c;
  c.title = "What the score of each head is made of";
  c.subtitle = subtitle;
  const auto all = spread_of_parts(s);
  c.x = {"head", "index", false, -0.6, static_cast<double>(all.size()) - 0.4, true};
  c.y = {"share of the variance over keys", "%", false, 0.0, 100.0};
  std::array<double, 4> mean{};
  std::array<double, 4> none{};
  for (std::size_t part = 0; part < 4; ++part) {
    Series bars{kPartNames[part], {}, {}};
    bars.bars = true;
    for (std::size_t h = 0; h < all.size(); ++h) {
      double whole = 0;
      for (const double v : all[h]) whole += v;
      bars.x.push_back(static_cast<double>(h));
      bars.y.push_back(whole > 0 ? 100 * all[h][part] / whole : 0);
      mean[part] += bars.y.back() / static_cast<double>(all.size());
    }
    c.series.push_back(std::move(bars));
  }
  if (mean == none)
    c.note = "no term differs between the keys of a query";
  else
    c.note = fmt::format(
        "mean of the heads: content-content {:.1f} %, content-position {:.1f} %, "
        "position-content {:.1f} %, position-position {:.1f} %",
        mean[0], mean[1], mean[2], mean[3]);
  return c;
}

std::vector<Figure> plot_terms(const ScoreCall& s, const std::string& subtitle) {
  LineChart size;
  size.title = "Size of the four parts by distance";
  size.subtitle = subtitle;
  size.x = distance_axis(s);
  size.y = {"root mean square, all heads", ""};
  for (std::size_t part = 0; part < 4; ++part) {
    std::vector<Moments> all(s.distance.size());
    const double* value = doubles_of(s.parts[part]);
    for_each_pair(s, [&](Index, std::size_t d, std::size_t at) { all[d].add(value[at]); });
    Series line{kPartNames[part], {}, {}};
    for (std::size_t d = 0; d < all.size(); ++d) {
      line.x.push_back(static_cast<double>(s.distance[d]));
      line.y.push_back(all[d].size());
    }
    size.series.push_back(std::move(line));
  }
  add_note(size, s.note);
  return {Figure{shares_chart(s, subtitle),
                 "Each part's variance over the keys that a query sees, a part of the sum of all "
                 "four, mean over the queries: what is the same for all keys of a query changes no "
                 "weight and is left out. The first word says what the query brings, the second "
                 "what the key brings. " +
                     s.numbers + "."},
          Figure{std::move(size),
                 "A part that reads neither query nor key is the same whatever the words are; one "
                 "that reads them grows with them. " +
                     s.numbers + "."}};
}

std::vector<Figure> plot_score_decay(const ScoreCall& s, const std::string& subtitle) {
  std::vector<Moments> all(static_cast<std::size_t>(s.call.args.q.heads) * s.distance.size());
  const double *score = doubles_of(s.scores), *content = doubles_of(s.parts[0]);
  for_each_pair(s, [&](Index h, std::size_t d, std::size_t at) {
    all[static_cast<std::size_t>(h) * s.distance.size() + d].add(score[at] - content[at]);
  });
  LineChart mean;
  mean.title = "What is added to the score by distance";
  mean.subtitle = subtitle;
  mean.x = distance_axis(s);
  mean.y = {s.reads_content ? "added to the score, mean" : "added to the score", ""};
  mean.rules.push_back({"", 0, false});
  LineChart spread = mean;
  add_heads(mean, s, all, [](const Moments& m) { return m.mean(); });
  if (s.reads_content) add_note(mean, s.note);
  const std::string sides = s.plane ? ""
                                    : " Keys of the past stand at positive distances, those of the "
                                      "future at negative ones.";
  if (!s.reads_content)
    return {Figure{std::move(mean),
                   "The same for all queries and keys, whatever they hold; where "
                   "it depends on the position too, the mean over positions." +
                       sides}};
  spread.title = "How far that differs between queries and keys";
  spread.y = {"added to the score, standard deviation", ""};
  add_heads(spread, s, all, [](const Moments& m) { return m.deviation(); });
  add_note(spread, s.note);
  return {Figure{std::move(mean),
                 "The mean over all pairs at a distance: what reads a query or a "
                 "key is as often above as below it. " +
                     s.numbers + "." + sides},
          Figure{std::move(spread),
                 "The standard deviation over all pairs at a distance: how much "
                 "a word can say about how far it looks. " +
                     s.numbers + "."}};
}

std::vector<Figure> plot_locality(const ScoreCall& s, const std::string& subtitle) {
  const std::size_t n = s.distance.size();
  std::vector<Moments> all(static_cast<std::size_t>(s.call.args.q.heads) * n);
  const double* mass = doubles_of(s.probabilities);
  const std::vector<double> rows = rows_that_see(s.call.args, mass);
  for_each_pair(s, [&](Index h, std::size_t d, std::size_t at) {
    all[static_cast<std::size_t>(h) * n + d].add(mass[at] / rows[static_cast<std::size_t>(h)]);
  });
  LineChart c;
  c.title = "Attention by distance";
  c.subtitle = subtitle;
  c.x = distance_axis(s);
  c.y = {"share of the attention", "", true};
  add_heads(c, s, all, [](const Moments& m) { return m.sum; });
  add_note(c, s.note);
  double least = INFINITY;
  for (const Series& line : c.series)
    for (const double v : line.y)
      if (v > 0) least = std::min(least, v);
  if (least < 1e-6) c.y.min = 1e-6;
  LineChart within;
  within.title = "Attention within a distance";
  within.subtitle = subtitle;
  within.x = {s.plane ? "distance of two cells, rounded" : "distance, either side",
              "tokens",
              false,
              0.0,
              {},
              true};
  if (s.plane) within.x.unit = "cells";
  within.y = {"share of the attention up to there", "", false, 0.0, 1.0};
  Index most = 0;
  for (const Index d : s.distance) most = std::max(most, std::abs(d));
  for (const Index h : drawn_heads(s.call.args.q.heads)) {
    std::vector<double> by(static_cast<std::size_t>(most) + 1);
    for (std::size_t d = 0; d < n; ++d)
      by[static_cast<std::size_t>(std::abs(s.distance[d]))] +=
          all[static_cast<std::size_t>(h) * n + d].sum;
    Series line{fmt::format("head {}", h), {}, {}};
    double sum = 0;
    for (std::size_t d = 0; d < by.size(); ++d) {
      line.x.push_back(static_cast<double>(d));
      line.y.push_back(sum += by[d]);
    }
    within.series.push_back(std::move(line));
  }
  within.note = c.note;
  return {Figure{std::move(c),
                 "Sum of the weights that the keys at a distance get, mean over the "
                 "queries; below 1e-6 nothing is drawn. A distance that few pairs "
                 "have gets little. " +
                     s.numbers + "."},
          Figure{std::move(within),
                 "How far a head must look for a share of its attention. " + s.numbers + "."}};
}

}  // namespace

std::vector<Index> drawn_heads(Index heads) {
  constexpr Index kMostLines = 7;  // colours
  const Index lines = std::min(heads, kMostLines);
  std::vector<Index> drawn;
  for (Index i = 0; i < lines; ++i) drawn.push_back(lines == 1 ? 0 : i * (heads - 1) / (lines - 1));
  return drawn;
}

bool is_score_kind(const Subject& s, const PlotOptions& o) {
  if (o.kind == "terms" || o.kind == "locality") return true;
  if (o.kind != "decay") return false;
  if (s.encoding) return is_relative(s.encoding->scheme);
  require_readable(*s.model);
  bool acts = false;  // something in the score, and nothing is rotated
  for (const LayerSpec& l : layers_of(*s.model, o.subject)) {
    if (o.subject.layer && l.index != *o.subject.layer) continue;
    if (l.rotary && !l.rotary->blocks.empty()) return false;
    acts |= l.has_scheme();
  }
  return acts;
}

std::vector<Figure> plot_score(const Subject& subject, const PlotOptions& o) {
  const ScoreCall s = run_score_call(subject, o);
  const std::string subtitle = subtitle_of(subject, o, s.layer);
  if (o.kind == "terms") return plot_terms(s, subtitle);
  return o.kind == "decay" ? plot_score_decay(s, subtitle) : plot_locality(s, subtitle);
}

}  // namespace posenc::report
