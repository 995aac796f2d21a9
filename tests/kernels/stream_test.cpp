// SPDX-License-Identifier: Apache-2.0
// Outputs too large for the cache are written around it: the same bits as in place, wherever they
// lie, with guards.
#include <gtest/gtest.h>

#include <cstring>

#include "posenc/core/isa.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/rope.h"

namespace posenc {
namespace {

constexpr Index kTokens = 1200, kQ = 28, kK = 5, kDim = 128;
constexpr Index kCount = kTokens * (kQ + kK) * kDim;  // 20 MB of float

struct Store {
  Layout layout;
  Index shift;  // bytes past a cache line
};

Heads place(void* data, DType t, Index heads_count, Layout layout) {
  const Index thd[] = {kTokens, heads_count, kDim}, htd[] = {heads_count, kTokens, kDim};
  return heads(tensor(data, t, layout == Layout::thd ? thd : htd), layout);
}

class Stream : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { reset_isa(); }
};

TEST_P(Stream, SameBitsAsInPlace) {
  std::vector<Index> p;
  for (Index t = 0; t < kTokens; ++t) p.push_back(3 * t - 100);
  const auto size = static_cast<std::size_t>(kCount) * 4;
  std::vector<std::uint8_t> in(size), want(size), out(size + 256);
  for (const bool partial : {false, true})
    for (const Store s : {Store{Layout::thd, 0}, Store{Layout::thd, 16}, Store{Layout::htd, 4}}) {
      auto* x = reinterpret_cast<float*>(in.data());
      for (Index i = 0; i < kCount; ++i) x[i] = static_cast<float>(i % 509) / 256.0f - 1;
      Rope rope{.head_dim = kDim,
                .rotary_dim = partial ? 40 : 0,
                .pairing = partial ? Pairing::interleaved : Pairing::half_split};
      const RotaryPlan plan(resolve(rope), DType::f32);
      want = in;
      auto* w = reinterpret_cast<float*>(want.data());
      const Index q = kTokens * kQ * kDim;
      plan.apply({place(w, DType::f32, kQ, s.layout), place(w + q, DType::f32, kK, s.layout)},
                 positions(std::span<const Index>(p)));
      std::memset(out.data(), 0x5a, out.size());
      const auto at = reinterpret_cast<std::uintptr_t>(out.data());
      const std::size_t first = 64 + (64 - at % 64) % 64 + static_cast<std::size_t>(s.shift);
      auto* y = reinterpret_cast<float*>(out.data() + first);
      plan.apply({place(x, DType::f32, kQ, s.layout), place(x + q, DType::f32, kK, s.layout)},
                 {place(y, DType::f32, kQ, s.layout), place(y + q, DType::f32, kK, s.layout)},
                 positions(std::span<const Index>(p)));
      EXPECT_EQ(std::memcmp(y, w, size), 0) << partial << " " << s.shift;
      for (std::size_t i = 0; i < out.size(); ++i)
        if (i < first || i >= first + size) {
          ASSERT_EQ(out[i], 0x5a) << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Stream, ::testing::ValuesIn(supported_isas()),
                         [](const auto& isa) { return std::string(name(isa.param)); });

}  // namespace
}  // namespace posenc
