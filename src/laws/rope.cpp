// SPDX-License-Identifier: Apache-2.0
// Rotations over a length, and the scaling laws of arXiv:2310.05209.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "laws/checks.h"
#include "posenc/laws.h"

namespace posenc::inline v0 {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

void check_base(double base) {
  if (!(base > 1) || !std::isfinite(base)) refuse_field("law", "base", "must be above 1", base);
}
void check_width(Index width) {
  if (width < 2 || width % 2 != 0) refuse_field("law", "width", "must be positive and even", width);
}
void check_length(std::string_view field, double length) {
  if (!(length > kTurn) || !std::isfinite(length))
    refuse_field("law", field, "must be above 2 pi, the length of the fastest rotation", length);
}
void check_dimension(Index dimension, Index width) {
  if (dimension < 1 || dimension > width)
    refuse_field("law", "dimension", "must be 1 .. " + std::to_string(width), dimension);
}

}  // namespace

std::vector<PairTurns> turns_over(const Spectrum& s, Index length) {
  require_positive("length", length);
  check_spectrum(s);
  const Index pairs = s.pairs();
  std::vector<PairTurns> all;
  for (Index h = 0; h < s.heads; ++h)
    for (Index i = 0; i < pairs; ++i) {
      double w = 0;
      for (Index a = 0; a < s.axes; ++a)
        w += s.frequency[static_cast<std::size_t>((h * s.axes + a) * pairs + i)];
      all.push_back({h, i, w, static_cast<double>(length) * std::abs(w) / kTurn});
    }
  return all;
}

Index critical_dimension(double base, Index width, double trained) {
  check_base(base);
  check_width(width);
  check_length("trained", trained);
  const double pairs = static_cast<double>(width) / 2 * std::log(trained / kTurn) / std::log(base);
  return std::min(width, 2 * static_cast<Index>(std::ceil(std::min(pairs, 1e15))));
}

std::optional<double> longest_of_base(double base, Index width, Index dimension) {
  check_base(base);
  check_width(width);
  check_dimension(dimension, width);
  if (dimension == width) return std::nullopt;
  return kTurn * std::pow(base, static_cast<double>(dimension) / static_cast<double>(width));
}

double least_base_of(double length, Index width, Index dimension) {
  check_length("length", length);
  check_width(width);
  check_dimension(dimension, width);
  return std::pow(length / kTurn, static_cast<double>(width) / static_cast<double>(dimension));
}

double critical_base(double base, double trained, double tuned) {
  check_base(base);
  check_length("trained", trained);
  check_length("tuned", tuned);
  return std::pow(base, std::log(tuned / kTurn) / std::log(trained / kTurn));
}

Index tuned_dimension(Index dimension, double base, Index width, double tuned) {
  return std::max(dimension, critical_dimension(base, width, tuned));
}

std::array<double, 3> smaller_bases(double tuned) {
  check_length("tuned", tuned);
  return {2 * tuned / std::numbers::pi, tuned / std::numbers::pi, tuned / kTurn};
}

}  // namespace posenc::v0
