// SPDX-License-Identifier: Apache-2.0
// Configs of diffusers: _class_name instead of model_type. diffusers.json has what diffusers
// 0.42.1 makes of q.
#include <gmock/gmock.h>

#include <filesystem>

#include "by_the_book.h"
#include "hugging_face_suite.h"
#include "posenc/registry/fields.h"

namespace posenc {
namespace {

using namespace test;
using testing::HasSubstr;

ModelSpec of_diffusers(const std::string& name, const std::string& more = "") {
  return read_hugging_face(
      parse_json(R"({"_class_name":")" + name + R"(","_diffusers_version":"0.30.0")" + more + "}",
                 "config.json"),
      "config.json");
}
std::optional<Finding> only_error(const ModelSpec& spec) {
  std::optional<Finding> found;
  for (const Finding& f : spec.findings)
    if (f.severity == Severity::error) {
      EXPECT_FALSE(found.has_value()) << f.message;
      found = f;
    }
  return found;
}

// q[t, c] = 0.01 (128 t + c)
void expect_rotated(const ModelSpec& spec, const Json& made) {
  ASSERT_FALSE(spec.has_error()) << errors_of(spec);
  const auto &positions = made.at("positions").as_array(), &rows = made.at("q").as_array();
  for (std::size_t t = 0; t < rows.size(); ++t) {
    std::vector<double> head(128), position;
    for (std::size_t c = 0; c < head.size(); ++c) head[c] = 0.01 * static_cast<double>(128 * t + c);
    for (const Json& p : positions[t].as_array()) position.push_back(p.as_number());
    const std::vector<double> got = turned(*spec.layers.at(0).rotary, head, position);
    for (std::size_t c = 0; c < head.size(); ++c)
      EXPECT_NEAR(got[c], rows[t].as_array()[c].as_number(), 2e-6) << t << ' ' << c;
  }
}

TEST(Diffusers, RotatesAsItsProgram) {
  const Json made =
      read_json(std::filesystem::path(POSENC_SOURCE_DIR) / "tests/model/diffusers.json");
  expect_rotated(of_diffusers("FluxTransformer2DModel"), made.at("flux"));
  expect_rotated(of_diffusers("ChromaTransformer2DModel"), made.at("flux"));
  expect_rotated(of_diffusers("Flux2Transformer2DModel"), made.at("flux2"));
}

TEST(Diffusers, FluxIsThePreset) {
  const ModelSpec flux = of_diffusers(
      "FluxTransformer2DModel",
      R"(,"attention_head_dim":128,"axes_dims_rope":[16,56,56],"num_layers":19,"num_single_layers":38)");
  ASSERT_FALSE(flux.has_error()) << errors_of(flux);
  EXPECT_EQ(flux.reader, "diffusers");
  EXPECT_EQ(flux.model_type, "FluxTransformer2DModel");
  EXPECT_EQ(flux.layers.size(), 57u);
  const LayerSpec& last = flux.layers.back();
  EXPECT_EQ(last.encodings.at(0).value, parse_encoding("axial preset=flux"));
  EXPECT_EQ(last.attention.right, std::nullopt);  // sees both sides
  ASSERT_TRUE(last.qk_norm);
  EXPECT_EQ(last.qk_norm->eps, 1e-6);
  EXPECT_EQ(flux.layers.front().field("axes_dim")->where, "config.json#/axes_dims_rope");
  EXPECT_EQ(of_diffusers("QwenImageTransformer2DModel").layers.size(), 60u);
  EXPECT_EQ(of_diffusers("Flux2Transformer2DModel", R"(,"num_single_layers":20)").layers.size(),
            28u);
}

TEST(Diffusers, OthersAreRefusedWithTheirReason) {
  const auto lumina =
      only_error(of_diffusers("Lumina2Transformer2DModel", R"(,"axes_dim_rope":[32,32,32])"));
  ASSERT_TRUE(lumina);
  EXPECT_EQ(lumina->code, "layout_not_covered");
  EXPECT_EQ(lumina->where, "config.json#/_class_name");
  EXPECT_THAT(lumina->message, HasSubstr("rotary over axes (axes_dim_rope [32, 32, 32])"));
  EXPECT_THAT(lumina->fix, HasSubstr("axial axes_dim=[32, 32, 32] pairing=interleaved"));
  const auto unet = only_error(of_diffusers("UNet2DConditionModel"));
  ASSERT_TRUE(unet);
  EXPECT_THAT(unet->fix, HasSubstr("FluxTransformer2DModel"));
  EXPECT_THAT(only_error(of_diffusers("FluxPipeline"))->message, HasSubstr("a pipeline"));
  for (const char* axes : {"[16,56,50]", "[16,57,55]", "[]", "16", "[128,\"0\"]"})
    EXPECT_EQ(only_error(of_diffusers("FluxTransformer2DModel",
                                      std::string(R"(,"axes_dims_rope":)") + axes))
                  ->where,
              "config.json#/axes_dims_rope")
        << axes;
  EXPECT_EQ(only_error(of_diffusers("Flux2Transformer2DModel", R"(,"rope_theta":0)"))->code,
            "theta_not_positive");
}

}  // namespace
}  // namespace posenc
