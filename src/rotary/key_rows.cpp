// SPDX-License-Identifier: Apache-2.0
#include "rotary/key_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rotary/compat.h"

namespace posenc::inline v0::detail {

BlockTurns::BlockTurns(const Spectrum& s) {
  for (const Turns& t : exact_turns(s))
    hi.push_back(t.hi), lo.push_back(t.lo), per_unit.push_back(t.per_unit);
  view = {hi.data(), lo.data(), per_unit.data(), s.heads, s.axes, s.pairs(), s.gain};
}

KeyRotation::KeyRotation(const RotarySpec& rotary) : spec(rotary) {
  for (const RotaryBlock& b : spec.blocks) turns.emplace_back(b.spectrum);
}

double moved_by(const Positions& from, const Positions& to, Index token) noexcept {
  const Index i = token * from.token_stride, k = token * to.token_stride;
  if (from.type == DType::i64 && to.type == DType::i64)
    return static_cast<double>(
        static_cast<std::int64_t>(static_cast<const std::uint64_t*>(to.data)[k] -
                                  static_cast<const std::uint64_t*>(from.data)[i]));
  return real_element(to.data, to.type, k) - real_element(from.data, from.type, i);
}

// cos and sin, gain in, of one side alone; exact or its peer's.
void KeyRows::one_side(const KeyRotation& side, const Positions& positions, const Pairs& r,
                       double* cosine, double* sine) noexcept {
  const Spectrum& spectrum = side.spec.blocks[r.block].spectrum;
  if (side.spec.precision == Precision::exact) {
    std::memset(phase, 0, sizeof phase);
    add_phases(kernels, side.turns[r.block].view, positions, r.token * positions.token_stride,
               r.head, r.first, r.n, kNear64, phase);
    kernels.sincos(phase, r.n, spectrum.gain, cosine, sine);
    return;
  }
  double p[kMaxCompatAxes];
  for (Index a = 0; a < spectrum.axes; ++a) p[a] = real_position(positions, a, 0, r.token);
  float cf[kRowChunk], sf[kRowChunk];
  compat_phase(spectrum, side.spec.precision, r.head, p, r.first, r.first + r.n, cf, sf);
  std::copy_n(cf, r.n, cosine), std::copy_n(sf, r.n, sine);
}

// z' / z with z = g e^(i direction phi)
void KeyRows::by_division(const Pairs& r) noexcept {
  double old_c[kRowChunk + kRowPadding], old_s[kRowChunk + kRowPadding];
  one_side(from, old_positions, r, old_c, old_s);
  one_side(to, new_positions, r, c, s);
  const double d = from.spec.blocks[r.block].direction, e = to.spec.blocks[r.block].direction;
  for (Index i = 0; i < r.n; ++i) {
    const double norm = old_c[i] * old_c[i] + old_s[i] * old_s[i];
    const double x = c[i], y = e * s[i], u = old_c[i], v = d * old_s[i];
    c[i] = (x * u + y * v) / norm;
    s[i] = (y * u - x * v) / norm;
  }
}

void KeyRows::by_difference(const Pairs& r) noexcept {
  std::memset(phase, 0, sizeof phase);
  std::memset(old_phase, 0, sizeof old_phase);
  add_phases(kernels, to.turns[r.block].view, new_positions, r.token * new_positions.token_stride,
             r.head, r.first, r.n, kNear64, phase);
  add_phases(kernels, from.turns[r.block].view, old_positions, r.token * old_positions.token_stride,
             r.head, r.first, r.n, kNear64, old_phase);
  const RotaryBlock &before = from.spec.blocks[r.block], &after = to.spec.blocks[r.block];
  const bool back = after.direction < 0, old_back = before.direction < 0;
  for (Index i = 0; i < r.n; ++i)
    phase[i] = (back ? 0 - phase[i] : phase[i]) - (old_back ? 0 - old_phase[i] : old_phase[i]);
  kernels.sincos(phase, r.n, after.spectrum.gain / before.spectrum.gain, c, s);
}

template <class T>
void KeyRows::row(Index token, T* out) noexcept {
  const bool exact =
      from.spec.precision == Precision::exact && to.spec.precision == Precision::exact;
  for (std::size_t b = 0; b < to.spec.blocks.size(); ++b) {
    const RotaryBlock& block = to.spec.blocks[b];
    const Index heads = block.spectrum.heads, pairs = block.pairs();
    const bool decays = !block.log2_decay.empty();
    const double moved =
        decays ? moved_by(old_positions, new_positions, token) / block.decay_scale : 0;
    for (Index h = 0; h < heads; ++h)
      for (Index first = 0; first < pairs; first += kRowChunk) {
        const Pairs r{b, token, h, first, std::min(kRowChunk, pairs - first)};
        if (exact)
          by_difference(r);
        else
          by_division(r);
        T *cosine = out + h * pairs + first, *sine = out + (heads + h) * pairs + first;
        for (Index i = 0; i < r.n; ++i) {
          const double decay =
              decays ? std::exp2(-block.log2_decay[static_cast<std::size_t>(first + i)] * moved)
                     : 1;
          cosine[i] = static_cast<T>(c[i] * decay), sine[i] = static_cast<T>(s[i] * decay);
        }
      }
    out += 2 * heads * pairs;
  }
}

template void KeyRows::row(Index, float*) noexcept;
template void KeyRows::row(Index, double*) noexcept;

}  // namespace posenc::v0::detail
