// SPDX-License-Identifier: Apache-2.0
// Numbers that papers, model cards and other programs print.
#include "scaling/support.h"

namespace posenc {
namespace {

using namespace test;

constexpr double kDigits12 = 1e-12;  // the source prints twelve digits

TEST(Linear, DividesEveryFrequency) {
  const Spectrum s = Linear{4}.rescale(geometric_spectrum(10000, 8), {});
  expect_frequencies(s.frequency, {0.25, 0.025, 0.0025, 0.00025}, 1e-15);
  EXPECT_FALSE(s.geometric);
  EXPECT_EQ(s.ggml->freq_scale, 0.25);
  EXPECT_EQ(s.gain, 1);
}

TEST(RaisedBase, IsTheLawOfTheNewBase) {
  EXPECT_EQ(RaisedBase{1e6}.rescale(llama2(), {}), geometric_spectrum(1e6, 128));
}

TEST(Ntk, AlphaRaisesTheBase) {
  const Spectrum s = ntk(4, NtkFormula::alpha).rescale(geometric_spectrum(10000, 8), {});
  EXPECT_NEAR(s.geometric->base, 63496.04207872797, 1e-9);
  expect_frequencies(s.frequency, {1, 0.0629960524947437, 0.0039685026299205, 0.00025}, 1e-13);
  const auto base = [](double alpha) {
    return ntk(alpha, NtkFormula::alpha).rescale(llama2(), {}).geometric->base;
  };
  EXPECT_NEAR(base(2), 20221.261689737912, 1e-9);
  EXPECT_NEAR(base(4), 40889.94243248622, 1e-9);
  EXPECT_NEAR(base(8), 82684.62264056221, 1e-9);
  EXPECT_NEAR(base(1000), 11158839.92507748, 1e-6);  // HunYuan
}

TEST(Ntk, FixedSlowsEveryPair) {
  const Spectrum s = ntk(4, NtkFormula::fixed).rescale(geometric_spectrum(10000, 8), {});
  expect_frequencies(s.frequency, {0.7071067811865, 0.05, 0.00353553390593, 0.00025}, kDigits12);
  EXPECT_FALSE(s.geometric);
}

TEST(Ntk, MixedByPower) {
  Ntk n = ntk(4, NtkFormula::mixed);
  n.mixed_b = 0.625;
  const Spectrum s = n.rescale(geometric_spectrum(10000, 8), {});
  expect_frequencies(s.frequency, {0.558296564952, 0.0407016855275, 0.0031406337156, 0.00025},
                     kDigits12);
}

TEST(Ntk, ThetaScaleKeepsTheLastTurnWithinTheNewLength) {
  // The pair that turned once within L turns once within s L.
  Ntk n = ntk(8, NtkFormula::theta_scale);
  n.original_context = 4096;
  const Spectrum s = n.rescale(llama2(), {});
  const double before = std::log(4096 / (2 * kPi)) / std::log(10000.0);
  const double after = std::log(8 * 4096 / (2 * kPi)) / std::log(s.geometric->base);
  EXPECT_NEAR(before, after, 1e-14);
}

TEST(NtkByParts, TwoRamps) {
  const std::vector<double> r =
      ratios(parts(4, 2048, PartsForm::two_ramps).rescale(llama2(), {}), llama2());
  EXPECT_EQ(r[0], 1);
  EXPECT_NEAR(r[16], 1, 1e-15);
  EXPECT_NEAR(r[24], 0.89743, 5e-6);
  EXPECT_NEAR(r[32], 0.6209, 5e-5);
  EXPECT_NEAR(r[40], 0.34882, 5e-6);
  for (std::size_t i = 44; i < 64; ++i) EXPECT_NEAR(r[i], 0.25, 1e-15);
}

TEST(NtkByParts, IsYarnWithoutItsGain) {
  const Spectrum y = yarn(16, 4096).rescale(llama2(), {});
  const Spectrum p = parts(16, 4096, PartsForm::one_ramp).rescale(llama2(), {});
  EXPECT_EQ(p.frequency, y.frequency);
  EXPECT_EQ(p.gain, 1);
  EXPECT_GT(y.gain, 1);
}

struct YarnRange {
  Index width;
  double base;
  Index original;
  double low, high, used_low, used_high;
};

TEST(Yarn, CorrectionRangesOfModels) {
  const YarnRange rows[] = {
      {128, 1e4, 4096, 20.944482, 45.026881, 20, 46},
      {128, 1e6, 32768, 23.595948, 39.650881, 23, 40},
      {64, 1e4, 4096, 10.472241, 22.513441, 10, 23},
      {64, 150000, 4096, 8.092779, 17.398025, 8, 18},
      {8, 1e4, 256, 0.104910, 1.610060, 0, 2},
  };
  for (const YarnRange& row : rows) {
    const Geometric law{row.base, row.width};
    const double length = static_cast<double>(row.original);
    EXPECT_NEAR(correction_pair(law, length, 32), row.low, 1e-6);
    EXPECT_NEAR(correction_pair(law, length, 1), row.high, 1e-6);
    const CorrectionRange used = correction_range(law, length, 32, 1, true);
    EXPECT_EQ(used.low, row.used_low);
    EXPECT_EQ(used.high, row.used_high);
    EXPECT_NEAR(correction_range(law, length, 32, 1, false).low, row.low, 1e-6);
  }
}

// The range ends at d - 1 though there are only d / 2 pairs, as every code has it: beyond the last
// pair the ramp just never reaches 1. 64 ln(10^6 / 2 pi) / ln 10^4 = 83.229..; for 10^9 131.2.
TEST(Yarn, TheRangeIsClampedByTheWidthNotThePairs) {
  const Geometric law{1e4, 128};
  EXPECT_EQ(correction_range(law, 1e6, 32, 1, true).high, 84);
  EXPECT_EQ(correction_range(law, 1e9, 32, 1, true).high, 127);
  EXPECT_EQ(correction_range(law, 1, 32, 1, true).low, 0);
}

TEST(Yarn, SmallExample) {
  const Spectrum s = yarn(4, 256).rescale(geometric_spectrum(10000, 8), {});
  expect_frequencies(s.frequency, {1, 0.0625, 0.0025, 0.00025}, 1e-15);
  EXPECT_NEAR(s.gain, 1.138629436111989, 1e-15);
  EXPECT_EQ(s.logit_factor, 1);
}

TEST(Yarn, AmplitudesOfModels) {
  EXPECT_NEAR(yarn(16, 4096).gain(), 1.2772588722239782, 1e-15);
  EXPECT_NEAR(yarn(4, 32768).gain(), 1.138629436111989, 1e-15);
  EXPECT_NEAR(yarn(32, 4096).gain(), 1.3465735902799727, 1e-15);
  EXPECT_EQ(yarn(0.5, 4096).gain(), 1);
}

TEST(Yarn, AttentionFactorReplacesAndAttnFactorMultiplies) {
  Yarn y = yarn(8, 512);
  y.attention_factor = 1.4;
  EXPECT_EQ(y.gain(), 1.4);
  Yarn z = yarn(8, 2048);
  z.attn_factor = 0.9;
  EXPECT_NEAR(z.gain(), 1.0871497387511853, 1e-15);
}

TEST(Yarn, DeepSeekAmplitudeAndLogit) {
  Yarn v3 = yarn(40, 4096);
  v3.mscale = 1.0;
  v3.mscale_all_dim = 1.0;
  v3.logit_from_mscale = true;
  const Spectrum s = v3.rescale(geometric_spectrum(10000, 64), {});
  EXPECT_EQ(s.gain, 1);
  EXPECT_NEAR(s.logit_factor, 1.8738542070926265, 1e-15);
  v3.mscale = v3.mscale_all_dim = 0.707;  // V2-Lite
  EXPECT_EQ(v3.gain(), 1);
  EXPECT_NEAR(v3.logit(), 1.5896261651208736, 1e-15);
  Yarn ratio = yarn(8, 512);
  ratio.mscale = 1.0;
  ratio.mscale_all_dim = 0.5;
  EXPECT_NEAR(ratio.gain(), 1.094179988101349, 1e-15);
  ratio.mscale = 0;
  ratio.mscale_all_dim = 0;
  EXPECT_EQ(ratio.gain(), 1);  // vLLM's DeepSeek class: g(s, 0) = 1
  ratio.mscale.reset();        // one of the two alone does not count
  EXPECT_NEAR(ratio.gain(), 1 + 0.1 * std::log(8), 1e-15);
}

TEST(Yarn, NamedVariants) {
  Yarn telechat = yarn(8, 4096);
  telechat.mscale_slope = 0.07;
  EXPECT_NEAR(telechat.gain(), 1 + 0.07 * std::log(8), 1e-15);
  Yarn mistral = yarn(8, 4096);
  mistral.apply_scale = false;
  EXPECT_EQ(mistral.gain(), 1);
  Yarn grok = yarn(8, 4096);
  grok.blend = YarnBlend::geometric;
  grok.apply_scale = false;
  const Spectrum plain = llama2();
  const Spectrum mean = yarn(8, 4096).rescale(plain, {}), log = grok.rescale(plain, {});
  for (std::size_t i = 0; i < 64; ++i) {
    // weight e of the arithmetic blend, from its own result
    const double e = (mean.frequency[i] / plain.frequency[i] - 0.125) / 0.875;
    EXPECT_NEAR(std::log(log.frequency[i] / plain.frequency[i]), -(1 - e) * std::log(8), 1e-13);
    EXPECT_LE(log.frequency[i], mean.frequency[i] * (1 + 1e-15));
  }
}

TEST(Yarn, PaperRampDiffersInTheMiddle) {
  Yarn paper = yarn(16, 4096);
  paper.ramp = Ramp::rotations;
  const double p = paper.rescale(llama2(), {}).frequency[38];
  const double c = yarn(16, 4096).rescale(llama2(), {}).frequency[38];
  EXPECT_NEAR(p, 0.000487, 5e-7);
  EXPECT_NEAR(c, 0.001480, 5e-7);
  EXPECT_NEAR(p / c, 0.329, 5e-4);
  Yarn qwen = yarn(4, 32768);
  const Spectrum plain = geometric_spectrum(1e6, 128);
  const double index = qwen.rescale(plain, {}).frequency[32];
  qwen.ramp = Ramp::rotations;
  EXPECT_NEAR(qwen.rescale(plain, {}).frequency[32] / index, 0.584, 5e-4);
}

TEST(Yarn, GptOssUnroundedAgainstGgmlsRounding) {
  Yarn y = yarn(32, 4096);
  y.truncate = false;
  const Spectrum plain = geometric_spectrum(150000, 64);
  const Spectrum hf = y.rescale(plain, {});
  y.truncate = true;
  const Spectrum ggml = y.rescale(plain, {});
  EXPECT_NEAR(hf.frequency[16] / ggml.frequency[16], 0.786, 5e-4);
  EXPECT_NEAR(hf.frequency[17] / ggml.frequency[17], 0.567, 5e-4);
  EXPECT_FALSE(hf.ggml);  // ggml cannot say it
  EXPECT_EQ(hf.ggml_dropped.why, "yarn truncate=false (ggml always rounds the range)");
  ASSERT_TRUE(ggml.ggml);
  EXPECT_NEAR(ggml.ggml->attn_factor, 1, 1e-15);
}

TEST(Yarn, RangeBelowPairZeroScalesNothingInTransformersAndNearlyAllInGgml) {
  Yarn y = yarn(4, 2);
  const Spectrum plain = geometric_spectrum(10000, 64);
  EXPECT_LT(correction_range(*plain.geometric, 2, 32, 1, true).high, 0);
  EXPECT_EQ(y.rescale(plain, {}).frequency, plain.frequency);
  y.reversed_range = ReversedRange::step;
  const Spectrum step = y.rescale(plain, {});
  EXPECT_EQ(step.frequency[0], 1);
  EXPECT_EQ(step.frequency[1], plain.frequency[1] / 4);
}

TEST(Yarn, TellsGgmlItsArguments) {
  Yarn v3 = yarn(40, 4096);
  v3.mscale = v3.mscale_all_dim = 1.0;
  const Spectrum s = v3.rescale(geometric_spectrum(10000, 64), {});
  ASSERT_TRUE(s.ggml);
  EXPECT_NEAR(s.ggml->attn_factor, 0.730519984014812, 1e-15);
  EXPECT_EQ(s.ggml->freq_scale, 1.0 / 40);
  EXPECT_EQ(s.ggml->ext_factor, 1);
  EXPECT_EQ(s.ggml->original_context, 4096);
  // Linear behind YaRN would be mixed in again.
  EXPECT_FALSE(Linear{2}.rescale(s, {}).ggml);
  EXPECT_EQ(Linear{2}.rescale(s, {}).ggml_dropped.why, "linear after YaRN");
}

TEST(Llama3, RatiosOfPublishedModels) {
  const Llama3 l31{8, 1, 4, 8192};
  const Spectrum plain = geometric_spectrum(500000, 128);
  const Spectrum s = l31.rescale(plain, {});
  const std::vector<double> r = ratios(s, plain);
  const double middle[] = {0.828168411837, 0.643743133128, 0.493507122732,
                           0.371122279518, 0.271425477073, 0.190210743641};
  for (std::size_t i = 0; i <= 28; ++i) EXPECT_EQ(r[i], 1);
  for (std::size_t i = 29; i <= 34; ++i) EXPECT_NEAR(r[i], middle[i - 29], 1e-12);
  for (std::size_t i = 35; i < 64; ++i) EXPECT_EQ(r[i], 0.125);
  const Spectrum plain32 = geometric_spectrum(500000, 64);
  const std::vector<double> q = ratios(Llama3{32, 1, 4, 8192}.rescale(plain32, {}), plain32);
  EXPECT_EQ(q[14], 1);
  EXPECT_NEAR(q[15], 0.605572754534, 1e-12);
  EXPECT_NEAR(q[16], 0.303742523752, 1e-12);
  EXPECT_NEAR(q[17], 0.103447609031, 1e-12);
  EXPECT_EQ(q[18], 1.0 / 32);
  ASSERT_TRUE(s.ggml);
  EXPECT_EQ(s.ggml->factors.front(), 1);
  EXPECT_EQ(s.ggml->factors.back(), 8);
}

TEST(Llama3, SmallExampleAndPureStep) {
  const Spectrum s = Llama3{8, 1, 4, 128}.rescale(geometric_spectrum(10000, 8), {});
  expect_frequencies(s.frequency, {1, 0.042751178754307596, 0.00125, 0.000125}, 1e-15);
  // Published Llama-4-Scout: high = low = 1.
  const Spectrum plain = geometric_spectrum(500000, 128);
  for (const double r : ratios(Llama3{16, 1, 1, 8192}.rescale(plain, {}), plain))
    EXPECT_TRUE(r == 1 || r == 1.0 / 16) << r;
}

TEST(Proportional, ExponentsOverTheWholeHead) {
  const Spectrum s = Proportional{0.5}.rescale(geometric_spectrum(10000, 8), {});
  expect_frequencies(s.frequency, {1, 0.1, 0, 0}, 1e-15);
  const Spectrum gemma = Proportional{0.25}.rescale(geometric_spectrum(1e6, 512), {});
  EXPECT_NE(gemma.frequency[63], 0);
  EXPECT_EQ(gemma.frequency[64], 0);
  ASSERT_TRUE(gemma.ggml);
  EXPECT_EQ(gemma.ggml->factors[63], 1);
  EXPECT_EQ(gemma.ggml->factors[64], 1e30);
  const Spectrum third = Proportional{0.3}.rescale(geometric_spectrum(10000, 16), {});
  EXPECT_NE(third.frequency[1], 0);  // floor(0.3 * 16 / 2) = 2 pairs turn
  EXPECT_EQ(third.frequency[2], 0);
  const Proportional all{1, 8};
  EXPECT_EQ(all.rescale(llama2(), {}).frequency, Linear{8}.rescale(llama2(), {}).frequency);
}

TEST(Fope, StopsWhatDoesNotTurnOnce) {
  Fope f;
  f.trained_length = 4096;
  const Spectrum s = f.rescale(llama2(), {});
  for (const double x : s.frequency) EXPECT_TRUE(x == 0 || x > 2 * kPi / 4096);
  EXPECT_EQ(s.frequency[45], llama2().frequency[45]);  // the pair of one turn is 45.03
  EXPECT_EQ(s.frequency[46], 0);
  Fope keep;
  keep.keep = 3;
  const Spectrum k = keep.rescale(llama2(), {});
  EXPECT_NE(k.frequency[2], 0);
  EXPECT_EQ(k.frequency[3], 0);
}

TEST(Lists, FrequenciesDivisorsStretch) {
  const Spectrum plain = geometric_spectrum(10000, 8);
  EXPECT_EQ((Frequencies{{3, 2, -1, 0}}.rescale(plain, {}).frequency),
            (std::vector<double>{3, 2, -1, 0}));
  const Divisors divisors{{1, 2, 4, static_cast<double>(1e30f)}, 1.19};  // as GGUF stores 1e30
  const Spectrum d = divisors.rescale(plain, {});
  EXPECT_EQ(d.frequency,
            (std::vector<double>{1, plain.frequency[1] / 2, plain.frequency[2] / 4, 0}));
  EXPECT_EQ(d.gain, 1.19);
  EXPECT_EQ(d.ggml->attn_factor, 1.19);
  const Spectrum s = LearnedStretch{{0, std::log(2.0), 0, 0}}.rescale(plain, {});
  expect_frequencies(s.frequency, {1, 0.2, 0.01, 0.001}, 1e-15);
}

TEST(MscaleLogit, MultipliesTheWholeLogit) {
  const MscaleLogit m{40, 1};
  const Spectrum s = m.rescale(llama2(), {});
  EXPECT_NEAR(s.logit_factor, 1.8738542070926265, 1e-15);
  EXPECT_EQ(s.frequency, llama2().frequency);
  EXPECT_EQ(s.gain, 1);
}

}  // namespace
}  // namespace posenc
