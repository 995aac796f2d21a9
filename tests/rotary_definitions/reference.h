// SPDX-License-Identifier: Apache-2.0
// A rotation as RotarySpec's comments say it, in double, one vector at a time. Shares nothing with
// the kernels.
#pragma once
#include <cmath>
#include <vector>

#include "posenc/rotary/spec.h"

namespace posenc::test {

enum class Role { query, key };

// x of one token and head; position: one number a stream.
inline std::vector<double> reference_rotate(const RotarySpec& spec, std::vector<double> x,
                                            const std::vector<double>& position, Index head = 0,
                                            Role role = Role::query) {
  const std::vector<double> in = x;
  for (const RotaryBlock& b : spec.blocks) {
    const Spectrum& s = b.spectrum;
    const Index pairs = s.pairs();
    for (Index k = 0; k < pairs; ++k) {
      double phi = 0;
      for (Index a = 0; a < s.axes; ++a)
        phi += position.at(static_cast<std::size_t>(a)) *
               s.frequency[static_cast<std::size_t>(((head % s.heads) * s.axes + a) * pairs + k)];
      double amplitude = s.gain;
      if (!b.log2_decay.empty()) {
        const double power = b.log2_decay[static_cast<std::size_t>(k)] *
                             (position[0] - b.decay_center) / b.decay_scale;
        amplitude *= std::exp2(role == Role::query ? power : -power);
      }
      const bool half = b.pairing == Pairing::half_split;
      const auto at = [&](Index channel) { return static_cast<std::size_t>(b.offset + channel); };
      const double xa = in[at(half ? k : 2 * k)], xb = in[at(half ? k + pairs : 2 * k + 1)];
      const double c = amplitude * std::cos(phi);
      const double n = amplitude * std::sin(phi) * static_cast<double>(b.direction);
      const bool split = half || b.output_order == OutputOrder::even_then_odd;
      x[at(split ? k : 2 * k)] = c * xa - n * xb;
      x[at(split ? k + pairs : 2 * k + 1)] = n * xa + c * xb;
    }
  }
  return x;
}

}  // namespace posenc::test
