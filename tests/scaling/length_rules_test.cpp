// SPDX-License-Identifier: Apache-2.0
// Scalings that go by a length: which one, and for which lengths the result holds.
#include "scaling/support.h"

namespace posenc {
namespace {

using namespace test;

TEST(LongRope, SmallExampleAndGains) {
  LongRope l;
  l.short_factor = {1, 1, 1, 1};
  l.long_factor = {1, 1.5, 3, 4};
  l.original_context = 16;
  l.factor = 64.0 / 16;
  l.switch_rule = LongRopeSwitch::per_call;
  const Spectrum plain = geometric_spectrum(10000, 8);
  const Spectrum beyond = l.rescale(plain, Context{17});
  expect_frequencies(beyond.frequency, {1, 0.0666666666666667, 0.00333333333333333, 0.00025},
                     1e-14);
  EXPECT_NEAR(beyond.gain, 1.224744871391589, 1e-15);
  EXPECT_EQ(beyond.valid_from, 17);
  EXPECT_EQ(beyond.valid_to, kUnbounded);
  const Spectrum within = l.rescale(plain, Context{16});
  EXPECT_EQ(within.frequency, plain.frequency);
  EXPECT_EQ(within.gain, beyond.gain);  // the same gain for short and long
  EXPECT_EQ(within.valid_from, 0);
  EXPECT_EQ(within.valid_to, 16);
  l.original_context = 4096;  // Phi-3 128k
  l.factor = 32;
  EXPECT_NEAR(l.gain(true), 1.1902380714238083, 1e-15);
  l.original_context = 8192;
  l.factor = 16;
  EXPECT_NEAR(l.gain(true), 1.1435437497937313, 1e-15);
  l.short_mscale = 1.1;
  l.long_mscale = 1.2;
  EXPECT_EQ(l.gain(false), 1.1);
  EXPECT_EQ(l.gain(true), 1.2);
  l.attention_factor = 1.25;
  EXPECT_EQ(l.gain(true), 1.25);
}

TEST(LongRope, SwitchRules) {
  LongRope l;
  l.short_factor = {1, 2};
  l.long_factor = {3, 4};
  l.original_context = 10;
  l.attention_factor = 1;
  const Spectrum plain = geometric_spectrum(10000, 4);
  const auto first = [&](Index length) { return l.rescale(plain, Context{length}).frequency[0]; };
  l.switch_rule = LongRopeSwitch::always_short;
  EXPECT_EQ(first(0), 1);
  l.switch_rule = LongRopeSwitch::always_long;
  EXPECT_EQ(first(0), 1.0 / 3);
  l.switch_rule = LongRopeSwitch::held;
  EXPECT_EQ(first(10), 1);
  EXPECT_EQ(first(11), 1.0 / 3);
  EXPECT_EQ(l.rescale(plain, Context{11}).valid_from, 0);  // for the life of the cache
  l.switch_rule = LongRopeSwitch::declared;
  l.declared_length = 11;
  EXPECT_EQ(first(0), 1.0 / 3);
  EXPECT_EQ(first(5), 1.0 / 3);
}

TEST(DynamicLongRope, GrowsFromNothingToTheWholeList) {
  DynamicLongRope d;
  d.long_factor = {1, 2, 4, 9};
  d.factor = 4;
  d.original_context = 100;
  d.length_rule = LengthRule::per_call;
  const Spectrum plain = geometric_spectrum(10000, 8);
  EXPECT_EQ(d.rescale(plain, Context{100}).frequency, plain.frequency);
  const Spectrum whole = d.rescale(plain, Context{400});
  expect_frequencies(whole.frequency, {1, 0.1 / 2, 0.01 / 4, 0.001 / 9}, 1e-14);
  const Spectrum third = d.rescale(plain, Context{200});
  expect_frequencies(third.frequency, {1, 0.1 / (1 + 1.0 / 3), 0.01 / 2, 0.001 / (1 + 8.0 / 3)},
                     1e-14);
  EXPECT_NEAR(third.gain, std::sqrt(1 + std::log(4) / std::log(100)), 1e-15);
  d.gain_of = LongRopeGainOf::current;
  EXPECT_NEAR(d.rescale(plain, Context{200}).gain, std::sqrt(1 + std::log(2) / std::log(100)),
              1e-15);
}

TEST(Dynamic, BasesByLength) {
  const Dynamic d = dynamic(2, 4096, LengthRule::per_call);
  const auto base = [&](Index n) { return d.rescale(llama2(), Context{n}).geometric->base; };
  EXPECT_EQ(base(4096), 10000);
  EXPECT_EQ(base(1), 10000);
  EXPECT_NEAR(base(4097), 10004.960337, 5e-7);
  EXPECT_NEAR(base(5000), 14497.95742, 5e-6);
  EXPECT_NEAR(base(8192), 30527.736749, 5e-7);
  EXPECT_NEAR(base(16384), 72195.860087, 5e-7);
  const Spectrum s = d.rescale(llama2(), Context{5000});
  EXPECT_EQ(s.valid_from, 5000);
  EXPECT_EQ(s.valid_to, 5000);
  EXPECT_EQ(d.rescale(llama2(), Context{7}).valid_to, 4096);
}

TEST(Dynamic, DeclaredMaximumIsVllmsTable) {
  // One table for s M: base (s^2 - s + 1)^(d/(d-2)).
  const Spectrum two = dynamic(2, 4096, LengthRule::declared, 8192).rescale(llama2(), {});
  EXPECT_NEAR(two.geometric->base, 30527.7367488, 1e-7);
  EXPECT_EQ(two.valid_to, kUnbounded);
  const Spectrum four = dynamic(4, 4096, LengthRule::declared, 16384).rescale(llama2(), {});
  EXPECT_NEAR(four.geometric->base, 135401.973, 5e-4);
  // 0.33 with nothing but `factor`: maximum and trained length are equal, nothing is scaled.
  EXPECT_EQ(dynamic(4, 4096, LengthRule::declared, 4096).rescale(llama2(), {}), llama2());
}

TEST(Dynamic, HeldKeepsTheLengthOfTheFirstCall) {
  const Spectrum s = dynamic(2, 4096, LengthRule::held).rescale(llama2(), Context{5000});
  EXPECT_NEAR(s.geometric->base, 14497.95742, 5e-6);
  EXPECT_EQ(s.valid_from, 0);
  EXPECT_EQ(s.valid_to, kUnbounded);
}

TEST(Dynamic, CachedKeysOfAnotherLengthArePhasesAway) {
  // A key at 4000 cached plain meets a query of length 4200 (reference of the peers' complaint).
  const Spectrum plain = llama2();
  const Spectrum grown = dynamic(2, 4096, LengthRule::per_call).rescale(plain, Context{4200});
  const auto away = [&](std::size_t i) {
    return std::abs(std::remainder(4000 * (plain.frequency[i] - grown.frequency[i]), 2 * kPi));
  };
  EXPECT_NEAR(away(16), 1.28, 5e-3);
  EXPECT_NEAR(away(32), 0.99, 5e-3);
  int far = 0;
  for (std::size_t i = 0; i < 64; ++i) far += away(i) > 0.5;
  EXPECT_EQ(far, 33);
}

TEST(Dynamic, TransformersModuleHoldsItsLength) {
  const Index lengths[] = {10, 64, 65, 100, 80, 64, 63, 70, 128, 5};
  const Index want[] = {64, 64, 65, 100, 100, 100, 64, 70, 128, 64};
  Index held = 64;
  for (std::size_t i = 0; i < 10; ++i) {
    held = hugging_face_held_length(held, lengths[i], 64);
    EXPECT_EQ(held, want[i]) << "call " << i;
  }
}

TEST(QwenDynamic, StepsAtDoublings) {
  const Index lengths[] = {8, 16, 17, 32, 33, 64, 65};
  const double alphas[] = {1, 1, 3, 3, 7, 7, 15};
  QwenDynamic d;
  d.trained_length = 16;
  d.length_rule = LengthRule::per_call;
  const Spectrum plain = geometric_spectrum(10000, 16);
  for (std::size_t i = 0; i < 7; ++i)
    EXPECT_EQ(d.rescale(plain, Context{lengths[i]}).frequency,
              ntk(alphas[i], NtkFormula::alpha).rescale(plain, {}).frequency);
  const Spectrum s = d.rescale(plain, Context{40});
  EXPECT_EQ(s.valid_from, 33);
  EXPECT_EQ(s.valid_to, 64);
  EXPECT_NO_THROW(d.rescale(plain, Context{kUnbounded}));
}

TEST(DynamicLinear, DividesByTheExcess) {
  DynamicLinear d;
  d.trained_length = 256;
  d.length_rule = LengthRule::per_call;
  const Spectrum plain = geometric_spectrum(10000, 32);
  EXPECT_EQ(d.rescale(plain, Context{256}).frequency, plain.frequency);
  expect_frequencies({d.rescale(plain, Context{300}).frequency[0]}, {256.0 / 300}, 1e-15);
}

TEST(DynamicYarn, FactorFollowsTheLength) {
  DynamicYarn d;
  d.scaling.original_context = 256;
  d.length_rule = LengthRule::per_call;
  const Spectrum plain = geometric_spectrum(10000, 64);
  EXPECT_EQ(d.rescale(plain, Context{256}).frequency, plain.frequency);
  const Spectrum s = d.rescale(plain, Context{700});
  EXPECT_NEAR(s.gain, 1.1005902890563841, 1e-15);
  EXPECT_EQ(s.frequency, yarn(700.0 / 256, 256).rescale(plain, {}).frequency);
  d.max_context = 512;
  d.finetuned = true;
  EXPECT_EQ(d.rescale(plain, Context{3}).frequency, yarn(2, 256).rescale(plain, {}).frequency);
  EXPECT_EQ(d.rescale(plain, Context{3}).valid_to, 512);
}

}  // namespace
}  // namespace posenc
