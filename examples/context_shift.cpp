// SPDX-License-Identifier: Apache-2.0
// A cache whose oldest tokens are dropped again and again, with YaRN x 4: the keys that stay move by -16 each time.
// Three ways: the query is rotated instead (nothing is rewritten), RerotationPlan, and the arithmetic of
// llama.cpp's K-shift, which multiplies YaRN's amplitude into the keys once more at each shift
// (build_rope_shift and rope_yarn; conformance/rotary_engines has its numbers).
#include <cmath>
#include <cstdio>
#include <vector>

#include "posenc/posenc.h"
#include "posenc/rotary/rerotation_plan.h"
#include "posenc/scaling/yarn.h"

using namespace posenc;

namespace {

constexpr Index kTokens = 64, kHeads = 4, kDim = 64, kShift = 16;

// Distance of keys from those that are right, over their length.
double error_of(const std::vector<float>& keys, const std::vector<float>& right) {
  double error2 = 0, length2 = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const double x = static_cast<double>(keys[i]), y = static_cast<double>(right[i]);
    error2 += (x - y) * (x - y), length2 += y * y;
  }
  return std::sqrt(error2 / length2);
}

Heads view(std::vector<float>& keys) {
  return heads(keys.data(), kTokens, kHeads, kDim);
}

}  // namespace

int main() {
  Yarn yarn;
  yarn.factor = 4, yarn.original_context = 4096;
  const RotarySpec spec = resolve(Rope{.head_dim = kDim, .pairing = Pairing::half_split}, yarn);
  const RotaryPlan plan(spec, DType::f32);
  const RerotationPlan move(spec, spec, DType::f32);
  std::vector<float> raw(kTokens * kHeads * kDim);
  for (std::size_t i = 0; i < raw.size(); ++i) raw[i] = std::sin(static_cast<float>(i) * 0.37f);
  const Index start = 1024;
  std::vector<float> moved = raw, shifted = raw;
  plan.apply(view(moved), arange(start, kTokens));
  plan.apply(view(shifted), arange(start, kTokens));

  std::printf("%-8s %-22s %-22s %s\n", "shifts", "query rotated instead", "RerotationPlan",
              "llama.cpp's arithmetic");
  bool right = true;
  for (Index n = 1; n <= 64; ++n) {
    const Index now = start - n * kShift;
    move.move(view(moved), arange(now + kShift, kTokens), arange(now, kTokens));
    // It rotates by the distance with all of the model's settings, so with the amplitude too.
    plan.apply(view(shifted), explicit_positions(std::vector<Index>(kTokens, -kShift)));
    if (n != 1 && n != 8 && n != 64) continue;
    std::vector<float> want = raw;
    plan.apply(view(want), arange(now, kTokens));
    const double ours = error_of(moved, want), theirs = error_of(shifted, want);
    std::printf("%-8d %-22s %-22.1e %.3g\n", static_cast<int>(n), "0", ours, theirs);
    right = right && ours < move.bound(n) && theirs > 0.13;
  }
  std::printf("errors of keys, of their length; the first is exact because nothing is rewritten\n");
  return right ? 0 : 1;
}
