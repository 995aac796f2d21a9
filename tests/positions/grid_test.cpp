// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/positions.h"
#include "support/refusal.h"
#include "support/suite.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Integers = std::vector<Index>;

const support::Suite& engines() {
  static const support::Suite suite("rotary_engines");
  return suite;
}
const support::Suite& hugging_face() {
  static const support::Suite suite("rotary_hugging_face");
  return suite;
}

// [token][axis], as most programs list coordinates.
Integers by_token(const OwnedPositions& p) {
  Integers v;
  for (Index t = 0; t < p.count(); ++t)
    for (std::int32_t a = 0; a < p.axes; ++a) v.push_back(integer_position_at(p, a, 0, t));
  return v;
}
double at(const OwnedPositions& p, std::int32_t axis, Index t) {
  return position_at(p, axis, 0, t);
}

// The rows of sine [token][2 * frequencies of axis 0, axis 1 (, twice)] that a peer made must be
// those of our coordinates. `step` columns a frequency.
void expect_sines(const support::SuiteArray& embed, const std::vector<double>& frequency,
                  std::size_t step, const OwnedPositions& p, double tolerance) {
  const auto columns = static_cast<std::size_t>(embed.dim(1));
  ASSERT_EQ(embed.dim(0), p.count());
  for (Index t = 0; t < p.count(); ++t)
    for (std::int32_t a = 0; a < 2; ++a)
      for (std::size_t f = 0; f < frequency.size(); ++f) {
        const std::size_t column = (static_cast<std::size_t>(a) * frequency.size() + f) * step;
        const double want = embed.value[static_cast<std::size_t>(t) * columns + column];
        EXPECT_NEAR(std::sin(at(p, a, t) * frequency[f]), want, tolerance)
            << "token " << t << " axis " << a << " frequency " << f;
      }
}

TEST(Grid, PatchesAsTransformers) {
  const support::Suite absolute("absolute");
  for (const Index merge : {2, 1}) {
    Integers yx, tyx;
    const Index grids[2][3] = {{1, 4, 6}, {2, 2, 4}};
    for (const auto& g : grids) {
      const auto append = [](Integers& to, const Integers& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      for (Index frame = 0; frame < g[0]; ++frame)
        append(yx, by_token(merge_blocks(grid({g[1], g[2]}), g[1], g[2], merge)));
      append(tyx, by_token(merge_blocks(grid({g[0], g[1], g[2]}), g[1], g[2], merge)));
    }
    const std::string suffix = "merge" + std::to_string(merge);
    EXPECT_EQ(yx, absolute("ids_hf_vision_patches", "yx_" + suffix).integers());
    if (merge == 2) {
      EXPECT_EQ(tyx, absolute("ids_hf_vision_patches", "tyx_merge2").integers());
    }
  }
}

TEST(Grid, VisionTowers) {
  EXPECT_EQ(by_token(merge_blocks(grid({4, 6}), 4, 6, 2)),
            hugging_face()("vision_qwen2_vl_axial", "position_ids").integers());
  EXPECT_EQ(by_token(grid({3, 4})),
            hugging_face()("vision_pixtral_axial", "position_ids").integers());
  EXPECT_EQ(by_token(swap_xy(grid({4, 3}))),
            hugging_face()("vision_gemma4_blocks", "position_ids").integers());
}

TEST(Grid, Llama4CountsFromOneAndItsClassTokenStandsAtZero) {
  const OwnedPositions p = with_special_tokens(swap_xy(grid({3, 3}, 1)), 0, 1);
  const auto sine = hugging_face()("vision_llama4_complex", "table_sin");  // [10, 1, 8]
  ASSERT_EQ(p.count(), 10);
  for (Index t = 0; t < 10; ++t)
    for (std::int32_t a = 0; a < 2; ++a)
      for (int j = 0; j < 4; ++j)
        EXPECT_NEAR(sine.value[static_cast<std::size_t>(t * 8 + a * 4 + j)],
                    std::sin(at(p, a, t) * std::pow(10000.0, -j / 4.0)), 3e-7);
}

TEST(Grid, Dinov3CentresAreThoseOfTimmAndTransformers) {
  const auto hf = hugging_face()("vision_dinov3_axial", "table_sin");  // [8, 16], 2 x 4 patches
  const OwnedPositions p = patch_centres(2, 4);
  for (Index t = 0; t < 8; ++t)
    for (std::int32_t a = 0; a < 2; ++a)
      for (int j = 0; j < 4; ++j)
        EXPECT_NEAR(hf.value[static_cast<std::size_t>(t * 16 + a * 4 + j)],
                    std::sin(2 * M_PI * at(p, a, t) * std::pow(100.0, -j / 4.0)), 5e-7);
  const auto frequencies = [](const std::string& name) {
    std::vector<double> f;
    for (const double period : engines()(name, "periods").value) f.push_back(2 * M_PI / period);
    return f;
  };
  const std::pair<const char*, CentreNormalisation> cases[] = {
      {"timm_dinov3", CentreNormalisation::separate},
      {"timm_dinov3_min", CentreNormalisation::min}};
  for (const auto& [name, normalisation] : cases) {
    SCOPED_TRACE(name);
    expect_sines(engines()(name, "embed"), frequencies(name), 1, patch_centres(3, 4, normalisation),
                 1e-5);
  }
}

TEST(Grid, Dinov3TrainingAugmentation) {
  const auto value = [](const char* name) { return engines()("timm_dinov3_train", name).value; };
  std::vector<double> f;
  for (const double period : value("periods")) f.push_back(2 * M_PI / period);
  const OwnedPositions p = augmented(
      patch_centres(3, 4), {value("shift"), value("log_jitter"), value("log_rescale")[0]});
  expect_sines(engines()("timm_dinov3_train", "embed"), f, 1, p, 2e-5);
}

TEST(Grid, TimmGrids) {
  const auto bands = [](const std::string& name) { return engines()(name, "bands").value; };
  const Index shape[] = {3, 4};
  const double reference[] = {16, 16};
  const auto check = [&](const std::string& name, const OwnedPositions& p, double tolerance) {
    SCOPED_TRACE(name);
    expect_sines(engines()(name, "embed"), bands(name), 2, p, tolerance);
  };
  check("timm_lang", grid({3, 4}), 1e-6);
  check("timm_lang_ref", scaled_grid(shape, reference), 2e-6);
  check("timm_lang_xy_offset", swap_xy(grid({3, 4}, 1)), 1e-6);
  check("timm_centered", patch_centres(3, 4, CentreNormalisation::max), 1e-6);
  check("timm_pixels", linspace_grid(shape), 5e-5);
  check("timm_pixels_linear", linspace_grid(shape), 2e-5);
}

TEST(Grid, LucidrainsAxialAngles) {
  for (const std::string name : {"lr_axial_pixel", "lr_axial_lang_3d"}) {
    SCOPED_TRACE(name);
    const auto angles = engines()(name, "angles");
    const auto f = engines()(name, "freqs").value;
    const std::vector<Index> shape(angles.shape.begin(), angles.shape.end() - 1);
    const OwnedPositions p = name == "lr_axial_pixel" ? linspace_grid(shape) : grid(shape);
    const auto columns = static_cast<std::size_t>(angles.shape.back());
    for (Index t = 0; t < p.count(); ++t)
      for (std::size_t c = 0; c < columns; ++c) {
        const auto axis = static_cast<std::int32_t>(c / (2 * f.size()));
        EXPECT_NEAR(at(p, axis, t) * f[c % (2 * f.size()) / 2],
                    angles.value[static_cast<std::size_t>(t) * columns + c], 2e-5);
      }
  }
}

TEST(Grid, LinspaceIsSymmetricAndMeetsItsEnds) {
  const Index shape[] = {7};
  const OwnedPositions p = linspace_grid(shape);
  EXPECT_EQ(at(p, 0, 0), -1);
  EXPECT_EQ(at(p, 0, 6), 1);
  for (Index i = 0; i < 7; ++i) EXPECT_EQ(at(p, 0, i), -at(p, 0, 6 - i));
  const Index one[] = {1};
  EXPECT_EQ(at(linspace_grid(one), 0, 0), -1);
}

TEST(Grid, Eva02StretchesItsTrainedGrid) {
  const Index shape[] = {5, 5};
  const double reference[] = {16, 16};
  const OwnedPositions p = scaled_grid(shape, reference);
  // First pair of each half turns by the coordinate itself.
  const auto x = engines()("paper_eva02", "x"), out = engines()("paper_eva02", "out");
  for (Index t = 0; t < 25; ++t)
    for (std::int32_t a = 0; a < 2; ++a) {
      const auto i = static_cast<std::size_t>(t * 16 + a * 8);
      const double angle = at(p, a, t);
      EXPECT_NEAR(out.value[i], x.value[i] * std::cos(angle) - x.value[i + 1] * std::sin(angle),
                  1e-5);
    }
}

TEST(Grid, BadSizesAreRefused) {
  EXPECT_THAT(refusal([] { grid({}); }), HasSubstr("[grid]"));
  EXPECT_THAT(refusal([] { grid({2, -1}); }), HasSubstr("not be negative"));
  EXPECT_THAT(refusal([] { grid({Index{1} << 30, Index{1} << 30}); }), HasSubstr("2^40"));
  EXPECT_THAT(refusal([] { grid({2}, kUnbounded); }), HasSubstr("64 bits"));
  EXPECT_THAT(refusal([] { merge_blocks(grid({3, 4}), 3, 4, 2); }), HasSubstr("[merge_blocks]"));
  EXPECT_THAT(refusal([] { merge_blocks(grid({2, 4}), 4, 4, 2); }), HasSubstr("whole frames"));
  EXPECT_THAT(refusal([] { swap_xy(arange(0, 2)); }), HasSubstr("[swap_xy]"));
  const Index shape[] = {2};
  const double zero[] = {0};
  EXPECT_THAT(refusal([&] { scaled_grid(shape, zero); }), HasSubstr("[scaled_grid]"));
  EXPECT_THAT(refusal([&] { scaled_grid(shape, {}); }), HasSubstr("one size an axis"));
  EXPECT_THAT(refusal([&] { linspace_grid(shape, NAN, 1); }), HasSubstr("[linspace_grid]"));
  EXPECT_THAT(refusal([] { augmented(grid({2, 2}), {{1}, {}, 0}); }), HasSubstr("[augmented]"));
  EXPECT_EQ(grid({0, 3}).count(), 0);
  EXPECT_EQ(patch_centres(0, 3).count(), 0);
}

}  // namespace
}  // namespace posenc
