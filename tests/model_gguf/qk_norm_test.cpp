// SPDX-License-Identifier: Apache-2.0
// The norm of q and k in GGUF files: kind and place by the architecture (llama.cpp 0c1e57098,
// models/*.cpp), presence and width by the tensor blk.N.attn_q_norm.weight.
#include <gtest/gtest.h>

#include "suite.h"

namespace posenc {
namespace {

using namespace test;

std::string norm_said(const ModelSpec& m, std::size_t layer = 0) {
  EXPECT_FALSE(refused(m)) << report(m);
  for (const Requirement& r : must_honour(m.layers.at(layer)))
    if (r.what == "qk_norm") return r.text;
  return "";
}
// 32 heads of 128; weights of layer 0 in this shape.
Writer with_norm(const char* architecture, std::vector<std::uint64_t> shape) {
  std::size_t n = 1;
  for (const std::uint64_t d : shape) n *= d;
  Writer file(architecture);
  file.set("attention.layer_norm_rms_epsilon", 1e-6f).set("attention.layer_norm_epsilon", 1e-5f);
  file.tensor("blk.0.attn_q_norm.weight", std::vector<float>(n, 1.0f), std::move(shape));
  return file;
}

TEST(GgufQkNorm, ByTheTensorOfTheLayer) {
  const ModelSpec qwen = with_norm("qwen3", {128}).read();
  EXPECT_EQ(norm_said(qwen).find(
                "normalise q and k: RMS norm over each head of 128, before the rotation, eps "),
            0U)
      << norm_said(qwen);
  EXPECT_NEAR(qwen.layers[0].qk_norm->eps.value(), 1e-6, 1e-12);
  EXPECT_EQ(qwen.layers[0].qk_norm->eps_key, "qwen3.attention.layer_norm_rms_epsilon");
  EXPECT_EQ(norm_said(qwen, 1), "");  // no tensor, nothing said
  EXPECT_EQ(norm_said(Writer("qwen3").read()), "");
}

TEST(GgufQkNorm, WidthTellsOneHeadFromAll) {
  EXPECT_NE(norm_said(with_norm("olmo2", {4096}).read()).find("over all heads at once"),
            std::string::npos);
  EXPECT_NE(norm_said(with_norm("olmo2", {128}).read()).find("over each head"), std::string::npos);
  EXPECT_EQ(norm_said(with_norm("olmo2", {100}).read()), "");  // neither
}

TEST(GgufQkNorm, KindAndPlaceByTheArchitecture) {
  EXPECT_NE(norm_said(with_norm("hunyuan-dense", {128}).read()).find("after the rotation"),
            std::string::npos);
  const ModelSpec command = with_norm("command-r", {128, 32}).read();
  EXPECT_NE(norm_said(command).find("LayerNorm over each head of 128, before the rotation, each "
                                    "head has its own weights"),
            std::string::npos)
      << norm_said(command);
  EXPECT_NEAR(command.layers[0].qk_norm->eps.value(), 1e-5, 1e-11);
  EXPECT_EQ(norm_said(with_norm("command-r", {128}).read()), "");
  EXPECT_EQ(norm_said(with_norm("llama", {128}).read()), "");  // the architecture says nothing
}

}  // namespace
}  // namespace posenc
