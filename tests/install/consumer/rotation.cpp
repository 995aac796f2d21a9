// SPDX-License-Identifier: Apache-2.0
// A program that rotates and does nothing else: it links posenc::core.
#include <posenc/posenc.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  posenc::Rope rope;
  rope.head_dim = 8;
  rope.base = 10000;
  rope.pairing = posenc::Pairing::half_split;
  const posenc::RotaryPlan plan(posenc::resolve(rope), posenc::DType::f32);
  std::vector<float> q{1, 0, 0, 0, 0, 0, 0, 0};
  const std::vector<posenc::Index> at{2};
  posenc::QK qk;
  qk.q = posenc::heads(q.data(), 1, 1, 8);
  plan.apply(qk, posenc::positions(at));
  const bool rotated =
      std::abs(q[0] - std::cos(2.0f)) < 1e-6f && std::abs(q[4] - std::sin(2.0f)) < 1e-6f;
  std::printf("posenc %s: %s\n", posenc::kVersion, rotated ? "rotated" : "wrong");
  return rotated ? 0 : 1;
}
