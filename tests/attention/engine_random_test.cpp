// SPDX-License-Identifier: Apache-2.0
// Calls at random through the engine and the reference, with terms and with schemes of the
// registry. POSENC_RANDOM_CALLS=1000000 runs so many of each, POSENC_RANDOM_FIRST begins elsewhere;
// a failure prints the two that run it alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "attention/call/ready_call.h"
#include "attention/engine_compare.h"
#include "attention/random_call.h"
#include "attention/scheme_run.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

constexpr int kParts = 4;  // tests that run beside each other
constexpr double kTolerance = 2e-11;

double out_tolerance(DType t) {
  switch (t) {
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-10;
    case DType::f32:
      return 0x1p-23;
    default:
      return kTolerance;
  }
}

std::uint64_t of_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}
// fn(seed) for the part's share of so many seeds, until five were wrong: fn gives what is wrong.
template <class F>
void each_seed(int part, std::uint64_t calls, const F& fn) {
  const std::uint64_t first = of_environment("POSENC_RANDOM_FIRST", 0);
  const std::uint64_t count = of_environment("POSENC_RANDOM_CALLS", calls);
  int wrong = 0;
  for (std::uint64_t seed = first; seed < first + count && wrong < 5; ++seed) {
    if (seed % kParts != static_cast<std::uint64_t>(part)) continue;
    const std::string text = fn(seed);
    EXPECT_EQ(text, "") << "POSENC_RANDOM_FIRST=" << seed << " POSENC_RANDOM_CALLS=1";
    wrong += text.empty() ? 0 : 1;
  }
}

class AttentionEngineRandom : public ::testing::TestWithParam<int> {};

TEST_P(AttentionEngineRandom, TermsAreThoseOfTheReference) {
  each_seed(GetParam(), 20000, [](std::uint64_t seed) {
    const RandomCall call(seed);
    return differences(of_engine(call.args), of_reference(call.plain, call.args),
                       out_tolerance(call.args.q.dtype), kTolerance);
  });
}

// What a scheme has no call for.
constexpr const char* kNoCalls[] = {
    "[forgetting] queries must be among the keys",
    "[tupe] positions must be whole numbers",
    "[conformer_absolute_key] positions of keys must be i64",
    "[conformer_absolute_key] the position of a key must have a row",
    "[attention_plan] a scheme that reads keys or values needs them without pages",
};
bool has_no_call(const std::string& says) {
  return std::any_of(std::begin(kNoCalls), std::end(kNoCalls),
                     [&](const char* rule) { return says.find(rule) != says.npos; });
}

// What is wrong with a scheme's call; `ran` counts those that there are.
std::string of_scheme(std::uint64_t seed, std::size_t which, bool backward, int& ran,
                      Index queries = -1, Index keys = -1) {
  try {
    SchemeRun run(seed, which, queries, keys);
    const CallResult got = run.of_plan(backward);
    const std::string text =
        differences(got, run.of_reference(backward), out_tolerance(run.dtype()), kTolerance);
    ++ran;
    return text.empty() ? text : run.text() + ": " + text;
  } catch (const std::invalid_argument& e) {
    const std::string says = e.what();
    return has_no_call(says) ? std::string() : std::string(scheme_name(which)) + ": " + says;
  }
}

TEST_P(AttentionEngineRandom, SchemesAreThoseOfTheReference) {
  std::vector<int> ran(scheme_count());
  each_seed(GetParam(), 12000, [&](std::uint64_t seed) {
    const std::size_t which = static_cast<std::size_t>(seed / kParts) % scheme_count();
    return of_scheme(seed, which, seed / kParts % 5 < 2, ran[which]);
  });
  if (std::getenv("POSENC_RANDOM_CALLS") != nullptr) return;
  for (std::size_t which = 0; which < ran.size(); ++which)
    EXPECT_GE(ran[which], 10) << scheme_name(which);
}

// Every scheme at every length that a tile, a batch of rows or a loop may be wrong at.
TEST(AttentionEngineLengths, SchemesAreThoseOfTheReference) {
  constexpr Index kLengths[][2] = {{0, 3},   {3, 0},   {0, 0},   {1, 1},   {2, 1},  {1, 2},
                                   {63, 64}, {64, 65}, {65, 63}, {2, 300}, {300, 1}};
  for (std::size_t which = 0; which < scheme_count(); ++which)
    for (const auto& [queries, keys] : kLengths) {
      int ran = 0;
      for (std::uint64_t seed = 0; ran == 0 && seed < 20; ++seed)
        EXPECT_EQ(of_scheme(seed, which, true, ran, queries, keys), "");
      EXPECT_EQ(ran, 1) << scheme_name(which) << " " << queries << " " << keys;
    }
}

INSTANTIATE_TEST_SUITE_P(Part, AttentionEngineRandom, ::testing::Range(0, kParts));

// Rotation has kernels of its own for each set.
TEST(AttentionEngineBits, AnyInstructionSetGivesTheSame) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const RandomCall call(seed);
    if (detail::rotates_regions(call.args) || !call.args.prepare.empty()) continue;
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
