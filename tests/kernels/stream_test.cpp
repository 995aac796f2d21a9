// SPDX-License-Identifier: Apache-2.0
// Outputs too large for the cache are written around it: the same bits as in place, wherever they
// lie, with guards.
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "core/access_pattern.h"
#include "posenc/core/isa.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/rope.h"

namespace posenc {
namespace {

using detail::AccessPattern;

constexpr AccessPattern kPatterns[] = {AccessPattern::sequential, AccessPattern::interleave_pages};
const char* text_of(AccessPattern pattern) {
  return pattern == AccessPattern::sequential ? "sequential" : "interleave pages";
}

constexpr Index kTokens = 1200, kQ = 28, kK = 5, kDim = 128;
constexpr Index kCount = kTokens * (kQ + kK) * kDim;  // 20 MB of float

struct Store {
  HeadsLayout layout;
  Index shift;  // bytes past a cache line
};

Heads place(void* data, DType t, Index heads_count, HeadsLayout layout) {
  const Index thd[] = {kTokens, heads_count, kDim}, htd[] = {heads_count, kTokens, kDim};
  return heads(tensor(data, t, layout == HeadsLayout::thd ? thd : htd), layout);
}

class StreamCalls : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override {
    reset_isa();
    detail::reset_access_pattern();
  }
};

TEST_P(StreamCalls, SameBitsAsInPlace) {
  std::vector<Index> p;
  for (Index t = 0; t < kTokens; ++t) p.push_back(3 * t - 100);
  const auto size = static_cast<std::size_t>(kCount) * 4;
  std::vector<std::uint8_t> in(size), want(size), out(size + 256);
  for (int n = 0; n < 4; ++n)
    for (const Store s :
         {Store{HeadsLayout::thd, 0}, Store{HeadsLayout::thd, 16}, Store{HeadsLayout::htd, 4}}) {
      const bool partial = n % 2 != 0;
      detail::force_access_pattern(kPatterns[n / 2]);
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
      EXPECT_EQ(std::memcmp(y, w, size), 0)
          << partial << " " << s.shift << text_of(kPatterns[n / 2]);
      for (std::size_t i = 0; i < out.size(); ++i)
        if (i < first || i >= first + size) {
          ASSERT_EQ(out[i], 0x5a) << i;
        }
    }
}

// 64 heads of 192 bytes in 4 runs beside 3 of their own; lines that are whole and lines that are
// not.
struct Large {
  DType dtype;
  Pairing pairing;
  Index q, k, dim, rotary_dim;
  HeadsLayout layout = HeadsLayout::thd;  // htd: heads far apart, 8 tokens at once
};
void PrintTo(const Large& x, std::ostream* out) {
  *out << dtype_name(x.dtype) << " " << enum_text(x.pairing) << " " << x.q << "+" << x.k << " of "
       << x.dim;
}
class LargeCalls : public ::testing::TestWithParam<std::tuple<Isa, Large>> {
 protected:
  void SetUp() override { force_isa(std::get<0>(GetParam())); }
  void TearDown() override {
    reset_isa();
    detail::reset_access_pattern();
  }
};

// Heads are visited in another order when a call is large: the same bits as token by token.
TEST_P(LargeCalls, SameBitsAsTokenByToken) {
  const Large& c = std::get<1>(GetParam());
  const Index size = size_of(c.dtype), row = (c.q + c.k) * c.dim;
  const Index tokens = (Index{17} << 20) / (row * size) + 3;
  const auto bytes = static_cast<std::size_t>(tokens * row * size);
  std::vector<std::uint8_t> in(bytes), want, out(bytes + 64, 0x5a);
  for (std::size_t i = 0; i < bytes; ++i)  // halves and floats between 2^-9 and 2, either sign
    in[i] = static_cast<std::uint8_t>(i % static_cast<std::size_t>(size) ==
                                              static_cast<std::size_t>(size) - 1
                                          ? 0x38 + i / 7 % 8 + (i / 3 % 2) * 0x80
                                          : i * 37 % 251);
  const RotarySpec spec =
      resolve(Rope{.head_dim = c.dim, .rotary_dim = c.rotary_dim, .pairing = c.pairing});
  std::vector<Index> p;
  for (Index t = 0; t < tokens; ++t) p.push_back(5 * t - 1000);
  const auto part = [&](std::uint8_t* data, Index heads_count, Index first, Index count) {
    if (heads_count == 0) return Heads{};
    const bool thd = c.layout == HeadsLayout::thd;
    const Index token = thd ? heads_count * c.dim : c.dim, head = thd ? c.dim : tokens * c.dim;
    const Index shape[] = {thd ? count : heads_count, thd ? heads_count : count, c.dim};
    const Index stride[] = {thd ? token : head, thd ? head : token, 1};
    return heads(tensor(static_cast<void*>(data + first * token * size), c.dtype, shape, stride),
                 c.layout);
  };
  const auto view = [&](std::uint8_t* data, Index first, Index count) {
    return QK{part(data, c.q, first, count),
              part(data + tokens * c.q * c.dim * size, c.k, first, count)};
  };
  want = in;
  const RotaryPlan single(spec, c.dtype);
  for (Index t = 0; t < tokens; ++t)
    single.apply(view(want.data(), t, 1),
                 positions(std::span<const Index>(&p[static_cast<std::size_t>(t)], 1)));
  const auto at = reinterpret_cast<std::uintptr_t>(out.data());
  std::uint8_t* y = out.data() + (64 - at % 64) % 64;  // on a line
  for (const AccessPattern pattern : kPatterns) {
    detail::force_access_pattern(pattern);
    const RotaryPlan plan(spec, c.dtype);
    const Positions all = positions(std::span<const Index>(p));
    std::memset(y, 0x5a, bytes);
    plan.apply(view(in.data(), 0, tokens), view(y, 0, tokens), all);
    EXPECT_EQ(std::memcmp(y, want.data(), bytes), 0) << "out of place, " << text_of(pattern);
    for (std::uint8_t* i = out.data(); i < out.data() + out.size(); ++i)
      if (i < y || i >= y + bytes) {
        ASSERT_EQ(*i, 0x5a) << i - y;
      }
    std::memcpy(y, in.data(), bytes);
    plan.apply(view(y, 0, tokens), all);
    EXPECT_EQ(std::memcmp(y, want.data(), bytes), 0) << "in place, " << text_of(pattern);
  }
}

constexpr Pairing kHalf = Pairing::half_split, kInter = Pairing::interleaved;
INSTANTIATE_TEST_SUITE_P(
    All, LargeCalls,
    ::testing::Combine(
        ::testing::ValuesIn(supported_isas()),
        ::testing::Values(
            Large{DType::f32, kHalf, 32, 8, 128, 128}, Large{DType::f32, kInter, 32, 8, 128, 128},
            Large{DType::f32, kHalf, 0, 40, 128, 128}, Large{DType::f32, kHalf, 71, 0, 64, 64},
            Large{DType::f32, kHalf, 7, 29, 96, 96}, Large{DType::f32, kInter, 33, 5, 80, 40},
            Large{DType::bf16, kHalf, 32, 8, 128, 128}, Large{DType::bf16, kInter, 64, 3, 96, 96},
            Large{DType::f16, kHalf, 32, 8, 128, 128}, Large{DType::f16, kInter, 21, 21, 72, 72},
            Large{DType::f64, kHalf, 9, 2, 128, 128},
            Large{DType::f32, kHalf, 32, 8, 128, 128, HeadsLayout::htd},
            Large{DType::f32, kInter, 7, 2, 80, 64, HeadsLayout::htd},
            Large{DType::f32, kHalf, 6, 0, 256, 256, HeadsLayout::htd},
            Large{DType::bf16, kInter, 5, 1, 128, 128, HeadsLayout::htd},
            Large{DType::f16, kHalf, 0, 3, 72, 72, HeadsLayout::htd},
            Large{DType::f64, kInter, 3, 3, 64, 64, HeadsLayout::htd})),
    [](const auto& x) {
      const Large& c = std::get<1>(x.param);
      return std::string(isa_name(std::get<0>(x.param))) + "_" + std::string(dtype_name(c.dtype)) +
             (c.pairing == kHalf ? "_half_" : "_interleaved_") +
             std::string(layout_name(c.layout)) + "_" + std::to_string(c.q) + "_" +
             std::to_string(c.k) + "_" + std::to_string(c.dim);
    });

// The named precisions do not stream: what does not turn is copied all the same.
TEST(Stream, NamedPrecisionsCopyTheRest) {
  Rope rope{.head_dim = kDim, .rotary_dim = 40, .pairing = Pairing::half_split};
  RotarySpec spec = resolve(rope);
  spec.precision = Precision::hf_float32;
  const RotaryPlan plan(spec, DType::f32);
  std::vector<float> in(static_cast<std::size_t>(kCount)), out(in.size(), -9.0f);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 509) / 256.0f - 1;
  std::vector<Index> p(static_cast<std::size_t>(kTokens), 7);
  const Index q = kTokens * kQ * kDim;
  const auto view = [&](std::vector<float>& v) {
    return QK{place(v.data(), DType::f32, kQ, HeadsLayout::thd),
              place(v.data() + q, DType::f32, kK, HeadsLayout::thd)};
  };
  plan.apply(view(in), view(out), positions(std::span<const Index>(p)));
  for (std::size_t i = 0; i < in.size(); i += kDim)
    ASSERT_EQ(std::memcmp(&in[i + 40], &out[i + 40], (kDim - 40) * sizeof(float)), 0) << i;
}

INSTANTIATE_TEST_SUITE_P(All, StreamCalls, ::testing::ValuesIn(supported_isas()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

}  // namespace
}  // namespace posenc
