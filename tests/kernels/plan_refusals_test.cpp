// SPDX-License-Identifier: Apache-2.0
// A refusal names the thing, what it must be and what it is: both numbers.
#include <gtest/gtest.h>

#include <vector>

#include "posenc/posenc.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;

struct Call {
  RotaryPlan plan{resolve(Rope{.head_dim = 8, .pairing = Pairing::half_split}), DType::f32};
  std::vector<float> q = std::vector<float>(16 * 2 * 8), k = q, rows = q;
  std::string with(Index q_tokens, Index k_tokens, Index count) {
    return refusal([&] {
      const OwnedPositions p = arange(0, count);
      plan.apply({heads(q.data(), q_tokens, 2, 8), heads(k.data(), k_tokens, 2, 8)}, p);
    });
  }
};

TEST(PlanRefusals, SayWhatIsWantedAndWhatIsThere) {
  Call c;
  EXPECT_EQ(c.with(16, 16, 16), "accepted");
  EXPECT_EQ(c.with(16, 8, 16), "[rotary] k must have the tokens of q, 16, got 8");
  EXPECT_EQ(c.with(16, 16, 15), "[rotary] positions must be one for each of the 16 tokens, got 15");
  EXPECT_EQ(refusal([&] {
              c.plan.rows(arange(0, 4), tensor(c.rows.data(), {4, 4}));
            }),
            "[rotary] rows must be [4, 8], got [4, 4] of f32");
  EXPECT_EQ(
      refusal([&] {
        RotaryPlan(resolve(Rope{.head_dim = 64, .rotary_dim = 128, .pairing = Pairing::half_split}),
                   DType::f32);
      }),
      "[rotary] a block must lie inside the 64 channels of a head, got 128 from channel 0 on");
}

}  // namespace
}  // namespace posenc
