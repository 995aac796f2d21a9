// SPDX-License-Identifier: Apache-2.0
// A stranger's program: turns one query and reads a scheme by its text.
#include <posenc/posenc.h>
#include <posenc/posenc_c.h>
#include <posenc/registry.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const posenc::Encoding scheme =
      posenc::parse_encoding("rope head_dim=8 base=10000 pairing=half_split");
  const posenc::RotaryPlan plan(posenc::resolve(scheme), posenc::DType::f32);
  std::vector<float> q{1, 0, 0, 0, 0, 0, 0, 0};
  const std::vector<posenc::Index> at{2};
  plan.apply(posenc::heads(q.data(), 1, 1, 8), posenc::positions(at));
  const bool turned =
      std::abs(q[0] - std::cos(2.0f)) < 1e-6f && std::abs(q[4] - std::sin(2.0f)) < 1e-6f;
  std::printf("posenc %s: %s\n", posenc_version(), turned ? "turned" : "wrong");
  return turned ? 0 : 1;
}
