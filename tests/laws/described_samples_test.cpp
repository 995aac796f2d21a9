// SPDX-License-Identifier: Apache-2.0
// A new definition meets the laws without a line of test: its samples are made of its fields.
#include "laws/described_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "laws/absolute_samples.h"

namespace posenc::test {
namespace {

enum class Half : std::uint8_t { lower, upper, none };

// A scaling that no overload knows: it needs a factor below 1 and refuses one of its choices.
struct Unlisted {
  static constexpr Card card{"unlisted", "for this test", "-", "-"};
  double factor = 0;
  Half half = Half::lower;
  bool again = false;

  Spectrum rescale(Spectrum s, Context) const {
    if (half == Half::none || factor <= 0)
      refuse_field("unlisted", "half", "must be lower or upper");
    for (double& f : s.frequency) f *= factor;
    return s;
  }
  bool operator==(const Unlisted&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v);
};

}  // namespace
}  // namespace posenc::test

template <>
struct posenc::EnumNames<posenc::test::Half> {
  static constexpr std::array<std::string_view, 3> value{"lower", "upper", "none"};
};

namespace posenc::test {
namespace {

template <class S, class V>
constexpr void Unlisted::describe(S& s, V&& v) {
  v("factor", s.factor, Field{.doc = "", .min = 0.25, .max = 0.5, .required = true});
  v("half", s.half, Field{.doc = ""});
  v("again", s.again, Field{.doc = ""});
}

TEST(DescribedSamples, RangesAreKeptAndChoicesTakenInTurn) {
  const std::vector<Unlisted> all = samples(Type<Unlisted>{});
  ASSERT_EQ(all.size(), 3u);  // as required; the other half; again
  for (const Unlisted& x : all) EXPECT_EQ(x.factor, 0.5);
  EXPECT_EQ(all[1].half, Half::upper);
  EXPECT_TRUE(all[2].again);
}

TEST(DescribedSamples, OfEveryFamily) {
  EXPECT_EQ(described_samples<Linear>().size(), 1u);
  EXPECT_GT(described_samples<Rope>().size(), 1u);
  EXPECT_GT(described_samples<Sinusoidal>().size(), 5u);
  EXPECT_GT(described_samples<Learned>().size(), 3u);
}

// Two fields that must fit each other.
struct Fitting {
  static constexpr Card card{"fitting", "for this test", "-", "-"};
  Index a = 0, b = 0;

  Spectrum rescale(Spectrum s, Context) const {
    if (a == b) refuse_field("fitting", "b", "must not be a", b);
    return s;
  }
  bool operator==(const Fitting&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("a", s.a, Field{.doc = "", .required = true});
    v("b", s.b, Field{.doc = "", .required = true});
  }
};

TEST(DescribedSamples, WhatIsRefusedSaysWhatToAdd) {
  try {
    samples(Type<Fitting>{});
    FAIL();
  } catch (const std::logic_error& e) {
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("fitting"),
                                         testing::HasSubstr("b must not be a, got 16"),
                                         testing::HasSubstr("tests/laws/samples.h")));
  }
}

}  // namespace
}  // namespace posenc::test
