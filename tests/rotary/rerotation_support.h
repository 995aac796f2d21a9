// SPDX-License-Identifier: Apache-2.0
// Stored keys of every type, read and written one number at a time; and the rotation in long double.
#pragma once
#include <cmath>
#include <cstring>
#include <vector>

#include "core/convert.h"
#include "posenc/rotary/rerotation_plan.h"
#include "posenc/rotary/rope.h"

namespace posenc::test {

// ggml's reference quantizer of 32 numbers (quantize_row_q8_0_ref): scale max / 127, bytes of the scale before
// it is rounded to f16.
inline void put_q8(const double* x, std::byte* block) {
  double most = 0;
  for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(x[i]));
  const double scale = most / 127;
  const std::uint16_t bits = f16_from(scale);
  std::memcpy(block, &bits, 2);
  for (int i = 0; i < 32; ++i)
    block[2 + i] =
        static_cast<std::byte>(static_cast<std::int8_t>(scale > 0 ? std::lround(x[i] / scale) : 0));
}

// Dense [pages, slots, heads, dim].
struct StoredKeys {
  KeyType type;
  Index pages, slots, heads, dim;
  std::vector<std::byte> bytes;

  StoredKeys(KeyType t, Index p, Index s, Index h, Index d)
      : type(t),
        pages(p),
        slots(s),
        heads(h),
        dim(d),
        bytes(static_cast<std::size_t>(p * s * h * head_bytes())) {}
  Index head_bytes() const {
    return type == KeyType::q8_0 ? dim / 32 * 34 : dim * size_of(static_cast<DType>(type));
  }
  const std::byte* at(Index page, Index slot, Index head) const {
    return bytes.data() + ((page * slots + slot) * heads + head) * head_bytes();
  }
  void put(Index page, Index slot, Index head, const std::vector<double>& x) {
    auto* to = const_cast<std::byte*>(at(page, slot, head));
    for (Index i = 0; i < dim; ++i) {
      const double v = x[static_cast<std::size_t>(i)];
      const auto f = static_cast<float>(v);
      const std::uint16_t half = type == KeyType::f16 ? f16_from(v) : bf16_from(v);
      if (type == KeyType::f64) std::memcpy(to + 8 * i, &v, 8);
      if (type == KeyType::f32) std::memcpy(to + 4 * i, &f, 4);
      if (type == KeyType::f16 || type == KeyType::bf16) std::memcpy(to + 2 * i, &half, 2);
      if (type == KeyType::q8_0 && i % 32 == 0)
        put_q8(&x[static_cast<std::size_t>(i)], to + i / 32 * 34);
    }
  }
  std::vector<double> get(Index page, Index slot, Index head) const {
    const std::byte* from = at(page, slot, head);
    std::vector<double> x(static_cast<std::size_t>(dim));
    for (Index i = 0; i < dim; ++i) {
      double& v = x[static_cast<std::size_t>(i)];
      float f = 0;
      std::uint16_t half = 0;
      if (type == KeyType::f64) std::memcpy(&v, from + 8 * i, 8);
      if (type == KeyType::f32) std::memcpy(&f, from + 4 * i, 4), v = f;
      if (type == KeyType::f16 || type == KeyType::bf16) {
        std::memcpy(&half, from + 2 * i, 2);
        v = type == KeyType::f16 ? f32_from_f16(half) : f32_from_bf16(half);
      }
      if (type == KeyType::q8_0) {
        std::memcpy(&half, from + i / 32 * 34, 2);
        v = static_cast<double>(f32_from_f16(half)) *
            static_cast<std::int8_t>(from[i / 32 * 34 + 2 + i % 32]);
      }
    }
    return x;
  }
  Heads view() {
    const Index shape[] = {pages, slots, heads, type == KeyType::q8_0 ? head_bytes() : dim};
    if (type == KeyType::q8_0)
      return key_blocks(tensor(static_cast<void*>(bytes.data()), DType::u8, shape),
                        HeadsLayout::bthd);
    return posenc::heads(tensor(static_cast<void*>(bytes.data()), static_cast<DType>(type), shape),
                         HeadsLayout::bthd);
  }
};

// Members of pair i of a block in stored keys.
struct PairAt {
  std::size_t a, b;
};
inline PairAt pair_at(const RotaryBlock& b, Index i) {
  const bool half =
      b.pairing == Pairing::half_split || b.output_order == OutputOrder::even_then_odd;
  const Index first = b.offset + (half ? i : 2 * i);
  return {static_cast<std::size_t>(first),
          static_cast<std::size_t>(first + (half ? b.pairs() : 1))};
}

// R'(p') R(p)^-1 of one head's stored numbers: what a move should give. Long double angles are good for
// positions up to about a million.
inline std::vector<double> moved_key(const RotarySpec& from, const RotarySpec& to, Index head,
                                     const std::vector<double>& p, const std::vector<double>& q,
                                     std::vector<double> x) {
  for (std::size_t n = 0; n < to.blocks.size(); ++n) {
    const RotaryBlock &f = from.blocks[n], &t = to.blocks[n];
    for (Index i = 0; i < t.pairs(); ++i) {
      const auto angle = [&](const RotaryBlock& b, const std::vector<double>& at) {
        long double sum = 0;
        const Spectrum& s = b.spectrum;
        for (Index a = 0; a < s.axes; ++a)
          sum += static_cast<long double>(at[static_cast<std::size_t>(a)]) *
                 s.frequency[static_cast<std::size_t>(
                     ((s.heads > 1 ? head : 0) * s.axes + a) * s.pairs() + i)];
        return b.direction * sum;
      };
      const long double phi = angle(t, q) - angle(f, p);
      double g = t.spectrum.gain / f.spectrum.gain;
      if (!t.log2_decay.empty())
        g *= std::exp2(-t.log2_decay[static_cast<std::size_t>(i)] * (q[0] - p[0]) / t.decay_scale);
      const double c = g * static_cast<double>(std::cos(phi)),
                   s = g * static_cast<double>(std::sin(phi));
      const PairAt at = pair_at(t, i);
      const double u = x[at.a], v = x[at.b];
      x[at.a] = u * c - v * s, x[at.b] = u * s + v * c;
    }
  }
  return x;
}

// The largest error of a pair of a head by the rule of RerotationPlan::bound; a channel that does not
// rotate must be what it was, unless `rounded` (a cut block of q8_0).
inline double worst_pair(const RotarySpec& spec, KeyType type, const std::vector<double>& want,
                         const std::vector<double>& got) {
  double worst = 0, most = 0;
  for (const double x : want) most = std::max(most, std::fabs(x));
  for (const RotaryBlock& b : spec.blocks)
    for (Index i = 0; i < b.pairs(); ++i) {
      const PairAt at = pair_at(b, i);
      const double error = std::hypot(got[at.a] - want[at.a], got[at.b] - want[at.b]);
      const double length = type == KeyType::q8_0 ? most : std::hypot(want[at.a], want[at.b]);
      worst = std::max(worst, length > 0 ? error / length : error);
    }
  return worst;
}

}  // namespace posenc::test
