// SPDX-License-Identifier: Apache-2.0
// Specs of tables, their rows against MPFR, and what they turn against the plan.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "phase/reference.h"
#include "posenc/io/array.h"
#include "posenc/rotary/rope.h"
#include "posenc/rotary/table.h"
#include "support/random.h"

namespace posenc::test {

inline RotarySpec plain(Index dim = 16, double base = 1e4, Pairing pairing = Pairing::half_split) {
  Rope r;
  r.head_dim = dim, r.base = base, r.pairing = pairing;
  return resolve(r);
}
inline RotarySpec scaled(double factor, double gain, Index dim = 16) {
  RotarySpec s = plain(dim);
  for (double& f : s.blocks[0].spectrum.frequency) f /= factor;
  s.blocks[0].spectrum.gain = gain;
  return s;
}
// Two streams: the even pairs follow the first, the odd ones the second.
inline RotarySpec two_axes() {
  RotarySpec s = plain();
  Spectrum& p = s.blocks[0].spectrum;
  const std::vector<double> f = p.frequency;
  p.axes = 2;
  p.frequency.assign(2 * f.size(), 0);
  for (std::size_t i = 0; i < f.size(); ++i) p.frequency[i % 2 * f.size() + i] = f[i];
  return s;
}

// Blocks of 8 and 4 channels, one behind the other.
inline RotarySpec two_blocks() {
  RotarySpec s = plain(8);
  RotaryBlock second = plain(4, 100).blocks[0];
  second.offset = 8;
  s.head_dim = 16;
  s.blocks.push_back(second);
  return s;
}

inline std::vector<double> values(const RotaryTable::Snapshot& s) {
  return make_array(s.cos_sin).doubles();
}

inline void expect_rows(const RotaryTable& table, const RotarySpec& spec, double allowed) {
  const auto s = table.snapshot();
  const auto v = values(s);
  const Spectrum& p = spec.blocks[0].spectrum;
  const Index n = p.pairs();
  ASSERT_EQ(s.cos_sin.shape[1], 2 * n);
  Angle angle;
  for (Index t = 0; t < s.size; t += t < 40 || t > s.size - 20 ? 1 : 97)
    for (Index i = 0; i < n; ++i) {
      double f = 0;
      for (Index a = 0; a < p.axes; ++a) f += p.frequency[static_cast<std::size_t>(a * n + i)];
      angle.clear();
      angle.add(std::int64_t{t}, f);
      angle.done();
      const auto at = static_cast<std::size_t>(t * 2 * n + i);
      ASSERT_LE(angle.cos_error(v[at], p.gain), allowed) << t << " " << i;
      ASSERT_LE(angle.sin_error(v[at + static_cast<std::size_t>(n)], p.gain), allowed) << t;
    }
}

struct Tensors {
  std::vector<float> q, k;
  QK qk;
};
inline Tensors tensors(Index tokens, Index dim = 16) {
  Tensors t;
  Random random(3);
  t.q = random.normals<float>(static_cast<std::size_t>(tokens * 3 * dim));
  t.k = random.normals<float>(static_cast<std::size_t>(tokens * 2 * dim));
  t.qk.q = heads(t.q.data(), tokens, 3, dim), t.qk.k = heads(t.k.data(), tokens, 2, dim);
  return t;
}
// By the table and by the plan's own phase, both of the same start.
inline double worst_difference(const RotarySpec& spec, const RotaryTable& table, const Positions& p,
                               RotateMode sense = RotateMode::forward) {
  const RotaryPlan plan(spec, DType::f32);
  Tensors a = tensors(p.count), b = tensors(p.count);
  apply(plan, a.qk, a.qk, table, p, sense);
  plan.apply(b.qk, p, sense);
  double e = 0;
  for (std::size_t i = 0; i < a.q.size(); ++i)
    e = std::max(e, std::fabs(static_cast<double>(a.q[i]) - b.q[i]));
  for (std::size_t i = 0; i < a.k.size(); ++i)
    e = std::max(e, std::fabs(static_cast<double>(a.k[i]) - b.k[i]));
  return e;
}

}  // namespace posenc::test
