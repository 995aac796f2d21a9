// SPDX-License-Identifier: Apache-2.0
// Rotations of ggml, vLLM, rotary-embedding-torch, timm and papers' own code.
#include "rotary_definitions/peers.h"

namespace posenc {
namespace {

using namespace test;

// float32 peers: the tolerance is the suite's own.
TEST(Ggml, StreamsOfEveryMode) {
  struct Row {
    const char* test_case;
    const char* scheme;
    double tolerance;
  };
  const Row rows[] = {
      {"ggml_mrope_qwen2vl",
       "mrope head_dim=128 pairing=half_split base=1e6 sections=[16,24,24,0] layout=ggml_mrope",
       4.9e-5},
      {"ggml_mrope_text_equals_neox",
       "mrope head_dim=16 pairing=half_split sections=[2,3,3,0] layout=ggml_mrope", 3.7e-6},
      {"ggml_mrope_text_equals_neox", "rope head_dim=16 pairing=half_split", 3.7e-6},
      {"ggml_mrope_fourth_section",
       "mrope head_dim=16 pairing=half_split sections=[1,2,2,3] layout=ggml_mrope", 5.6e-6},
      {"ggml_mrope_fourth_section",
       "mrope head_dim=16 pairing=half_split sections=[1,2,2,3] layout=chunked", 5.6e-6},
      {"ggml_imrope_qwen3vl",
       "mrope head_dim=128 pairing=half_split base=5e6 sections=[24,20,20,0] layout=ggml_imrope",
       3.7e-5},
      {"ggml_imrope_qwen35",
       "mrope head_dim=256 rotary_dim=64 pairing=half_split base=1e7 sections=[11,11,10,0] "
       "layout=ggml_imrope",
       4.7e-6},
      {"ggml_vision", "axial head_dim=16 axes_dim=[8,8] pairing=half_split streams=4", 1e-6},
  };
  for (const Row& row : rows)
    expect_rotation({engines(), row.test_case, "x", "out", "thd", row.tolerance},
                    spec_of(row.scheme), from_array(engines()(row.test_case, "positions"), true));
}

TEST(Ggml, PairsThatNeverTurnForText) {
  const std::vector<Index> axis = mrope_axes(MropeLayout::ggml_imrope, {24, 20, 20, 0}, 64);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(axis[i] == 3, i == 61 || i == 62) << i;
  const std::vector<Index> hf = mrope_axes(MropeLayout::interleaved, {24, 20, 20}, 64);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(hf[i], axis[i] == 3 ? 0 : axis[i]);
  const std::vector<Index> both = mrope_axes(MropeLayout::ggml_imrope, {11, 11, 10, 0}, 32);
  EXPECT_EQ(both, mrope_axes(MropeLayout::interleaved, {11, 11, 10}, 32));
}

TEST(Vllm, Streams) {
  const Named rows[] = {
      {"vllm_mrope_qwen2vl",
       "mrope head_dim=128 pairing=half_split base=1e6 sections=[16,24,24] layout=chunked"},
      {"vllm_mrope_qwen3vl",
       "mrope head_dim=128 pairing=half_split base=5e6 sections=[24,20,20] layout=interleaved"},
      {"vllm_mrope_ernie",
       "mrope head_dim=16 pairing=interleaved base=500000 sections=[3,3,2] layout=ernie"},
  };
  for (const Named& row : rows) {
    const RotarySpec spec = spec_of(row.scheme);
    for (const char* x : {"q", "k"}) {
      const std::vector<Index> flat = engines()(row.test_case, x).shape;
      expect_rotation({engines(),
                       row.test_case,
                       x,
                       x + std::string("_out_f64"),
                       "thd",
                       1e-12,
                       Role::query,
                       {flat[0], flat[1] / spec.head_dim, spec.head_dim}},
                      spec, from_array(engines()(row.test_case, "positions"), true));
    }
  }
}

TEST(RotaryEmbeddingTorch, FrequencySetsAndAxes) {
  expect_rotation({engines(), "lr_lang", "x", "out", "bhtd", 5.1e-8},
                  spec_of("rope head_dim=16 pairing=interleaved"), counted());
  expect_rotation({engines(), "lr_lang_partial_offset", "x", "out", "bhtd", 2.5e-8},
                  spec_of("rope head_dim=12 rotary_dim=8 pairing=interleaved"), counted(5));
  expect_rotation({engines(), "lr_interpolate", "x", "out", "bhtd", 1.8e-8},
                  spec_of("rope head_dim=16 pairing=interleaved + linear factor=2.5"), counted());
  expect_rotation(
      {engines(), "lr_pixel", "x", "out", "bhtd", 1e-12},
      spec_of("axial head_dim=8 axes_dim=[8] pairing=interleaved spacing=linear last=5"),
      counted());
  expect_rotation({engines(), "lr_constant", "x", "out", "bhtd", 1e-12},
                  spec_of("axial head_dim=8 axes_dim=[6] pairing=interleaved spacing=constant"),
                  counted());
  const ArrayLookup arrays = [](std::string_view name) {
    return engines()("lr_learned_freq", std::string(name)).value;
  };
  expect_rotation(
      {engines(), "lr_learned_freq", "x", "out", "bhtd", 1e-12},
      spec_of("rope head_dim=8 pairing=interleaved + frequencies values=@freqs", 0, arrays),
      counted());
  expect_rotation(
      {engines(), "lr_learned_freq", "x", "out", "bhtd", 1e-12},
      spec_of("mixed_axes head_dim=8 pairing=interleaved frequencies=@freqs", 0, arrays),
      counted());
  expect_rotation({engines(), "lr_axial_pixel", "x", "out", "td", 1e-12, Role::query, {15, 16}},
                  spec_of("axial head_dim=16 axes_dim=[8,8] pairing=interleaved spacing=linear "
                          "last=8"),
                  grid(5, [](double r, double c) {
                    return std::vector{r - 1, c / 2 - 1};  // linspace(-1, 1, 3) and (.., 5)
                  }));
  expect_rotation({engines(), "lr_axial_lang_3d", "x", "out", "td", 1.6e-9, Role::query, {12, 16}},
                  spec_of("axial head_dim=16 axes_dim=[4,4,4] pairing=interleaved"),
                  [](Index, Index t) {
                    return std::vector{static_cast<double>(t / 6), static_cast<double>(t / 2 % 3),
                                       static_cast<double>(t % 2)};
                  });
}

TEST(Timm, AxialTowers) {
  const auto check = [](const char* test_case, const char* scheme, double tolerance,
                        const PositionOf& p) {
    expect_rotation({engines(), test_case, "x", "out", "bhtd", tolerance}, spec_of(scheme), p);
  };
  const auto span = [](double i, double n) { return 2 * i / (n - 1) - 1; };
  const PositionOf pixels = grid(4, [&](double r, double c) {
    return std::vector{span(r, 3), span(c, 4)};
  });
  check("timm_pixels",
        "axial head_dim=16 axes_dim=[8,8] pairing=interleaved spacing=logarithmic last=112", 8.6e-5,
        pixels);
  check("timm_pixels_linear",
        "axial head_dim=16 axes_dim=[8,8] pairing=interleaved spacing=linear last=32", 3e-5,
        pixels);
  const char* lang = "axial head_dim=16 axes_dim=[8,8] pairing=interleaved";
  check("timm_lang", lang, 1.5e-8, grid(4, row_column));
  check("timm_lang_ref", lang, 8.2e-7, grid(4, [](double r, double c) {
          return std::vector{r / 3 * 16, c / 4 * 16};
        }));
  check("timm_lang_xy_offset", lang, 2.2e-8, grid(4, [](double r, double c) {
          return std::vector{c + 1, r + 1};
        }));
  check("timm_lang_half", "axial head_dim=16 axes_dim=[8,8] pairing=half_split", 2.1e-8,
        grid(5, row_column));
  const auto centre = [](double i, double n) { return (i + 0.5) / n * 2 - 1; };
  const auto dino = [&](double rows, double columns) {
    return grid(4, [=](double r, double c) {
      return std::vector{centre(r, rows), centre(c, columns)};
    });
  };
  const char* dinov3 =
      "axial head_dim=16 axes_dim=[8,8] pairing=half_split base=100 scale=6.283185307179586";
  check("timm_dinov3", dinov3, 1.1e-6, dino(3, 4));
  check("timm_dinov3_min", dinov3, 1.7e-6, dino(3, 3));
  check("timm_dinov3_periods",
        "axial head_dim=16 axes_dim=[8,8] pairing=interleaved spacing=periods first=0.3 last=30",
        3.8e-6, dino(3, 4));
  const auto drawn = [](const char* name, std::size_t i) {
    return engines()("timm_dinov3_train", name).value[i];
  };
  check("timm_dinov3_train", dinov3, 4.8e-6, grid(4, [&](double r, double c) {
          const auto moved = [&](double x, std::size_t axis) {
            return (x + drawn("shift", axis)) *
                   std::exp(drawn("log_jitter", axis) + drawn("log_rescale", 0));
          };
          return std::vector{moved(centre(r, 3), 0), moved(centre(c, 4), 1)};
        }));
  check("timm_mrope", "mrope head_dim=16 pairing=half_split sections=[2,3,3] layout=interleaved",
        2e-8, grid(4, [](double r, double c) {
          return std::vector{0.0, r, c};
        }));
}

TEST(Timm, MixedAxesPerHead) {
  // freqs [x/y, block, head, pair] of 8 pairs; x [block, batch, head, token, channel].
  const std::vector<double> f = engines()("timm_mixed", "freqs").value;
  const support::SuiteArray x = engines()("timm_mixed", "x"), y = engines()("timm_mixed", "out");
  for (std::size_t block = 0; block < 2; ++block) {
    MixedAxes m;
    m.head_dim = 16;
    m.heads = 2;
    m.axes = 2;
    m.pairing = Pairing::interleaved;
    for (std::size_t head = 0; head < 2; ++head)
      for (std::size_t axis = 0; axis < 2; ++axis)
        for (std::size_t i = 0; i < 8; ++i)
          m.frequencies.push_back(f[((axis * 2 + block) * 2 + head) * 8 + i]);
    const RotarySpec spec = resolve(m);
    for (std::size_t head = 0; head < 2; ++head)
      for (std::size_t t = 0; t < 12; ++t) {
        const std::size_t base = ((block * 2 + head) * 12 + t) * 16;
        const std::vector<double> v(x.value.begin() + static_cast<std::ptrdiff_t>(base),
                                    x.value.begin() + static_cast<std::ptrdiff_t>(base + 16));
        const std::vector<double> r =
            reference_rotate(spec, v, {static_cast<double>(t % 4), static_cast<double>(t / 4)},
                             static_cast<Index>(head));
        for (std::size_t d = 0; d < 16; ++d) ASSERT_NEAR(r[d], y.value[base + d], 4.1e-6);
      }
  }
}

TEST(Papers, SeveralAxes) {
  using namespace axial_presets;
  for (const char* x : {"q", "k"}) {
    const std::string out = x + std::string("_out");
    const std::vector<double> first = engines()("paper_glm_2d", "position_ids").value;
    const std::vector<double> second = engines()("paper_glm_2d", "block_position_ids").value;
    expect_rotation({engines(), "paper_glm_2d", x, out, "tbhd", 1.8e-8}, resolve(chatglm_2d(16)),
                    [&](Index, Index t) {
                      const auto i = static_cast<std::size_t>(t);
                      return std::vector{first[i], second[i]};
                    });
    expect_rotation({engines(), "paper_flux", x, out, "bhtd", 1e-6}, resolve(flux({4, 6, 6})),
                    token_major(engines()("paper_flux", "ids"), {0, 1, 2}));
    expect_rotation({engines(), "paper_pixtral", x, out, "thd", 1e-6},
                    resolve(pixtral_vision(16, Pairing::interleaved)), grid(4, row_column));
    expect_rotation({engines(), "paper_rope_vit_axial", x, out, "bhtd", 1e-6},
                    resolve(rope_vit(16)), grid(4, column_row));
  }
  expect_rotation({engines(), "paper_eva02", "x", "out", "bhtd", 6.4e-8},
                  spec_of("axial head_dim=16 axes_dim=[8,8] pairing=interleaved"),
                  grid(5, [](double r, double c) {
                    return std::vector{r / 5 * 16, c / 5 * 16};
                  }));
}

TEST(Xpos, CentresOfKnownPrograms) {
  const auto both = [](const char* test_case, const std::string& scheme, const char* letters,
                       double tolerance, double q_from = 0) {
    const RotarySpec spec = spec_of(scheme);
    expect_rotation({engines(), test_case, "q", "q_out", letters, tolerance, Role::query}, spec,
                    counted(q_from));
    expect_rotation({engines(), test_case, "k", "k_out", letters, tolerance, Role::key}, spec,
                    counted());
  };
  namespace c = xpos_centers;
  const auto with = [](const char* rope, Index center) {
    return std::string("xpos pairing=") + rope + " center=" + std::to_string(center);
  };
  both("paper_xpos_odd", with("interleaved head_dim=8 scale_base=64", c::torchscale(9)), "btd",
       1e-12);
  both("paper_xpos_decode", with("interleaved head_dim=8", c::torchscale(8)), "btd", 1e-12, 6);
  both("paper_flash_xpos", with("half_split head_dim=8", c::flash_attention(9)), "bthd", 1e-12);
  both("lr_xpos", with("interleaved head_dim=16", c::rotary_embedding_torch(9)), "bhtd", 6.8e-8);
  both("xt_xpos", with("interleaved head_dim=8", c::x_transformers(8)), "bhtd", 4e-8);
  // x-transformers' interpolation leaves the power alone ...
  both("xt_xpos_interpolated",
       with("interleaved head_dim=8 scale_base=64", c::x_transformers(8)) + " + linear factor=2",
       "bhtd", 2.5e-8);
  // ... rotary-embedding-torch's divides its position: ((p / s) - c) / B.
  const RotarySpec divided = spec_of(
      with("interleaved head_dim=8 scale_base=64 power_divisor=2", 4) + " + linear factor=2");
  const RotarySpec plain = spec_of(with("interleaved head_dim=8 scale_base=64", 4));
  const std::vector<double> x = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const Role role : {Role::query, Role::key}) {
    const std::vector<double> a = reference_rotate(divided, x, {14}, 0, role);
    const std::vector<double> b = reference_rotate(plain, x, {7}, 0, role);
    for (std::size_t d = 0; d < 8; ++d) EXPECT_NEAR(a[d], b[d], 1e-14);
  }
}

TEST(Xpos, DecayOfPairs) {
  const RotarySpec spec = spec_of("xpos head_dim=8 pairing=half_split center=0");
  const double zeta[] = {0.285714, 0.464286, 0.642857, 0.821429};
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(std::exp2(spec.blocks[0].log2_decay[i]), zeta[i], 5e-7);
  const RotarySpec wide = spec_of("xpos head_dim=64 pairing=half_split center=0");
  const auto over = [&](std::size_t i) {
    return std::exp2(wide.blocks[0].log2_decay[i] * 2048 / wide.blocks[0].decay_scale);
  };
  EXPECT_NEAR(over(0), 0.006664, 5e-7);
  EXPECT_NEAR(over(15), 0.148275, 5e-7);
  EXPECT_NEAR(over(31), 0.91366, 5e-6);
}

}  // namespace
}  // namespace posenc
