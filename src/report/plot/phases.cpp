// SPDX-License-Identifier: Apache-2.0
#include "phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "rotary.h"

namespace posenc::report {
namespace {

// One pair: how fast it turns along each axis of the positions, and its share in a row's length.
struct Pair {
  std::vector<double> frequency;
  double weight = 1;
};

std::vector<Pair> pairs_of(const LoweredInput& lowered) {
  const Index axes = position_axes(lowered);
  std::vector<Pair> all;
  for (const InputTerm& t : lowered.terms) {
    const Spectrum& s = *t.phase;
    for (Index i = 0; i < s.pairs(); ++i) {
      Pair p{std::vector<double>(static_cast<std::size_t>(axes), 0.0), t.gain * t.gain};
      for (Index a = 0; a < s.axes; ++a)
        p.frequency[static_cast<std::size_t>(s.axes == 1 ? t.axis : a)] =
            s.frequency[static_cast<std::size_t>(a * s.pairs() + i)];
      all.push_back(std::move(p));
    }
  }
  return all;
}

std::string axis_name(std::size_t axis, std::size_t axes) {
  return axes == 1 ? "" : fmt::format(" along axis {}", axis);
}

// Shortest and longest wavelength of all pairs that turn.
std::pair<double, double> span_of(const std::vector<Pair>& pairs) {
  double fast = 0, slow = INFINITY;
  for (const Pair& p : pairs)
    for (const double f : p.frequency)
      if (f != 0) fast = std::max(fast, std::abs(f)), slow = std::min(slow, std::abs(f));
  if (fast == 0) throw InputError("no pair has a frequency: every wavelength is infinite");
  return {2 * std::numbers::pi / fast, 2 * std::numbers::pi / slow};
}

// Whole distances up to a length that is given; without one, real ones over all wavelengths.
std::vector<double> distances(const std::vector<Pair>& pairs, std::optional<Index> context) {
  const auto [shortest, longest] = span_of(pairs);
  const double last = context ? static_cast<double>(std::max<Index>(*context, 2)) : longest;
  const double first = context ? 1 : shortest / 32;
  std::vector<double> all;
  for (int i = 0; i <= 400; ++i) {
    const double at = first * std::pow(last / first, i / 400.0);
    const double d = context ? std::round(at) : at;
    if (all.empty() || d > all.back()) all.push_back(d);
  }
  return all;
}

void require_whole_pairs(const LoweredInput& lowered) {
  for (const InputTerm& t : lowered.terms)
    if (t.layout == SineLayout::sines || t.layout == SineLayout::cosines ||
        t.width < 2 * t.phase->pairs())
      throw InputError(
          "a sine without its cosine: the inner product of two rows is no function of their "
          "distance; --kind rows and wavelengths draw it");
}

}  // namespace

std::optional<LoweredInput> phases_of(const Encoding& e, Context context) {
  return std::visit(
      [&](const auto& s) -> std::optional<LoweredInput> {
        if constexpr (AbsoluteScheme<std::decay_t<decltype(s)>>) {
          if (!s.parameters().empty()) return {};
          LoweredInput lowered;
          s.lower({}, lowered);
          for (const InputTerm& t : lowered.terms)
            if (t.phase == nullptr || !t.layers.empty()) return {};
          rescale(lowered, e, context);
          if (!lowered.terms.empty()) return lowered;
        }
        return {};
      },
      e.scheme);
}

Figure phase_wavelengths(const LoweredInput& lowered, const std::string& title,
                         std::optional<Index> context) {
  const std::vector<Pair> pairs = pairs_of(lowered);
  (void)span_of(pairs);
  const std::size_t axes = pairs[0].frequency.size();
  LineChart c;
  c.title = "Wavelength of every pair";
  c.subtitle = title;
  c.x = {"pair", "index", false, {}, {}, true};
  c.y = {"wavelength", "positions a period", true};
  for (std::size_t a = 0; a < axes; ++a) {
    Series s{"wavelength" + axis_name(a, axes), {}, {}, false, true};
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (pairs[i].frequency[a] == 0) continue;
      s.x.push_back(static_cast<double>(i));
      s.y.push_back(2 * std::numbers::pi / std::abs(pairs[i].frequency[a]));
    }
    if (!s.x.empty()) c.series.push_back(std::move(s));
  }
  if (context) c.rules.push_back(context_rule(*context, false));
  return {std::move(c), "A pair without a frequency along an axis has no wavelength there."};
}

Figure phase_inner_products(const LoweredInput& lowered, const std::string& title,
                            std::optional<Index> context) {
  require_whole_pairs(lowered);
  require_two_tokens(context, "decay");
  const std::vector<Pair> pairs = pairs_of(lowered);
  const std::size_t axes = pairs[0].frequency.size();
  double whole = 0;
  for (const Pair& p : pairs) whole += p.weight;
  LineChart c;
  c.title = "Inner product of two rows by distance";
  c.subtitle = title;
  c.x = {"distance", "positions", true};
  c.y = {"inner product relative to distance 0", ""};
  const std::vector<double> at = distances(pairs, context);
  for (std::size_t a = 0; a < axes; ++a) {
    // Axes with equal frequencies lie on each other: every second one has gaps.
    Series s{"sum of cos(distance x frequency)" + axis_name(a, axes), at, {}, a % 2 == 1};
    for (const double d : at) {
      double sum = 0;
      for (const Pair& p : pairs) sum += p.weight * std::cos(d * p.frequency[a]);
      s.y.push_back(sum / whole);
    }
    c.series.push_back(std::move(s));
  }
  c.rules.push_back({"", 0, false});
  return {std::move(c),
          "It depends on the distance alone and not on its sign. Pairs that follow another axis "
          "only keep their share."};
}

}  // namespace posenc::report
