// SPDX-License-Identifier: Apache-2.0
// Calls of 16,384 tokens with one term: what the fast engine allocates beside inputs, outputs, tables and gradients.
#pragma once
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "posenc/attention/attend.h"
#include "posenc/attention/explain_plan.h"
#include "posenc/positions/sequence.h"

namespace posenc::test {

// 8 heads of 64, f32, two threads: 16 MiB forward, 64 MiB backward.
inline void expect_memory_of_tokens_only(const Term& term, TermGradient& d_term) {
  constexpr Index n = 16384, H = 8, D = 64;
  const std::vector<float> x(static_cast<std::size_t>(n * H * D));
  std::vector<float> to = x;
  AttentionArgs a;
  a.q = a.k = a.v = heads(tensor(x.data(), {1, n, H, D}), HeadsLayout::bthd);
  const OwnedPositions at = arange(0, n);
  a.query_positions = a.key_positions = at;
  a.scale = 0.125;
  a.terms = {&term, 1};
  AttentionGradients g;
  g.q = g.k = g.v = heads(tensor(to.data(), {1, n, H, D}), HeadsLayout::bthd);
  g.terms = {&d_term, 1};
  const Executor two{nullptr, 2, [](void*, Index count, void (*task)(void*, Index), void* arg) {
                       for (Index i = 0; i < count; ++i) task(arg, i);
                     }};
  EXPECT_EQ(explain_plan(a).backward_engine, "fast");
  EXPECT_LE(workspace_bytes(a, two), std::size_t{16} << 20);
  EXPECT_LE(workspace_bytes(a, g, two), std::size_t{64} << 20);
}

}  // namespace posenc::test
