// SPDX-License-Identifier: Apache-2.0
// A rotation written out, which shares nothing with the library's.
#pragma once
#include <cmath>
#include <vector>

#include "posenc/rotary/spec.h"

namespace posenc::test {

// One head turned by the book: every block, every pair.
inline std::vector<double> turned(const RotarySpec& spec, std::vector<double> head,
                                  const std::vector<double>& position) {
  const std::vector<double> in = head;
  for (const RotaryBlock& b : spec.blocks) {
    const Spectrum& s = b.spectrum;
    const Index pairs = s.pairs();
    for (Index i = 0; i < pairs; ++i) {
      double angle = 0;
      for (Index a = 0; a < s.axes; ++a)
        angle += s.frequency[static_cast<std::size_t>(a * pairs + i)] *
                 position[static_cast<std::size_t>(s.axes == 1 ? 0 : a)];
      const auto member = [&](bool halves, Index k) {
        return static_cast<std::size_t>(b.offset + (halves ? i + k * pairs : 2 * i + k));
      };
      const bool halves = b.pairing == Pairing::half_split,
                 apart = halves || b.output_order == OutputOrder::even_then_odd;
      const double x = in[member(halves, 0)], y = in[member(halves, 1)];
      head[member(apart, 0)] = s.gain * (x * std::cos(angle) - y * std::sin(angle));
      head[member(apart, 1)] = s.gain * (x * std::sin(angle) + y * std::cos(angle));
    }
  }
  return head;
}

}  // namespace posenc::test
