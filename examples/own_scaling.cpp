// SPDX-License-Identifier: Apache-2.0
// Your own scaling, without touching the library: a function from spectrum to spectrum.
#include <cmath>
#include <cstdio>
#include <vector>

#include "posenc/posenc.h"

// Stretches pairs that would not complete a turn within the trained length; leaves the others
// alone.
struct StretchSlowPairs {
  static constexpr posenc::Card card{"stretch_slow", "stretch the slow pairs", "this example", "-"};
  double factor = 1, trained = 8192;

  posenc::Spectrum rescale(posenc::Spectrum s, posenc::Context) const {
    if (!(factor >= 1))
      posenc::refuse_field("stretch_slow", "factor", "must be at least 1", factor);
    for (double& f : s.frequency)
      if (2 * M_PI / f > trained) f /= factor;
    s.geometric.reset();  // base^(-2i/d) is no longer true
    s.ggml.reset();       // and ggml has no words for it
    return s;
  }
  bool operator==(const StretchSlowPairs&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("factor", s.factor, posenc::Field{.doc = "how much slower", .min = 1});
    v("trained", s.trained, posenc::Field{.doc = "trained length", .unit = "tokens", .min = 1});
  }
};
static_assert(posenc::ScalingPolicy<StretchSlowPairs>);

int main() {
  using namespace posenc;
  const Rope rope{.head_dim = 64, .base = 10000, .pairing = Pairing::half_split};
  const std::vector<StretchSlowPairs> chain{{.factor = 4, .trained = 2048}};
  const RotarySpec before = resolve(rope), after = resolve(rope, chain);
  for (Index i = 0; i < 32; i += 8)
    std::printf("pair %2d: one turn in %10.1f positions, before %10.1f\n", static_cast<int>(i),
                2 * M_PI / after.blocks[0].spectrum.frequency[i],
                2 * M_PI / before.blocks[0].spectrum.frequency[i]);
}
