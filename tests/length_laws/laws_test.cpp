// SPDX-License-Identifier: Apache-2.0
// Laws of lengths against the numbers of their papers and of others who computed them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "posenc/laws.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;

constexpr double kPi = std::numbers::pi;

RotarySpec rope(Index head_dim, double base) {
  return resolve(Rope{.head_dim = head_dim, .base = base, .pairing = Pairing::half_split});
}

// Two significant digits, as tables print them.
double printed(double x) {
  const double unit = std::pow(10, std::floor(std::log10(x)) - 1);
  return std::round(x / unit) * unit;
}

template <class Call>
void expect_refused(Call&& call, const char* says) {
  try {
    call();
    FAIL() << "accepted; expected: " << says;
  } catch (const std::invalid_argument& e) {
    EXPECT_THAT(e.what(), HasSubstr(says));
  }
}

// arXiv:2310.05209: LLaMA-2 (128 channels, 4096 tokens) has critical dimension 92; fine-tuned on 16384 tokens its
// critical base is 71738; 2608, 1304 and 652 are the smaller bases of 4096 tokens, 10430 and 5215 the first of 16384.
TEST(CriticalDimension, NumbersOfThePaper) {
  EXPECT_EQ(critical_dimension(10000, 128, 4096), 92);
  EXPECT_EQ(std::lround(critical_base(10000, 4096, 16384)), 71738);
  const auto of_4k = smaller_bases(4096), of_16k = smaller_bases(16384);
  EXPECT_EQ(std::lround(of_4k[0]), 2608);
  EXPECT_EQ(std::lround(of_4k[1]), 1304);
  EXPECT_EQ(std::lround(of_4k[2]), 652);
  EXPECT_EQ(std::lround(of_16k[0]), 10430);
  EXPECT_EQ(std::lround(of_16k[1]), 5215);
}

// LongLLaDA (arXiv:2506.14429) multiplies LLaDA's base of 500000 by 4, 14 and 55 for 8k, 16k and 32k tokens; it was trained on
// 4096, which gives a critical dimension of 64.
TEST(CriticalDimension, FactorsOfLongLlada) {
  const Index dimension = critical_dimension(500000, 128, 4096);
  EXPECT_EQ(dimension, 64);
  EXPECT_EQ(std::ceil(least_base_of(8192, 128, dimension) / 500000), 4);
  EXPECT_EQ(std::ceil(least_base_of(16384, 128, dimension) / 500000), 14);
  EXPECT_EQ(std::ceil(least_base_of(32768, 128, dimension) / 500000), 55);
}

TEST(CriticalDimension, CountsPairsThatCompleteARotation) {
  for (const double base : {100.0, 10000.0, 500000.0})
    for (const Index trained : {64, 512, 4096, 131072}) {
      Index complete = 0;
      for (const PairTurns& t : turns_over(geometric_spectrum(base, 128), trained))
        complete += t.is_complete();
      EXPECT_EQ(critical_dimension(base, 128, static_cast<double>(trained)), 2 * complete)
          << base << " " << trained;
    }
}

TEST(CriticalDimension, LongestIsTheInverseOfTheLeastBase) {
  const double base = least_base_of(16384, 128, 92);
  EXPECT_NEAR(longest_of_base(base, 128, 92).value(), 16384, 1e-8);
  EXPECT_FALSE(longest_of_base(500, 128, 128).has_value());
  // A base below the critical one trains more pairs in fine-tuning, one above it none.
  EXPECT_GT(tuned_dimension(92, 20000, 128, 16384), 92);
  EXPECT_EQ(tuned_dimension(92, 1e6, 128, 16384), 92);
}

TEST(CriticalDimension, Refusals) {
  expect_refused([] { (void)critical_dimension(1, 128, 4096); }, "base must be above 1, got 1");
  expect_refused([] { (void)critical_dimension(1e4, 7, 4096); },
                 "width must be positive and even, got 7");
  expect_refused([] { (void)critical_dimension(1e4, 128, 6); }, "trained must be above 2 pi");
  expect_refused([] { (void)critical_base(1e4, 4096, std::nan("")); }, "tuned must be above 2 pi");
  expect_refused([] { (void)least_base_of(4096, 128, 130); },
                 "dimension must be 1 .. 128, got 130");
}

// kexue.fm/archives/10122 (Su, 2024) searched the bound for 128 channels by brute force. The paper's own table
// (arXiv:2405.14591, 4.3e3 1.6e4 2.7e4 8.4e4 3.1e5 6.4e5) is from samples of bases, so it is never below.
TEST(LeastBase, PublishedTables) {
  const struct {
    Index length;
    double searched, paper;
  } table[] = {{1024, 4.3e3, 4.3e3}, {2048, 1.2e4, 1.6e4},  {4096, 2.7e4, 2.7e4},
               {8192, 8.4e4, 8.4e4}, {16384, 2.3e5, 3.1e5}, {32768, 6.3e5, 6.4e5}};
  for (const auto& row : table) {
    const double base = least_base(128, row.length);
    EXPECT_DOUBLE_EQ(printed(base), row.searched) << row.length;
    EXPECT_LE(printed(base), row.paper * (1 + 1e-12)) << row.length;
    EXPECT_FALSE(first_negative(rope(128, base * (1 + 1e-9)), row.length - 1).has_value());
    EXPECT_TRUE(first_negative(rope(128, base * (1 - 1e-5)), row.length - 1).has_value());
  }
}

TEST(LeastBase, SumsAreThoseOfCosines) {
  const RotarySpec spec = rope(8, 100);
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += std::cos(17 * std::pow(100, -i / 4.0));
  EXPECT_NEAR(similarity(spec, 17), sum, 1e-14);
  const Index first = first_negative(spec, 1000).value();
  EXPECT_LT(similarity(spec, static_cast<double>(first)), 0);
  for (Index m = 0; m < first; ++m) EXPECT_GE(similarity(spec, static_cast<double>(m)), 0) << m;
}

// Half of the channels do not rotate: 1 + cos is never negative.
TEST(LeastBase, ChannelsThatDoNotRotateCount) {
  RotarySpec spec = resolve(
      Rope{.head_dim = 64, .rotary_dim = 32, .base = 10000, .pairing = Pairing::half_split});
  EXPECT_FALSE(first_negative(spec, Index{1} << 14).has_value());
  EXPECT_NEAR(similarity(spec, 0), 32, 1e-12);
  EXPECT_EQ(least_base(32, 4096, 16), 1);
}

TEST(LeastBase, Refusals) {
  expect_refused([] { (void)least_base(2, 4096); }, "width must be even and 4 .. 4096, got 2");
  expect_refused([] { (void)least_base(128, (Index{1} << 20) + 1); },
                 "length must be at most 1048576");
  expect_refused([] { (void)first_negative(rope(8, 100), 0); }, "most must be at least 1, got 0");
}

TEST(Turns, OfTheSlowestPairOfVaswani) {
  // Wavelengths from 2 pi to 2 pi 10000^(1 - 2/512) (arXiv:1706.03762, section 3.5).
  const auto turns = turns_over(resolve_spectrum(parse_encoding("sinusoidal width=512")), 5000);
  ASSERT_EQ(turns.size(), 256u);
  EXPECT_NEAR(5000 / turns.front().turns, 2 * kPi, 1e-12);
  EXPECT_NEAR(5000 / turns.back().turns, 60611.5, 0.05);  // docs/misconceptions.md
  Index incomplete = 0;
  for (const PairTurns& t : turns) incomplete += !t.is_complete();
  EXPECT_EQ(incomplete, 70);  // 27 % of 256, the same page
}

TEST(Turns, AxesOfATextTokenAreAdded) {
  Spectrum s;
  s.frequency = {0.5, 0, 0.25, 0.125};
  s.axes = 2;
  const auto turns = turns_over(s, 8);
  EXPECT_EQ(turns[0].frequency, 0.75);
  EXPECT_EQ(turns[1].frequency, 0.125);
  EXPECT_NEAR(turns[1].turns, 1 / (2 * kPi), 1e-15);
}

BiasByDistance slopes(std::vector<double> slope) {
  return [slope](std::span<const Index> distances) {
    std::vector<double> bias;
    for (const double m : slope)
      for (const Index d : distances) bias.push_back(-m * std::abs(static_cast<double>(d)));
    return bias;
  };
}

TEST(BiasReach, LinearBiasEndsAtTheLogarithm) {
  // ln 1000 = 6.9078; the slopes of 8 heads (arXiv:2108.12409) are 1/2 .. 1/256.
  const auto reach = bias_reach(slopes({0.5, 1.0 / 256, 1e-9}), 3, 0.001);
  EXPECT_EQ(reach[0].past, 14);
  EXPECT_EQ(reach[1].past, 1769);
  EXPECT_EQ(reach[2].past, 6907755279);
  EXPECT_EQ(reach[1].future, 1769);
  EXPECT_FALSE(bias_reach(slopes({0}), 1, 0.001)[0].past.has_value());
}

// KERPLE's logarithm: (1 + a n)^-p = share.
TEST(BiasReach, LogarithmicBias) {
  const BiasByDistance kerple = [](std::span<const Index> distances) {
    std::vector<double> bias;
    for (const Index d : distances)
      bias.push_back(-1.5 * std::log1p(0.25 * std::abs(static_cast<double>(d))));
    return bias;
  };
  EXPECT_EQ(bias_reach(kerple, 1, 0.001)[0].past, 396);  // (100 - 1) / 0.25
  EXPECT_EQ(bias_reach(kerple, 1, 1e-6)[0].past, 39996);
}

TEST(BiasReach, Refusals) {
  expect_refused([] { (void)bias_reach(slopes({1}), 1, 1); },
                 "share must be between 0 and 1, got 1");
  expect_refused([] { (void)bias_reach(slopes({1}), 2, 0.5); }, "bias must be [heads, distances]");
}

AttentionSpec sliding(Index left, Index right = 0) {
  return {.kind = AttentionKind::sliding,
          .left = left,
          .right = right,
          .chunk = {},
          .by_token_type = {}};
}

// Mistral 7B (arXiv:2310.06825): a window of 4096 in 32 layers spans "approximately 131K tokens".
TEST(ReceptiveFields, OfMistral) {
  const std::vector<AttentionSpec> layers(32, sliding(4095));
  EXPECT_EQ(receptive_field(layers).back, 131040);
  EXPECT_EQ(receptive_field(layers).ahead, 0);
}

// What a token sees through the layers, by marking tokens.
Index seen_back(const std::vector<AttentionSpec>& layers, Index tokens) {
  Index farthest = 0;
  for (Index query = 0; query < tokens; ++query) {
    std::vector<bool> seen(static_cast<std::size_t>(tokens));
    seen[static_cast<std::size_t>(query)] = true;
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      std::vector<bool> next = seen;
      for (Index i = 0; i < tokens; ++i)
        for (Index j = 0; j < tokens; ++j)
          if (seen[static_cast<std::size_t>(i)] && sees(*layer, {}, i, j))
            next[static_cast<std::size_t>(j)] = true;
      seen = next;
    }
    for (Index j = 0; j <= query; ++j)
      if (seen[static_cast<std::size_t>(j)]) {
        farthest = std::max(farthest, query - j);
        break;
      }
  }
  return farthest;
}

TEST(ReceptiveFields, AreWhatMasksReach) {
  AttentionSpec chunk{
      .kind = AttentionKind::chunked, .left = {}, .right = 0, .chunk = 4, .by_token_type = {}};
  for (const std::vector<AttentionSpec>& layers :
       {std::vector<AttentionSpec>{sliding(3), sliding(1), sliding(5)},
        {chunk, chunk, chunk},
        {chunk, sliding(2), chunk},
        {sliding(2), chunk, chunk}})
    EXPECT_EQ(receptive_field(layers).back, seen_back(layers, 40));
}

TEST(ReceptiveFields, UnboundedLayers) {
  std::vector<AttentionSpec> layers{sliding(3, 2), sliding(3, 2)};
  EXPECT_EQ(receptive_field(layers).ahead, 4);
  layers.emplace_back().kind = AttentionKind::linear;
  EXPECT_FALSE(receptive_field(layers).back.has_value());
  EXPECT_EQ(receptive_field(layers).ahead, 4);
}

TrainedRange range(const char* scheme, Index trained) {
  return trained_range(parse_encoding(scheme), trained);
}

TEST(TrainedRange, OfFrequencies) {
  const TrainedRange plain = range("rope head_dim=32 pairing=half_split", 128);
  EXPECT_EQ(plain.unseen, Unseen::angles);
  EXPECT_EQ(plain.longest, 128);
  EXPECT_THAT(plain.reason, HasSubstr("10 of 16 pairs complete no rotation in 128 tokens"));
  // Interpolation by 4 puts position 4 * 127 where 127 was.
  EXPECT_EQ(range("rope head_dim=32 pairing=half_split + linear factor=4", 128).longest, 509);
  // Yarn divides the pairs that complete no rotation by the whole factor.
  EXPECT_EQ(range("rope head_dim=32 pairing=half_split + yarn factor=4 original_context=128", 128)
                .longest,
            509);
  // NTK's base divides the slowest pair alone by the whole factor; the first incomplete one, pair 6 of 16, by
  // 4^(6/15), and 127 * 4^(6/15) = 221.1.
  EXPECT_EQ(range("rope head_dim=32 pairing=half_split + ntk formula=alpha factor=4", 128).longest,
            222);
  EXPECT_EQ(range("rope head_dim=32 base=10 pairing=half_split", 128).unseen, Unseen::none);
}

TEST(TrainedRange, OfTables) {
  EXPECT_EQ(range("learned width=8 rows=512", 128).longest, 128);
  EXPECT_EQ(range("learned width=8 rows=512", 512).longest, 512);
  EXPECT_EQ(range("learned width=8 rows=64", 128).longest, 64);
  // T5's decoder reads its last bucket from distance 113 on.
  EXPECT_EQ(range("t5 bidirectional=false", 113).longest, 113);
  EXPECT_FALSE(range("t5 bidirectional=false", 114).longest.has_value());
  EXPECT_EQ(range("t5 bidirectional=true", 92).unseen, Unseen::none);
  EXPECT_EQ(range("t5 bidirectional=true", 91).longest, 91);
  EXPECT_EQ(range("clipped clip=32", 32).longest, 32);
  EXPECT_EQ(range("clipped clip=32", 33).unseen, Unseen::none);
  EXPECT_EQ(range("shaw left=16", 16).longest, 16);
  EXPECT_EQ(range("shaw left=16", 17).unseen, Unseen::none);
}

// Frequencies 1, 0.1, 0.01, 0.001: over 64 distances the second makes 1.02 rotations, over 40 it makes 0.64, over 79,
// both sides of 40 tokens, 1.26.
TEST(TrainedRange, OfRelativeSinusoids) {
  const TrainedRange xl = range("transformer_xl d_model=8", 64);
  EXPECT_EQ(xl.unseen, Unseen::angles);
  EXPECT_EQ(xl.longest, 64);
  EXPECT_THAT(xl.reason, HasSubstr("2 of 4 pairs complete no rotation"));
  EXPECT_THAT(range("transformer_xl d_model=8", 40).reason, HasSubstr("3 of 4 pairs"));
  EXPECT_EQ(range("transformer_xl d_model=8 clamp_len=63", 64).unseen, Unseen::none);
  EXPECT_EQ(range("transformer_xl d_model=8 clamp_len=64", 64).longest, 64);
  for (const char* both : {"xlnet d_model=8", "conformer d_model=8", "tener spacing=paper"})
    EXPECT_THAT(trained_range(parse_encoding(both), 40, {}, 8).reason, HasSubstr("2 of 4 pairs"))
        << both;
  EXPECT_EQ(range("xlnet d_model=8 clamp_len=40", 64).unseen, Unseen::none);
  EXPECT_THAT(range("conformer d_model=8 even=true", 40).reason, HasSubstr("3 of 4 pairs"));
  EXPECT_EQ(range("transformer_xl d_model=8 base=1", 7).unseen, Unseen::none);
  // As in Tensor2Tensor: 1, 0.0464, 0.00215, 0.0001, and 139 distances of the second make 1.03 rotations.
  EXPECT_THAT(trained_range(parse_encoding("tener"), 70, {}, 8).reason, HasSubstr("2 of 4 pairs"));
  EXPECT_THAT(trained_range(parse_encoding("tener"), 67, {}, 8).reason, HasSubstr("3 of 4 pairs"));
}

TEST(TrainedRange, OfSumsOfGates) {
  EXPECT_EQ(range("cope positions=64", 63).unseen, Unseen::none);
  EXPECT_EQ(range("cope positions=64", 62).longest, 62);  // 63 open gates read row 63
}

TEST(TrainedRange, OfOtherTables) {
  EXPECT_EQ(range("transformer_xl_learned rows=32", 31).longest, 31);
  EXPECT_EQ(range("transformer_xl_learned rows=32", 32).unseen, Unseen::none);
  EXPECT_EQ(range("transformer_xl_learned rows=32 clamp_len=8", 8).unseen, Unseen::none);
  EXPECT_EQ(range("prophetnet d_model=8", 113).longest, 113);  // the buckets of T5's decoder
  EXPECT_EQ(range("prophetnet d_model=8", 114).unseen, Unseen::none);
  EXPECT_EQ(range("wavlm num_buckets=32 max_distance=128", 91).longest, 91);  // of T5's encoder
  EXPECT_EQ(range("cpmant num_buckets=32 max_distance=128", 92).unseen, Unseen::none);
  // Distances from max_distance on have no row: the first of them is new, if training had none.
  EXPECT_EQ(range("relative_projection width=8 max_distance=64", 64).longest, 64);
  EXPECT_EQ(range("relative_projection width=8 max_distance=64", 65).unseen, Unseen::none);
  EXPECT_EQ(range("conformer d_model=8 rows=63", 64).longest, 32);  // distances up to 31
  EXPECT_EQ(range("conformer d_model=8 rows=63", 16).longest, 16);
  EXPECT_EQ(range("tupe positions=512", 128).longest, 128);
  EXPECT_EQ(range("conformer_absolute_key d_model=8 rows=512", 128).longest, 128);
}

TEST(TrainedRange, OfLearnedFunctions) {
  for (const char* scheme : {"dynamic_position_bias width=8", "enformer",
                             "learnable_fourier width=8 features=8 hidden=8"}) {
    EXPECT_EQ(range(scheme, 64).unseen, Unseen::inputs) << scheme;
    EXPECT_EQ(range(scheme, 64).longest, 64) << scheme;
  }
}

TEST(TrainedRange, OfFixedFunctions) {
  for (const char* scheme : {"alibi", "kerple kernel=log", "sandwich", "fire", "nope"})
    EXPECT_EQ(range(scheme, 64).unseen, Unseen::none) << scheme;
  EXPECT_EQ(range("dape", 64).unseen, Unseen::none);
  expect_refused([] { (void)range("swin", 64); }, "no rule is known for what swin computes");
  expect_refused([] { (void)range("alibi", 0); }, "trained must be at least 1, got 0");
}

}  // namespace
}  // namespace posenc
