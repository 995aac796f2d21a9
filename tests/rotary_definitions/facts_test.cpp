// SPDX-License-Identifier: Apache-2.0
// Worked examples, arrangements of pairs and streams, and what definitions refuse.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "posenc/registry.h"
#include "rotary_definitions/reference.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

RotarySpec spec_of(const std::string& scheme) {
  return resolve(parse_encoding(scheme));
}

std::vector<double> turn_one_to_eight(const std::string& scheme, double position) {
  return test::reference_rotate(spec_of(scheme), {1, 2, 3, 4, 5, 6, 7, 8}, {position});
}
void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-14) << i;
}

// d = 8, base 10000, x = [1..8], position 3; YaRN: s = 4, L = 256.
TEST(WorkedExamples, OneHeadOfEight) {
  expect_near(turn_one_to_eight("rope head_dim=8 pairing=interleaved", 3),
              {-1.27223251272018, -1.83886498514102, 1.68392864073146, 4.70790657648644,
               4.81777716752996, 6.1472777035064, 6.97596853602361, 8.02096396852701});
  expect_near(turn_one_to_eight("rope head_dim=8 pairing=half_split", 3),
              {-1.69559253689978, 0.137551738283174, 2.78868159982949, 3.97598203601348,
               -4.80884247494236, 6.32305934807632, 7.0868367368504, 8.01196398202701});
  expect_near(
      turn_one_to_eight("rope head_dim=8 rotary_dim=4 pairing=half_split", 3),
      {-1.41335252078005, 1.87911806668799, -2.82885748174147, 4.05819113540094, 5, 6, 7, 8});
  expect_near(
      turn_one_to_eight("rope head_dim=8 pairing=half_split + proportional fraction=0.5", 3),
      {-1.69559253689978, 0.137551738283174, 3, 4, -4.80884247494236, 6.32305934807632, 7, 8});
  expect_near(turn_one_to_eight(
                  "rope head_dim=8 pairing=half_split + yarn factor=4 original_context=256", 3),
              {-1.9306515741659, 0.963880384892085, 3.35601475194935, 4.54768468751371,
               -5.475489595595, 7.13652676831304, 7.99580080829802, 9.1124488149679});
}

TEST(WorkedExamples, ClockwiseIsTheOtherPosition) {
  EXPECT_EQ(turn_one_to_eight("rope head_dim=8 pairing=half_split direction=-1", 3),
            turn_one_to_eight("rope head_dim=8 pairing=half_split", -3));
}

std::vector<double> angles(const RotarySpec& spec, const std::vector<double>& position) {
  const Spectrum& s = spec.blocks.at(0).spectrum;
  std::vector<double> phi(static_cast<std::size_t>(s.pairs()), 0.0);
  for (Index a = 0; a < s.axes; ++a)
    for (Index i = 0; i < s.pairs(); ++i)
      phi[static_cast<std::size_t>(i)] += position.at(static_cast<std::size_t>(a)) *
                                          s.frequency[static_cast<std::size_t>(a * s.pairs() + i)];
  return phi;
}

TEST(Mrope, AnglesOfThePublishedArrangements) {
  const std::vector<double> thw = {5, 2, 3};
  const std::string scheme = "mrope head_dim=8 pairing=half_split ";
  expect_near(angles(spec_of(scheme + "sections=[2,1,1] layout=chunked"), thw), {5, .5, .02, .003});
  expect_near(angles(spec_of(scheme + "sections=[2,1,1] layout=interleaved"), thw),
              {5, .2, .03, .005});
  expect_near(angles(spec_of(scheme + "sections=[1,1,2] layout=ernie"), thw), {2, .3, .05, .005});
  expect_near(angles(spec_of(scheme + "sections=[2,1,1] layout=bailing"), thw), {2, .3, .05, .005});
}

TEST(Mrope, StreamOfEachPair) {
  using Axes = std::vector<Index>;
  // vLLM 0.33 (MRotaryEmbeddingInterleaved); the last pair is t when there are three sections.
  EXPECT_EQ(mrope_axes(MropeLayout::openpangu, {2, 3, 3}, 8), (Axes{0, 1, 2, 1, 2, 1, 2, 0}));
  EXPECT_EQ(mrope_axes(MropeLayout::openpangu, {2, 2}, 4), (Axes{0, 1, 0, 1}));
  EXPECT_EQ(mrope_axes(MropeLayout::openpangu, {1, 0, 3}, 4), (Axes{2, 2, 2, 0}));
  // Bailing's sections of h and w may differ: they alternate over their sum.
  EXPECT_EQ(mrope_axes(MropeLayout::bailing, {1, 3, 2}, 6), (Axes{1, 2, 1, 2, 1, 0}));
  EXPECT_EQ(mrope_axes(MropeLayout::chunked, {1, 0, 2, 1}, 4), (Axes{0, 2, 2, 3}));
  // ggml starts again when the sections are used up.
  EXPECT_EQ(mrope_axes(MropeLayout::ggml_mrope, {1, 1, 0, 0}, 5), (Axes{0, 1, 0, 1, 0}));
}

TEST(Mrope, TextIsPlainRotary) {
  for (const char* sections :
       {"sections=[2,3,3] layout=chunked", "sections=[2,3,3] layout=interleaved",
        "sections=[3,3,2] layout=ernie", "sections=[2,3,3] layout=openpangu"}) {
    const RotarySpec m = spec_of(std::string("mrope head_dim=16 pairing=half_split ") + sections);
    expect_near(angles(m, {7, 7, 7}), angles(spec_of("rope head_dim=16 pairing=half_split"), {7}));
  }
}

TEST(Mrope, ScalingsActBeforeTheStreams) {
  const RotarySpec m = spec_of(
      "mrope head_dim=16 pairing=half_split sections=[2,3,3] layout=chunked + yarn factor=4 "
      "original_context=256");
  const RotarySpec r =
      spec_of("rope head_dim=16 pairing=half_split + yarn factor=4 original_context=256");
  expect_near(angles(m, {9, 9, 9}), angles(r, {9}));
  EXPECT_EQ(m.blocks[0].spectrum.gain, r.blocks[0].spectrum.gain);
}

TEST(Axial, OrdersOfThePairs) {
  const std::string scheme = "axial head_dim=8 axes_dim=[4,4] pairing=half_split ";
  const std::vector<double> xy = {3, 5};
  expect_near(angles(spec_of(scheme), xy), {3, .03, 5, .05});
  expect_near(angles(spec_of(scheme + "order=alternate"), xy), {3, 5, .03, .05});       // Kimi-K2.5
  expect_near(angles(spec_of(scheme + "spacing=interlaced"), xy), {3, .03, .5, .005});  // Pixtral
  expect_near(angles(spec_of(scheme + "stream=[1,0]"), xy), {5, .05, 3, .03});
  const RotarySpec blocks = spec_of(scheme + "order=blocks");
  ASSERT_EQ(blocks.blocks.size(), 2u);
  EXPECT_EQ(blocks.blocks[1].offset, 4);
  expect_near(angles(blocks, xy), {3, .03});
  EXPECT_EQ(resolve(axial_presets::gemma4_vision(8)).blocks[0].spectrum.frequency[1], 0.1);
}

TEST(Axial, RetNetSpacingReachesTheBase) {
  const std::vector<double> f = resolve(axial_presets::retnet(8)).blocks[0].spectrum.frequency;
  expect_near(f, {1, std::pow(10000, -1.0 / 3), std::pow(10000, -2.0 / 3), 1e-4});
}

TEST(Axial, GgmlVisionStartsItsAngleAnew) {
  const RotarySpec v = spec_of("axial head_dim=16 axes_dim=[8,8] pairing=half_split streams=4");
  const Spectrum& s = v.blocks[0].spectrum;
  ASSERT_TRUE(s.ggml);
  EXPECT_EQ(s.ggml->n_dims, 8);
  EXPECT_EQ(s.ggml->restart, (std::vector<Index>{4}));
  EXPECT_EQ(s.axes, 4);
  EXPECT_FALSE(s.geometric);
  // What ggml has no mode for.
  EXPECT_FALSE(spec_of("axial head_dim=16 axes_dim=[8,8] pairing=interleaved order=alternate")
                   .blocks[0]
                   .spectrum.ggml);
  EXPECT_FALSE(
      spec_of("axial head_dim=16 axes_dim=[4,6,6] pairing=interleaved").blocks[0].spectrum.ggml);
}

TEST(Refusals, NameRuleAndValue) {
  const auto says = [](const std::string& scheme) { return refusal([&] { spec_of(scheme); }); };
  EXPECT_EQ(says("mrope head_dim=16 pairing=half_split sections=[2,3,4] layout=chunked"),
            "[mrope] sections must sum to 8, the number of pairs, got 9");
  EXPECT_EQ(says("mrope head_dim=16 pairing=half_split sections=[3,2,3] layout=ernie"),
            "[mrope] ernie needs equal sections of h and w, got 2");
  EXPECT_EQ(says("mrope head_dim=16 pairing=half_split sections=[4,4] layout=interleaved"),
            "[mrope] interleaved needs 3 sections, got 2");
  EXPECT_EQ(says("mrope head_dim=16 pairing=half_split sections=[0,0,0] layout=ggml_imrope"),
            "[mrope] sections must not be empty or all 0, got 3");
  EXPECT_EQ(says("axial head_dim=16 axes_dim=[7,9] pairing=half_split"),
            "[axial] axes_dim must be positive, even and at most 65536, got 7");
  EXPECT_EQ(says("axial head_dim=8 axes_dim=[8,8] pairing=half_split").substr(0, 8), "[rotary]");
  EXPECT_EQ(says("axial head_dim=16 axes_dim=[8,8] pairing=half_split spacing=linear"),
            "[axial] last must be finite and positive, got 0");
  EXPECT_EQ(says("axial head_dim=16 axes_dim=[8,8] pairing=half_split last=5"),
            "[axial] last belongs to spacing linear, logarithmic and periods, got 5");
  EXPECT_EQ(says("mixed_axes head_dim=8 heads=2 axes=2 frequencies=[1,2,3] pairing=half_split"),
            "[mixed_axes] frequencies must be [heads, axes, pairs]: a multiple of heads * axes, "
            "got 3");
  Mrope m;
  m.head_dim = 16;
  m.pairing = Pairing::half_split;
  m.sections = {8};
  EXPECT_EQ(refusal([&] { resolve(m); }), "[mrope] layout must be given, got \"unset\"");
  m.layout = MropeLayout::chunked;
  m.base = kNaN;
  EXPECT_NE(refusal([&] { resolve(m); }), "accepted");
  m.base = 10000;
  m.sections = {std::numeric_limits<Index>::max(), 1};
  EXPECT_NE(refusal([&] { resolve(m); }), "accepted");
  Xpos x;
  x.head_dim = 8;
  x.pairing = Pairing::half_split;
  EXPECT_EQ(refusal([&] { resolve(x); }),
            "[xpos] center must be given: it must not change during the life of a key cache");
  x.center = kNaN;
  EXPECT_EQ(refusal([&] { resolve(x); }), "[xpos] center must be finite, got nan");
  x.center = 0;
  x.scale_base = 0;
  EXPECT_EQ(refusal([&] { resolve(x); }), "[xpos] scale_base must be finite and positive, got 0");
  Rope wide;
  wide.head_dim = 8;
  wide.pairing = Pairing::half_split;
  wide.direction = (Index{1} << 32) + 1;  // must not be narrowed to 1
  EXPECT_NE(refusal([&] { resolve(wide); }), "accepted");
}

}  // namespace
}  // namespace posenc
