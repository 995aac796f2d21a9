// SPDX-License-Identifier: Apache-2.0
// Dense biases in the fast engine, by whole rows and pair by pair: numbers that hide keys, hidden numbers that are none.
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "attention/float_call.h"
#include "kernels/attention/fast_bias.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A bias of [2, 2, queries, keys] and what belongs to it.
struct BiasCall {
  BiasCall(Index queries, Index keys, float scale, std::uint64_t seed)
      : call(2, queries, keys, 2, 2, 8, 8, seed) {
    for (const double x :
         test::Random(seed + 1).normals(static_cast<std::size_t>(4 * queries * keys)))
      bias.push_back(scale * static_cast<float>(x));
    call.args.mask.bias = tensor(bias.data(), {2, 2, queries, keys});
  }
  // Of all batch entries and heads.
  template <class F>
  void each(const F& fn) {
    for (std::size_t n = 0; n < bias.size(); ++n) {
      const auto at = static_cast<Index>(n);
      fn(at / call.Tk % call.Tq, at % call.Tk, bias[n]);
    }
  }
  void add_terms() {
    const Term linear[] = {LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})}};
    terms.assign(std::begin(linear), std::end(linear));
    call.args.terms = terms;
  }
  void widen() {
    wide.assign(bias.begin(), bias.end());
    call.args.mask.bias = tensor(wide.data(), {2, 2, call.Tq, call.Tk});
  }

  FloatCall call;
  std::vector<float> bias;
  std::vector<double> wide, slopes{-0.1, -1.0, -0.2, 0.1};
  std::vector<Term> terms;
};

// Blocks of keys that a row does not see by numbers such as those of transformers' masks, a row of which all keys are as
// far away, and keys that infinity hides.
TEST(FastBias, NumbersThatHideKeys) {
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index keys : {5, 64, 150})
      for (const bool terms : {false, true}) {
        BiasCall c(40, keys, terms ? 100 : 1, 3);
        c.each([&](Index i, Index j, float& x) {
          if (j > i + 1 || i == 7) x = kLowest;
          if (j % 3 == 1 && i != 9) x = -HUGE_VALF;
        });
        if (terms) c.add_terms();
        ASSERT_EQ(c.call.wrong(), "") << isa_name(isa) << " " << keys << terms;
        c.widen();  // pair by pair
        ASSERT_EQ(c.call.wrong(), "") << isa_name(isa) << " " << keys << terms;
      }
  }
  reset_isa();
}

// However large the score would be.
TEST(FastBias, InfinityHidesWhateverTheKeyHolds) {
  BiasCall c(40, 150, 1, 3);
  c.each([&](Index, Index j, float& x) {
    if (j == 20) x = -HUGE_VALF;
  });
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t n = 0; n < 16; ++n) {
      const std::size_t at = (b * 150 + 20) * 16 + n;
      c.call.narrow[1][at] = 0x1p50f, c.call.wide[1][at] = 0x1p50;
    }
  EXPECT_EQ(c.call.wrong_backward(), "");
}

// Keys below 2^-40 of others are left out; a row whose other keys lie hardly above is not computed without them.
TEST(FastBias, RowsFarBelowZero) {
  for (const float by : {-0x1p38f, -0x1p39f, -0x1.8p39f, -0x1p40f, -0x1p41f, kLowest}) {
    BiasCall c(20, 200, 1, 4);
    c.each([&](Index i, Index j, float& x) {
      if (i % 4 == 0) x = j < 100 ? by : 2 * by;
      if (i % 4 == 1) x = j < 100 ? by : 0;
      if (i % 4 == 2) x = j < 100 ? by : -HUGE_VALF;
    });
    ASSERT_EQ(c.call.wrong(), "") << by;
    const std::vector<double> sinks{0.5, -1.0};
    c.call.args.sink = tensor(sinks.data(), {2});
    ASSERT_EQ(c.call.wrong(), "") << by;
  }
}

// What hides keys by other means hides numbers that are none. Those that are seen are the exact engine's.
TEST(FastBias, HiddenNumbersMayBeNone) {
  const std::vector<std::uint8_t> shown = [] {
    std::vector<std::uint8_t> x(2 * 200);
    for (std::size_t n = 0; n < x.size(); ++n) x[n] = n < 200 ? n % 5 != 2 : n < 290;
    return x;
  }();
  for (const bool backward : {false, true}) {
    BiasCall c(200, 200, 1, 5);
    c.call.args.mask.causal = true, c.call.args.mask.window_left = 70;
    c.call.args.mask.sink_tokens = 3;
    c.call.args.mask.key_visible = tensor(shown.data(), {2, 200});
    c.each([&](Index i, Index j, float& x) {
      if (j > i || (j >= 3 && j < i - 70)) x = kNaN;
    });
    for (std::size_t n = 0; n < c.bias.size(); ++n) {
      const std::size_t batch = n / (2 * 200 * 200), key = n % 200;
      if (shown[batch * 200 + key] == 0) c.bias[n] = n % 3 == 0 ? HUGE_VALF : n % 3 == 1 ? kNaN : 2;
    }
    EXPECT_EQ(backward ? c.call.wrong_backward() : c.call.wrong(), "");
  }
  BiasCall c(20, 200, 1, 6);
  c.bias[3 * 200 + 150] = 0x1p41f;
  c.bias[4 * 200 + 60] = kNaN;
  const CallResult got = of_attend(c.call.args), want = forward_of_reference(c.call.plain());
  for (std::size_t n = 0; n < got.out.size(); ++n) {
    const std::size_t row = n / 16;  // of the first sequence; two heads of 8
    if (row == 4 && n % 16 < 8)
      ASSERT_TRUE(std::isnan(got.out[n])) << n;
    else
      ASSERT_NEAR(got.out[n], want.out[n], kFloatError) << n;
  }
}

TEST(FastBias, GradientsAndThreads) {
  for (const bool shared : {false, true}) {
    BiasCall c(70, 130, 1, 7);
    if (shared) {  // one head's bias for all, of one batch entry
      c.call.args.mask.bias = tensor(c.bias.data(), {1, 1, 70, 130});
    } else {
      c.each([&](Index i, Index j, float& x) {
        if (j > i + 60) x = kLowest;
      });
    }
    EXPECT_EQ(c.call.wrong_backward(), "");
    expect_same_bits(c.call.args);
    expect_same_gradient_bits(c.call.args);
    c.add_terms();
    EXPECT_EQ(c.call.wrong_backward(), "");
  }
}

// Against the definition, with nothing read behind the last key.
TEST(FastBias, Kernels) {
  test::Random random(8);
  for (const Isa isa : supported_isas()) {
    const detail::FastBiasKernels& k = detail::fast_bias_kernels(isa);
    for (Index count = 1; count < 70; ++count) {
      std::vector<float> bias, hidden, line, to(static_cast<std::size_t>(count), 5.0f);
      for (const double x : random.normals(static_cast<std::size_t>(count))) {
        bias.push_back(static_cast<float>(x) * 30), line.push_back(static_cast<float>(x * x));
        hidden.push_back(x > 1 ? -HUGE_VALF : 0);
      }
      for (std::size_t n = 0; n < bias.size(); n += 5) bias[n] = -HUGE_VALF;
      for (const bool hides : {false, true})
        for (const bool lines : {false, true}) {
          const detail::FastBiasRow row{bias.data(), hides ? hidden.data() : nullptr,
                                        lines ? line.data() : nullptr, count};
          float largest = 0, want = -HUGE_VALF;
          const auto shown = [&](std::size_t n) { return !hides || hidden[n] == 0; };
          for (std::size_t n = 0; n < bias.size(); ++n)
            if (shown(n)) want = std::max(want, bias[n]);
          ASSERT_TRUE(k.largest(row, 1e3f, largest));
          ASSERT_EQ(largest, want) << isa_name(isa) << count;
          ASSERT_EQ(k.largest(row, want - 1, largest), want == -HUGE_VALF);
          k.write(row, 2, -64, to.data());
          for (std::size_t n = 0; n < bias.size(); ++n) {
            const double x = std::max((static_cast<double>(bias[n]) - 2) / std::log(2.0), -64.0) +
                             (lines ? static_cast<double>(line[n]) : 0);
            if (shown(n) && bias[n] != -HUGE_VALF)
              ASSERT_NEAR(static_cast<double>(to[n]), x, 4e-5) << isa_name(isa) << count;
            else
              ASSERT_EQ(to[n], -HUGE_VALF);
          }
          const float last = std::exchange(bias.back(), kNaN);
          ASSERT_EQ(k.largest(row, 1e3f, want), !shown(bias.size() - 1));
          bias.back() = last;
        }
    }
  }
}

}  // namespace
}  // namespace posenc
