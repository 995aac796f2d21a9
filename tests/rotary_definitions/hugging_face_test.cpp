// SPDX-License-Identifier: Apache-2.0
// Rotations of transformers: decoders of one and three streams, vision towers.
#include <numbers>

#include "rotary_definitions/peers.h"

namespace posenc {
namespace {

using namespace test;

TEST(HuggingFace, OneAxis) {
  const Named rows[] = {
      {"apply_llama_half", "rope head_dim=8 pairing=half_split"},
      {"apply_llama_half_far", "rope head_dim=8 pairing=half_split base=500000"},
      {"apply_gpt_neox_partial", "rope head_dim=16 rotary_dim=4 pairing=half_split"},
      {"apply_glm_partial_interleaved", "rope head_dim=16 rotary_dim=8 pairing=interleaved"},
      {"apply_cohere_interleaved", "rope head_dim=8 pairing=interleaved base=500000"},
      {"apply_ernie_4_5_interleaved", "rope head_dim=8 pairing=interleaved base=500000"},
      {"apply_olmo2_half", "rope head_dim=8 pairing=half_split"},
      {"apply_gpt_oss_half_yarn",
       "rope head_dim=16 pairing=half_split base=150000 + yarn factor=32 original_context=4096 "
       "truncate=false"},
      {"apply_phi4_mini_partial_longrope",
       "rope head_dim=16 rotary_dim=12 pairing=half_split + longrope "
       "long_factor=[1,1.5,2.5,4,8,16] original_context=32 switch_rule=always_long factor=128"},
      {"apply_deepseek_v3_interleave",
       "rope head_dim=8 pairing=interleaved output_order=even_then_odd"},
      {"apply_modernbert_half_float32", "rope head_dim=8 pairing=half_split base=160000"},
      {"apply_gemma4_proportional",
       "rope head_dim=16 pairing=half_split base=1e6 + proportional fraction=0.25"},
      {"apply_phi_partial", "rope head_dim=16 rotary_dim=8 pairing=half_split"},
      {"apply_stablelm_partial", "rope head_dim=16 rotary_dim=4 pairing=half_split"},
      {"apply_gptj_interleaved_partial", "rope head_dim=16 rotary_dim=8 pairing=interleaved"},
      {"apply_deepseek_v2_complex",
       "rope head_dim=8 pairing=interleaved + yarn factor=40 original_context=4096 mscale=0.707 "
       "mscale_all_dim=0.5"},
      {"apply_moonshine_partial_interleaved", "rope head_dim=20 rotary_dim=18 pairing=interleaved"},
  };
  for (const Named& row : rows) {
    const RotarySpec spec = spec_of(row.scheme, row.length);
    const PositionOf p = from_array(hugging_face()(row.test_case, "position_ids"));
    for (const char* x : {"q", "k"})
      expect_rotation({hugging_face(), row.test_case, x, x + std::string("_out_f64"), "bhtd"}, spec,
                      p);
  }
  const PositionOf p = from_array(hugging_face()("apply_llama4_complex", "position_ids"));
  expect_rotation({hugging_face(), "apply_llama4_complex", "q", "q_out_f64", "bthd"},
                  spec_of("rope head_dim=8 pairing=interleaved base=500000"), p);
}

TEST(HuggingFace, ThreeStreams) {
  const Named rows[] = {
      {"apply_qwen2_vl_mrope_chunked",
       "mrope head_dim=16 pairing=half_split base=1e6 sections=[2,3,3] layout=chunked"},
      {"apply_qwen3_vl_mrope_interleaved",
       "mrope head_dim=16 pairing=half_split base=500000 sections=[4,2,2] layout=interleaved"},
      {"apply_ernie_4_5_vl_three_axes",
       "mrope head_dim=16 pairing=interleaved base=10000 sections=[3,3,2] layout=ernie"},
  };
  for (const Named& row : rows)
    for (const char* x : {"q", "k"})
      expect_rotation({hugging_face(), row.test_case, x, x + std::string("_out_f64"), "bhtd"},
                      spec_of(row.scheme),
                      from_array(hugging_face()(row.test_case, "position_ids"), true));
}

TEST(HuggingFace, VisionTowers) {
  using namespace axial_presets;
  const auto positions = [&](const char* test_case) {
    return token_major(hugging_face()(test_case, "position_ids"));
  };
  for (const char* x : {"q", "k"}) {
    const std::string out = x + std::string("_out_f64");
    expect_rotation({hugging_face(), "vision_qwen2_vl_axial", x, out, "thd"},
                    resolve(qwen2_vl_vision(8)), positions("vision_qwen2_vl_axial"));
    expect_rotation({hugging_face(), "vision_pixtral_axial", x, out, "htd"},
                    resolve(pixtral_vision(8)), positions("vision_pixtral_axial"));
    expect_rotation({hugging_face(), "vision_gemma4_blocks", x, out, "bthd"},
                    resolve(gemma4_vision(16)), positions("vision_gemma4_blocks"));
    expect_rotation({hugging_face(), "vision_llama4_complex", x, out, "bthd"},
                    resolve(llama4_vision(16)), [](Index, Index t) {
                      if (t == 9) return std::vector<double>{0, 0};  // the class token
                      return std::vector<double>{static_cast<double>(t % 3 + 1),
                                                 static_cast<double>(t / 3 + 1)};
                    });
    expect_rotation({hugging_face(), "vision_dinov3_axial", x, out, "bhtd"}, resolve(dinov3(16)),
                    [](Index, Index t) {
                      if (t < 3) return std::vector<double>{0, 0};  // class and registers
                      // Even the peer's double run rounds 2 pi times the coordinate to float32.
                      const auto rounded = [](double coordinate) {
                        constexpr double kTurn = 2 * std::numbers::pi;
                        // volatile: gcc 12.2 -O2 drops the rounding of two neighbours.
                        const volatile float narrow = static_cast<float>(kTurn * coordinate);
                        return static_cast<double>(narrow) / kTurn;
                      };
                      const double row = static_cast<double>((t - 3) / 4);
                      const double column = static_cast<double>((t - 3) % 4);
                      return std::vector<double>{rounded((row + 0.5) / 2 * 2 - 1),
                                                 rounded((column + 0.5) / 4 * 2 - 1)};
                    });
  }
}

}  // namespace
}  // namespace posenc
