// SPDX-License-Identifier: Apache-2.0
// Keys and values in other types than the queries: a cache in 16 bits that a model in f32 reads.
#include <gtest/gtest.h>

#include "attention/float_call.h"
#include "core/convert.h"

namespace posenc {
namespace {

// Keys as bf16, values as f16; `wide` has what the 16 bits say.
struct NarrowCacheCall : FloatCall {
  using FloatCall::FloatCall;
  void narrow_keys() {
    for (std::size_t n = 1; n < 3; ++n)
      for (std::size_t i = 0; i < wide[n].size(); ++i) {
        const auto x = static_cast<float>(wide[n][i]);
        half[n].push_back(n == 1 ? bf16_from(x) : f16_from(x));
        wide[n][i] = n == 1 ? f32_from_bf16(half[n][i]) : f32_from_f16(half[n][i]);
      }
    const auto of = [&](std::size_t n, DType t, Index dim) {
      return heads(tensor(static_cast<const void*>(half[n].data()), t, {B, Tk, G, dim}),
                   HeadsLayout::bthd);
    };
    args.k = of(1, DType::bf16, D), args.v = of(2, DType::f16, V);
  }
  std::vector<std::uint16_t> half[3];
};

TEST(MixedTypes, ManyQueriesAndTheirGradients) {
  NarrowCacheCall call(2, 70, 300, 4, 2, 40, 24, 1);
  call.narrow_keys();
  call.args.mask.causal = true;
  EXPECT_EQ(call.wrong(), "");
  EXPECT_EQ(call.wrong_backward(), "");
}

TEST(MixedTypes, FewQueriesReadTheCacheAsItLies) {
  for (const Index queries : {1, 3}) {
    NarrowCacheCall call(2, queries, 1000, 8, 2, 64, 64, 2);
    call.narrow_keys();
    EXPECT_EQ(call.wrong(), "");
  }
}

TEST(MixedTypes, TheExactEngineTakesDoubleBesideSixteenBits) {
  NarrowCacheCall call(1, 9, 40, 2, 1, 8, 8, 3);
  call.narrow_keys();
  call.args.q = call.plain().q;
  EXPECT_FALSE(is_fast(call.args));
  EXPECT_EQ(differences(of_attend(call.args), forward_of_reference(call.plain()), 1e-12, 1e-12),
            "");
}

}  // namespace
}  // namespace posenc
