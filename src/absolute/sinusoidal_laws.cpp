// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/sinusoidal_laws.h"

#include <cmath>
#include <numbers>

#include "absolute/rows.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

void require_whole_pairs(const Sinusoidal& s, const char* who) {
  s.parameters();  // refuses fields that cannot be
  if (s.width % 2 != 0 && s.odd != OddWidth::zero_pad)
    refuse(who, "every sine needs its cosine: width must be even, or odd=zero_pad", s.width);
}

// Cosine and sine of every frequency times x.
struct Turn {
  std::vector<double> cosine, sine;
};
Turn turn(const Spectrum& s, double x) {
  const Index n = s.pairs();
  Turn t{std::vector<double>(static_cast<std::size_t>(n)),
         std::vector<double>(static_cast<std::size_t>(n))};
  if (n > 0)
    phase_rows(s, positions(std::span<const double>(&x, 1)), tensor(t.cosine.data(), {1, n}),
               tensor(t.sine.data(), {1, n}));
  return t;
}

}  // namespace

std::vector<double> shift_matrix(const Sinusoidal& s, double k) {
  require_whole_pairs(s, "shift_matrix");
  const Turn t = turn(s.spectrum(), k);
  const Index n = s.pairs();
  std::vector<Index> sine(static_cast<std::size_t>(n)), cosine(static_cast<std::size_t>(n));
  for (Index c = 0; c < s.width; ++c) {
    const SineChannel at = sine_channel(s.layout, n, s.width, c);
    if (at.pair >= 0) (at.cosine ? cosine : sine)[static_cast<std::size_t>(at.pair)] = c;
  }
  std::vector<double> m(static_cast<std::size_t>(s.width * s.width), 0.0);
  const auto put = [&](Index row, Index column, double x) {
    m[static_cast<std::size_t>(row * s.width + column)] = x;
  };
  for (std::size_t i = 0; i < sine.size(); ++i) {
    put(sine[i], sine[i], t.cosine[i]);
    put(sine[i], cosine[i], t.sine[i]);
    put(cosine[i], cosine[i], t.cosine[i]);
    put(cosine[i], sine[i], -t.sine[i]);
  }
  return m;
}

double inner_product(const Sinusoidal& s, double distance) {
  require_whole_pairs(s, "inner_product");
  double sum = 0;
  for (const double c : turn(s.spectrum(), distance).cosine) sum += c;
  return sum;
}

double inner_product_law(const Sinusoidal& s, double distance) {
  require_whole_pairs(s, "inner_product_law");
  if (s.spacing != SineSpacing::paper || s.base == 1)
    refuse("inner_product_law", "needs paper spacing and a base other than 1, base", s.base);
  const double x = std::fabs(distance * s.scale * s.min_timescale);
  if (!(x > 0) || !std::isfinite(x))
    refuse_field("inner_product_law", "distance", "must be finite and not 0", distance);
  return static_cast<double>(s.pairs()) *
         (1 - (std::log(x) + std::numbers::egamma) / std::log(s.base));
}

}  // namespace posenc::v0
