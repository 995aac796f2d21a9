// SPDX-License-Identifier: Apache-2.0
// The named settings: every one is whole and reads back, every program that ought to have one has
// it, and what their files and formulas say of some.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "posenc/absolute/boxes_presets.h"
#include "posenc/absolute/complex_order.h"
#include "posenc/absolute/hierarchy_presets.h"
#include "posenc/absolute/learned_axes_presets.h"
#include "posenc/absolute/sinusoidal_presets.h"
#include "posenc/registry.h"
#include "posenc/registry/fields.h"
#include "support/refusal.h"

namespace posenc {
namespace {

std::set<std::string> names_of(std::string_view scheme) {
  std::set<std::string> names;
  for (const SchemeInfo& s : all_schemes())
    if (s.card.name == scheme)
      for (const PresetInfo& p : s.presets) names.insert(std::string(p.name));
  return names;
}

TEST(Presets, EveryOneIsWholeAndReadsBack) {
  int count = 0;
  for (const SchemeInfo& s : all_schemes())
    for (const PresetInfo& p : s.presets) {
      SCOPED_TRACE(p.text);
      ++count;
      const Encoding e = parse_encoding(p.text);
      EXPECT_EQ(parse_encoding(p.short_text), e) << p.short_text;
      EXPECT_EQ(card(e.scheme).name, s.card.name);
      EXPECT_EQ(to_text(e), p.text);
      std::visit(
          [](const auto& scheme) {
            if constexpr (requires {
                            scheme.spectrum();
                            scheme.place(scheme.spectrum());
                          }) {
              EXPECT_FALSE(scheme.place(scheme.spectrum()).blocks.empty());
            }
            if constexpr (requires { scheme.parameters(); }) {
              for (const Parameter& q : scheme.parameters()) EXPECT_FALSE(q.shape.empty());
            }
            if constexpr (requires(LoweredInput & low) { scheme.lower({}, low); })
              if (scheme.parameters().empty()) {
                LoweredInput low;
                scheme.lower({}, low);
                EXPECT_FALSE(low.terms.empty());
              }
          },
          e.scheme);
    }
  EXPECT_GE(count, 100);
}

TEST(Presets, ANameInAText) {
  const auto read = [](const char* text) { return parse_encoding(text).scheme; };
  EXPECT_EQ(read("sinusoidal preset=fairseq width=16"), Scheme(sinusoidal_presets::fairseq(16)));
  EXPECT_EQ(read("sinusoidal width=16 preset=fairseq"), Scheme(sinusoidal_presets::fairseq(16)));
  // What stands beside it counts, whatever the preset says; the rest stays the preset's.
  Sinusoidal unscaled = sinusoidal_presets::fairseq(16);
  unscaled.input_gain = 1;
  EXPECT_EQ(read("sinusoidal preset=fairseq width=16 input_gain=1"), Scheme(unscaled));
  // A size that is no field of the scheme is read with the preset only.
  EXPECT_EQ(to_text(read("sinusoidal_nd preset=mae width=16")),
            "sinusoidal_nd widths=[8,8] stream=[1,0] scale=[1,1] layout=halves");
  EXPECT_EQ(to_text(read("learned preset=roberta width=8 positions=510")),
            "learned width=8 rows=512 frozen_row=1");
  EXPECT_EQ(to_text(read("axial preset=flux")),
            "axial head_dim=128 axes_dim=[16,56,56] pairing=interleaved");
  EXPECT_EQ(to_text(read("xpos preset=flash_attention head_dim=8 length=9 scale_base=64")),
            "xpos head_dim=8 pairing=half_split center=4 scale_base=64");
  EXPECT_EQ(to_text(read("xpos preset=torchscale head_dim=8 length=9")),
            "xpos head_dim=8 pairing=interleaved center=5");
  EXPECT_EQ(to_text(parse_encoding("sinusoidal preset=tutorial width=4 + linear factor=2")),
            "sinusoidal width=4 + linear factor=2");
}

TEST(Presets, WhatANameLacksIsRefused) {
  const auto said = [](const char* text) {
    return test::refusal([&] { (void)parse_encoding(text); });
  };
  EXPECT_EQ(said("sinusoidal preset=fairseq"),
            "[scheme] sinusoidal: width must be given with preset fairseq");
  EXPECT_EQ(said("sinusoidal preset=tape width=4"),
            "[scheme] sinusoidal: length must be given with preset tape");
  EXPECT_EQ(said("sinusoidal preset=fairseq width=2"),
            "[sinusoidal] fairseq divides by zero at widths 2 and 3, got 2");
  EXPECT_EQ(said("sinusoidal preset=mlx width=0"),
            "[scheme] sinusoidal: width must be within 1 and 1000000, got \"0\"");
  EXPECT_EQ(said("sinusoidal preset=mlx width=4 preset=paper"),
            "[scheme] sinusoidal: a preset must be given once, got \"mlx\"");
  EXPECT_EQ(said("sinusoidal preset=tape width=8 length=9 length=9"),
            "[scheme] sinusoidal: a size of a preset must be given once, got \"length\"");
  EXPECT_EQ(said("mrope preset=xd_rope head_dim=12"),
            "[mrope] equal sections of XD-RoPE need a head that is a multiple of 8, got 12");
  EXPECT_NE(said("sinusoidal preset=fairsek width=4").find("did you mean fairseq?"),
            std::string::npos);
  EXPECT_NE(said("sinusoidal_nd width=16").find("a field of sinusoidal_nd"), std::string::npos);
  EXPECT_NE(said("rope preset=neox head_dim=4").find("a field of rope"), std::string::npos);
}

// What acts at the input of the models of the literature, and the rows that relative schemes take.
TEST(Presets, NoProgramIsMissing) {
  const std::pair<std::string_view, std::vector<std::string>> wanted[] = {
      {"sinusoidal",
       {"paper", "tensor2tensor", "fairseq", "ctranslate2", "mlx", "shape", "cape",
        "multiplicative", "bert4keras_mul", "transformer_xl", "xlnet", "tener", "tener_paper",
        "nezha", "timesfm", "deepmind", "timestep", "tape", "tatp22"}},
      {"sinusoidal_nd",
       {"tatp22_2d", "tatp22_3d", "tensor2tensor", "mae", "detr", "diffusers_3d", "timm"}},
      {"fourier_features", {"perceiver", "nerf", "sam"}},
      {"learned",
       {"bert", "gpt2", "roberta", "opt", "bart", "fairseq", "bert4keras", "bert4keras_mul"}},
      {"learned_axes", {"reformer", "axial_positional_embedding", "detr", "tensor2tensor"}},
      {"boxes", {"layoutlm", "layoutlmv2", "layoutlmv3"}},
      {"hierarchy", {"segatron_bert", "segatron_xl"}},
      {"cape2d", {"code", "package"}},
      {"xpos", {"torchscale", "flash_attention", "rotary_embedding_torch", "x_transformers"}},
      {"mrope", {"xd_rope"}},
      {"axial", {"qwen2_vl_vision", "pixtral_vision", "llama4_vision", "dinov3", "flux", "retnet"}},
      {"coordinates", {"coordconv", "coordconv_r"}},
      {"crossmodal", {"seconds"}},
      {"complex_order", {"paper", "transformer", "convolutional", "language_model"}},
      {"convolutional", {"wav2vec2"}}};
  for (const auto& [scheme, list] : wanted) {
    const std::set<std::string> have = names_of(scheme);
    for (const std::string& name : list) EXPECT_TRUE(have.contains(name)) << scheme << " " << name;
  }
}

TEST(Presets, TablesOfReformerLayoutLmAndSegatron) {
  const LearnedAxes reformer = learned_axes_presets::reformer();
  EXPECT_EQ(reformer.width, 256);
  EXPECT_TRUE(reformer.flat);
  std::vector<std::vector<Index>> shapes;
  for (const Parameter& p : reformer.parameters()) {
    shapes.push_back(p.shape);
    EXPECT_EQ(p.initial.b, 1);
  }
  EXPECT_EQ(shapes, (std::vector<std::vector<Index>>{{64, 64}, {64, 192}}));
  EXPECT_EQ(to_text(Scheme(reformer)),
            "learned_axes width=256 shape=[64,64] widths=[64,192] flat=true init=1");
  // DETR's tables start in [0, 1), complex word order's amplitudes in (-1, 1).
  for (const Parameter& p : learned_axes_presets::detr().parameters()) {
    EXPECT_EQ(p.initial.kind, InitialKind::uniform);
    EXPECT_EQ(p.initial.a, 0);
    EXPECT_EQ(p.initial.b, 1);
  }
  EXPECT_EQ(complex_order_presets::convolutional(4, 9).parameters()[0].initial.a, -1);
  const LearnedAxes summed = learned_axes_presets::axial_positional_embedding(8, {2, 3});
  EXPECT_EQ(summed.parameters()[1].shape, (std::vector<Index>{3, 8}));

  EXPECT_EQ(boxes_presets::layoutlm().parameters()[2].shape, (std::vector<Index>{1024, 768}));
  const Boxes v3 = boxes_presets::layoutlmv3();
  EXPECT_EQ(v3.width, 768);
  EXPECT_EQ(v3.parameters()[0].shape, (std::vector<Index>{1024, 128}));
  EXPECT_TRUE(v3.clip);
  EXPECT_FALSE(boxes_presets::layoutlmv2().clip);

  const Hierarchy bert = hierarchy_presets::segatron_bert();
  EXPECT_EQ(bert.rows, (std::vector<Index>{512, 100, 50}));
  // Its code at widths 12 and 16.
  EXPECT_EQ(hierarchy_presets::segatron_xl(12).widths, (std::vector<Index>{4, 4, 4}));
  EXPECT_EQ(hierarchy_presets::segatron_xl(16).widths, (std::vector<Index>{6, 6, 4}));
}

std::vector<double> row(const Sinusoidal& s, Index position) {
  LoweredInput low;
  s.lower({}, low);
  std::vector<double> y(static_cast<std::size_t>(s.width));
  apply_input({}, arange(position, 1), low, tensor(y.data(), {1, s.width}));
  return y;
}

// R of Transformer-XL and XLNet: [sin | cos], w = 10000^(-2m / d); of TENER's code
// 10000^(-m / (d/2 - 1)), of its paper interleaved; distances of both signs.
TEST(Presets, RowsOfRelativeSchemes) {
  namespace of = sinusoidal_presets;
  constexpr Index d = 8;
  for (const Index delta : {-7, 0, 1, 300}) {
    const std::vector<double> xl = row(of::transformer_xl(d), delta),
                              net = row(of::xlnet(d), delta), code = row(of::tener(d), -delta),
                              paper = row(of::tener_paper(d), delta);
    const std::vector<double> scheme = TransformerXl{.d_model = d}.sinusoid(delta);
    EXPECT_EQ(xl, net);
    for (std::size_t m = 0; m < 4; ++m) {
      const auto x = static_cast<double>(delta), at = static_cast<double>(m);
      const double w = std::pow(10000, -at / 4), t = std::pow(10000, -at / 3);
      EXPECT_NEAR(xl[m], std::sin(x * w), 1e-13);
      EXPECT_NEAR(xl[4 + m], std::cos(x * w), 1e-13);
      EXPECT_NEAR(xl[m], scheme[m], 1e-13);
      EXPECT_NEAR(xl[4 + m], scheme[4 + m], 1e-13);
      EXPECT_NEAR(paper[2 * m], std::sin(x * w), 1e-13);
      EXPECT_NEAR(paper[2 * m + 1], std::cos(x * w), 1e-13);
      EXPECT_NEAR(code[m], -std::sin(x * t), 1e-13);
      EXPECT_NEAR(code[4 + m], std::cos(x * t), 1e-13);
    }
  }
  EXPECT_EQ(test::refusal([] { (void)of::tener(2); }),
            "[sinusoidal] TENER divides by zero at heads of 2 and 3, got 2");
  // NEZHA, clip 3: the table's row of distance 0 is that of position 3, sines at even channels.
  EXPECT_NEAR(row(of::nezha(6), 3)[0], std::sin(3), 1e-15);
  EXPECT_NEAR(row(of::nezha(6), 3)[3], std::cos(3 * std::pow(10000, -1.0 / 3)), 1e-15);
  // TimesFM multiplies the frequencies by its smallest timescale.
  EXPECT_NEAR(row(of::timesfm(6, 2, 10000), 1)[0], std::sin(2), 1e-15);
  EXPECT_NEAR(row(of::timesfm(6, 2, 10000), 1)[1], std::sin(2 * std::sqrt(2.0 / 10000)), 1e-15);
}

}  // namespace
}  // namespace posenc
