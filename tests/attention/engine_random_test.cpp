// SPDX-License-Identifier: Apache-2.0
// Calls at random through the engine and the reference.
#include <gtest/gtest.h>

#include "attention/engine_compare.h"
#include "attention/random_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

double out_tolerance(DType t) {
  switch (t) {
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-10;
    case DType::f32:
      return 0x1p-23;
    default:
      return 2e-11;
  }
}

TEST(AttentionEngineRandom, IsTheReference) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 4000 && wrong < 5; ++seed) {
    const RandomCall call(seed);
    const std::string text = differences(of_engine(call.args), of_reference(call.plain),
                                         out_tolerance(call.args.q.dtype), 2e-11);
    EXPECT_EQ(text, "") << "seed " << seed;
    wrong += text.empty() ? 0 : 1;
  }
}

// Rotation has kernels of its own for each set.
TEST(AttentionEngineRandom, AnyInstructionSetGivesTheSameBits) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const RandomCall call(seed);
    if (!call.args.prepare.empty()) continue;
    const CallResult want = of_engine(call.args);
    for (const Isa isa : supported_isas()) {
      force_isa(isa);
      const CallResult got = of_engine(call.args);
      EXPECT_EQ(difference(got.out, want.out), 0) << isa_name(isa) << " seed " << seed;
      for (std::size_t n = 0; n < got.gradients.size(); ++n)
        EXPECT_EQ(difference(got.gradients[n], want.gradients[n]), 0) << got.names[n];
    }
    reset_isa();
  }
}

}  // namespace
}  // namespace posenc
