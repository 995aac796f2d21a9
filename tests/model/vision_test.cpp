// SPDX-License-Identifier: Apache-2.0
// Vision towers: what the reader makes of a tower's config turns the suite's q and k as the peer's
// own tower did; windows and fields of whole models.
#include <functional>

#include "hugging_face_suite.h"

namespace posenc {
namespace {

using namespace test;

// The definition turned out plainly: a member of a pair is x cos - y sin or x sin + y cos, the
// angle the sum over the axes of position times frequency.
void turn(const RotarySpec& spec, const std::vector<double>& position, double* x) {
  for (const RotaryBlock& b : spec.blocks) {
    const Index pairs = b.pairs();
    for (Index i = 0; i < pairs; ++i) {
      double angle = 0;
      for (Index a = 0; a < b.spectrum.axes; ++a)
        angle += position[static_cast<std::size_t>(a)] *
                 b.spectrum.frequency[static_cast<std::size_t>(a * pairs + i)];
      const bool halves = b.pairing == Pairing::half_split;
      double& first = x[b.offset + (halves ? i : 2 * i)];
      double& second = x[b.offset + (halves ? i + pairs : 2 * i + 1)];
      const double u = first, v = second;
      first = u * std::cos(angle) - v * std::sin(angle);
      second = u * std::sin(angle) + v * std::cos(angle);
    }
  }
}

struct VisionCase {
  const char* name;
  bool heads_first;  // [.., heads, tokens, head_dim]; otherwise [.., tokens, heads, head_dim]
  std::function<std::vector<double>(Index token)> position;
  double allowed = 1e-12;
};

std::vector<double> row(const Numbers& table, Index token) {
  const auto columns = static_cast<std::size_t>(table.shape.back());
  const auto at = static_cast<std::size_t>(token) * columns;
  return {table.values.begin() + static_cast<std::ptrdiff_t>(at),
          table.values.begin() + static_cast<std::ptrdiff_t>(at + columns)};
}

TEST(Vision, EveryTowerTurnsAsThePeers) {
  const auto listed = [](const std::string& name) {
    return [table = numbers(name + "/position_ids")](Index t) { return row(table, t); };
  };
  const VisionCase kCases[] = {
      {"vision_qwen2_vl_axial", false, listed("vision_qwen2_vl_axial")},
      {"vision_pixtral_axial", true, listed("vision_pixtral_axial")},
      {"vision_gemma4_blocks", false, listed("vision_gemma4_blocks")},
      // 3 x 3 patches counted from 1, x before y; the class token stays
      {"vision_llama4_complex", false,
       [](Index t) {
         return t == 9 ? std::vector<double>{0, 0}
                       : std::vector<double>{double(t % 3 + 1), double(t / 3 + 1)};
       }},
      // 2 x 4 patches after three tokens that stay: centres in [-1, 1], row before column
      {"vision_dinov3_axial", true,
       [](Index t) {
         if (t < 3) return std::vector<double>{0, 0};
         const double r = double((t - 3) / 4), c = double((t - 3) % 4);
         return std::vector<double>{(r + 0.5) / 2 * 2 - 1, (c + 0.5) / 4 * 2 - 1};
       },
       // the peer forms DINOv3's frequencies in float32 in its double run too
       2.4e-7},
  };
  EXPECT_EQ(cases_with("vision_").size(), std::size(kCases));
  for (const VisionCase& c : kCases) {
    const auto found = cases_with(c.name);
    ASSERT_EQ(found.size(), 1u) << c.name;
    const ModelSpec spec = read_case(*found.front());
    ASSERT_FALSE(spec.has_error()) << c.name << errors_of(spec);
    ASSERT_EQ(spec.layers.size(), 1u) << c.name;
    const RotarySpec& rotary = *spec.layers.front().rotary;
    for (const char* which : {"q", "k"}) {
      const Numbers in = numbers(std::string(c.name) + "/" + which);
      const Numbers want = numbers(std::string(c.name) + "/" + which + "_out_f64");
      ASSERT_EQ(in.values.size(), want.values.size());
      const std::size_t rank = in.shape.size();
      const Index width = in.shape[rank - 1];
      ASSERT_EQ(width, rotary.head_dim) << c.name;
      const Index inner = in.shape[rank - 2];
      for (Index r = 0; r < static_cast<Index>(in.values.size()) / width; ++r) {
        const Index token = c.heads_first ? r % inner : r / inner % in.shape[rank - 3];
        const auto at = static_cast<std::ptrdiff_t>(r * width);
        std::vector<double> x(in.values.begin() + at, in.values.begin() + at + width);
        turn(rotary, c.position(token), x.data());
        for (Index i = 0; i < width; ++i)
          EXPECT_NEAR(x[static_cast<std::size_t>(i)], want.values[static_cast<std::size_t>(at + i)],
                      c.allowed)
              << c.name << " " << which << " row " << r << " channel " << i;
      }
    }
  }
}

Json tower_model(const char* whole, const char* text, Json vision) {
  return Json::object({{"model_type", whole},
                       {"text_config", Json::object({{"model_type", text}})},
                       {"vision_config", std::move(vision)}});
}

// Qwen2.5-VL: 112 pixels a window, patches of 14: 8 x 8 of them, but on four layers.
TEST(Vision, WindowsOfPatches) {
  const ModelSpec spec = read_hugging_face(
      tower_model("qwen2_5_vl", "qwen2_5_vl_text",
                  Json::object({{"depth", 10},
                                {"hidden_size", 1280},
                                {"num_heads", 16},
                                {"fullatt_block_indexes", Json::array({Json(3), Json(9)})}})),
      "config.json");
  ASSERT_EQ(spec.towers.size(), 1u) << errors_of(spec);
  const auto& layers = spec.towers.front().layers;
  ASSERT_EQ(layers.size(), 10u);
  for (const LayerSpec& layer : layers) {
    const bool full = layer.index == 3 || layer.index == 9;
    EXPECT_EQ(layer.attention.kind, full ? AttentionKind::full : AttentionKind::chunked);
    if (!full) {
      EXPECT_EQ(layer.attention.chunk, Index{64});
    }
    EXPECT_FALSE(layer.attention.left || layer.attention.right);
  }
}

// Axes and order of towers that have no case of their own, as transformers 5.23 composes them.
TEST(Vision, OrderOfTheAxes) {
  struct Expected {
    const char *whole, *text;
    Json vision;
    std::vector<Index> axes;  // of the first pairs
    Pairing pairing;
  };
  const auto sizes = [](const char* layers, const char* heads) {
    return Json::object({{layers, 1}, {"hidden_size", 32}, {heads, 2}});
  };
  const Expected kExpected[] = {
      {"step3p7",
       "step3p5",
       sizes("num_hidden_layers", "num_attention_heads"),
       {1, 1, 1, 1, 0, 0, 0, 0},
       Pairing::half_split},
      {"qwen3_vl",
       "qwen3_vl_text",
       sizes("depth", "num_heads"),
       {0, 0, 0, 0, 1, 1, 1, 1},
       Pairing::half_split},
  };
  for (const Expected& e : kExpected) {
    const ModelSpec spec = read_hugging_face(tower_model(e.whole, e.text, e.vision), "config.json");
    ASSERT_EQ(spec.towers.size(), 1u) << e.whole << errors_of(spec);
    ASSERT_EQ(spec.towers[0].layers.size(), 1u) << e.whole;
    const RotaryBlock& b = spec.towers[0].layers[0].rotary->blocks.front();
    EXPECT_EQ(b.pairing, e.pairing) << e.whole;
    for (std::size_t i = 0; i < e.axes.size(); ++i)
      EXPECT_NE(b.spectrum.frequency[static_cast<std::size_t>(e.axes[i] * b.pairs()) + i], 0)
          << e.whole << " pair " << i;
  }
}

}  // namespace
}  // namespace posenc
