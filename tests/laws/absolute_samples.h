// SPDX-License-Identifier: Apache-2.0
// One or more instances of every absolute scheme of the registry, and positions that fit them. A
// new scheme without a sample does not compile: add overloads here.
#pragma once
#include "laws/samples.h"
#include "posenc/positions.h"

namespace posenc::test {

// Two rows of three tokens; integers, some repeated. Schemes that take real positions (or several
// axes) say so with an overload of their own.
template <class S>
OwnedPositions positions_for(const S&) {
  return explicit_positions(std::vector<Index>{0, 3, 1, 2, 2, 0}, 2);
}
inline OwnedPositions real_positions(std::int32_t axes) {
  std::vector<double> v;
  for (std::int32_t i = 0; i < 6 * axes; ++i) v.push_back(0.37 * i * i - 1.9 * i + 0.2);
  return explicit_positions(v, 2, axes);
}

inline std::vector<Sinusoidal> samples(Type<Sinusoidal>) {
  Sinusoidal s;
  s.width = 6;
  return variants(
      s, [](Sinusoidal& x) { x.gain = 1.5, x.learned_gain = true, x.input_gain = 2.45; },
      [](Sinusoidal& x) { x.layout = SineLayout::halves, x.spacing = SineSpacing::t2t; },
      [](Sinusoidal& x) { x.width = 7, x.odd = OddWidth::truncate, x.exponent_width = 8; },
      [](Sinusoidal& x) {
        x.width = 7, x.odd = OddWidth::zero_pad, x.layout = SineLayout::halves_cos_first;
      },
      [](Sinusoidal& x) { x.compose = Compose::one_plus, x.offset = 2; },
      [](Sinusoidal& x) { x.compose = Compose::multiply, x.learned_gain = true; },
      [](Sinusoidal& x) { x.compose = Compose::concat, x.learned_gain = true; });
}
inline OwnedPositions positions_for(const Sinusoidal&) {
  return real_positions(1);
}

inline std::vector<Learned> samples(Type<Learned>) {
  Learned s;
  s.width = 3;
  s.rows = 4;
  return variants(
      s, [](Learned& x) { x.gain = 0.5, x.input_gain = 2, x.zero_position = 2; },
      [](Learned& x) { x.rows = 2, x.beyond = Beyond::clamp; },
      [](Learned& x) { x.rows = 2, x.beyond = Beyond::zero; },
      [](Learned& x) { x.compose = Compose::one_plus; },
      [](Learned& x) { x.compose = Compose::concat, x.offset = -1, x.beyond = Beyond::zero; });
}

// Every sample of every absolute scheme. (Stands last: it finds the overloads above.)
template <class F>
void for_absolute_samples(F&& f) {
  for_each(AbsoluteSchemes{}, [&]<class T>() {
    for (const T& x : samples(Type<T>{})) f(x);
  });
}

}  // namespace posenc::test
