// SPDX-License-Identifier: Apache-2.0
// posenc plot --kind decay: what rotation alone makes of the score, by distance.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>

#include "rotary.h"

namespace posenc::report {
namespace {

// Log-spaced whole distances from 1 to last, and 0 left out: the axis is logarithmic.
std::vector<double> distances(Index last) {
  std::vector<double> d;
  const double steps = 400, top = std::log(static_cast<double>(std::max<Index>(last, 2)));
  for (int i = 0; i <= steps; ++i) {
    const double v = std::round(std::exp(top * i / steps));
    if (d.empty() || v > d.back()) d.push_back(v);
  }
  return d;
}

// The pairs that turn, and log2 of their decay by one position.
struct Turning {
  std::vector<double> frequency, rate;
};

Turning turning(const RotarySpec& spec) {
  Turning t;
  const std::vector<double> f = flat(spec);
  std::size_t at = 0;
  for (const RotaryBlock& b : spec.blocks)
    for (Index i = 0; i < b.pairs(); ++i, ++at) {
      if (f[at] == 0) continue;
      t.frequency.push_back(f[at]);
      t.rate.push_back(
          b.log2_decay.empty() ? 0 : b.log2_decay[static_cast<std::size_t>(i)] / b.decay_scale);
    }
  if (t.frequency.empty()) throw InputError("no pair rotates: there is no decay to draw");
  return t;
}

// Mean over the pairs of decay x exp(i distance x frequency). Its real part is the score of equal vectors of
// equal channels over that at distance 0; its length is the largest such score where k is q turned by any one angle.
std::complex<double> mean_phase(const Turning& t, double distance) {
  std::complex<double> sum = 0;
  for (std::size_t i = 0; i < t.frequency.size(); ++i)
    sum += std::polar(std::exp2(t.rate[i] * distance), distance * t.frequency[i]);
  return sum / static_cast<double>(t.frequency.size());
}

struct Band {
  Series mean, least, largest, bound;
};

// One distance alone of a fast oscillation is chance: each point stands for all distances up to the next, of which
// at most 64 are taken.
Band band(const RotarySpec& spec, Index last) {
  Band b;
  const Turning t = turning(spec);
  const std::vector<double> at = distances(last);
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double width = i + 1 < at.size() ? at[i + 1] - at[i] : 1;
    const int count = static_cast<int>(std::min(width, 64.0));
    double sum = 0, least = INFINITY, largest = -INFINITY, bound = 0;
    for (int k = 0; k < count; ++k) {
      const auto z = mean_phase(t, at[i] + std::floor(width * k / count));
      sum += z.real();
      least = std::min(least, z.real()), largest = std::max(largest, z.real());
      bound = std::max(bound, std::abs(z));
    }
    for (const auto& [series, value] : {std::pair{&b.mean, sum / count}, std::pair{&b.least, least},
                                        std::pair{&b.largest, largest}, std::pair{&b.bound, bound}})
      series->x.push_back(at[i]), series->y.push_back(value);
  }
  return b;
}

}  // namespace

std::vector<Figure> plot_decay(const Drawn& d) {
  require_two_tokens(d.context, "decay");
  const Index last = d.context.value_or(4096);
  LineChart c;
  c.title = "Score of equal q and k by distance";
  c.subtitle = d.title;
  c.x = {d.spec.axes() > 1 ? "distance along every axis" : "distance", "positions", true};
  c.y = {"score relative to distance 0", "", false};
  c.rules.push_back({"", 0, false});
  for (const DrawnLayers& l : d.layers) {
    Band b = band(l.spec, last);
    b.mean.name = l.name;
    c.series.push_back(std::move(b.mean));
  }
  if (!d.layers.empty())
    return {Figure{std::move(c),
                   "What rotation alone makes of the score of two equal vectors, a "
                   "line for all layers that rotate alike: mean over neighbouring "
                   "distances."}};
  Band b = band(d.spec, last);
  const bool decays = std::any_of(d.spec.blocks.begin(), d.spec.blocks.end(),
                                  [](const RotaryBlock& x) { return !x.log2_decay.empty(); });
  b.mean.name = fmt::format("all channels equal: mean of {}cos(distance x frequency)",
                            decays ? "decay x " : "");
  b.least.name = "least among neighbouring distances", b.largest.name = "largest";
  b.bound.name =
      fmt::format("bound: |mean of {}exp(i distance x frequency)|", decays ? "decay x " : "");
  b.mean.color = 0, b.bound.color = 1, b.least.color = b.largest.color = 4;
  b.least.dashed = b.largest.dashed = b.bound.dashed = true;
  c.series = {std::move(b.mean), std::move(b.least), std::move(b.largest)};
  if (d.spec.head_dim > 0) c.series.push_back(std::move(b.bound));  // of rotations
  c.note = unturned(d.spec);
  if (!c.note.empty()) c.note += "; drawn is the score of the others";
  if (d.spec.head_dim == 0)
    return {Figure{std::move(c),
                   "What the phases alone make of the score of two vectors of equal lengths."}};
  return {
      Figure{std::move(c),
             "What rotation alone makes of the score of two equal vectors, of the channels that "
             "are rotated. A point stands for the distances up to the next. The bound is the "
             "largest score where k is q rotated by any one angle."}};
}

}  // namespace posenc::report
