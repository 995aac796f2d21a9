// SPDX-License-Identifier: Apache-2.0
// What the reader says of a file against what transformers 5.23 computed from it.
#include <numbers>
#include <set>

#include "hugging_face_suite.h"

namespace posenc {
namespace {

using namespace test;

// inv_freq[_<layer type>][_at_<length>]_f64
struct ArrayName {
  std::string layer_type;
  std::optional<Index> length;
};
std::optional<ArrayName> parse_name(const std::string& full) {
  std::string n = full.substr(full.rfind('/') + 1);
  if (n.rfind("inv_freq", 0) != 0 || n.size() < 12 || n.substr(n.size() - 4) != "_f64")
    return std::nullopt;
  n = n.substr(8, n.size() - 12);
  ArrayName out;
  if (const auto at = n.find("_at_"); at != std::string::npos) {
    out.length = std::stoll(n.substr(at + 4));
    n = n.substr(0, at);
  }
  if (!n.empty()) out.layer_type = n.substr(1);
  return out;
}

// First layer of a type, by the peer's own list of layers; without types the first that turns.
const LayerSpec* layer_of(const ModelSpec& spec, const Json& expect, const std::string& type) {
  if (type.empty()) {
    for (const auto& layer : spec.layers)
      if (layer.rotary) return &layer;
    return nullptr;
  }
  const auto& list = expect.at("layers").as_array();
  for (std::size_t i = 0; i < list.size() && i < spec.layers.size(); ++i)
    if (list[i].as_string() == type) return &spec.layers[i];
  return nullptr;
}

const Json& by_type(const Json& value, const std::string& type) {
  if (const Json* found = value.find(type)) return *found;
  return value;
}

void check_layout(const LayerSpec& layer, const Json& layout, const std::string& who) {
  const RotaryBlock& b = layer.rotary->blocks.front();
  EXPECT_EQ(enum_text(b.pairing), layout.at("pairing").as_string()) << who;
  EXPECT_EQ(b.direction, layout.at("direction").as_integer()) << who;
  EXPECT_EQ(b.output_order == OutputOrder::even_then_odd, layout.find("output_order") != nullptr)
      << who;
  const bool once = layout.at("bfloat16_products").as_string() == "float32, rounded once";
  EXPECT_EQ(layer.rotary->bfloat16_rounds_once, once) << who;
}

TEST(HuggingFace, EverySpectrum) {
  int arrays = 0;
  for (const Json* c : cases_with("spectrum_")) {
    const Json& expect = c->at("expect");
    for (const auto& [key, full] : c->at("outputs").as_object()) {
      const auto name = parse_name(full.as_string());
      if (!name) continue;
      const std::string who = full.as_string();
      const ModelSpec spec = read_case(*c, name->length);
      ASSERT_FALSE(spec.has_error()) << who << "\n" << errors_of(spec);
      const LayerSpec* layer = layer_of(spec, expect, name->layer_type);
      ASSERT_TRUE(layer && layer->rotary) << who;
      expect_same_frequencies(*layer, numbers(full.as_string()), who);
      check_layout(*layer, by_type(expect.at("layout"), name->layer_type), who);
      std::string factor = name->layer_type.empty() ? "all" : name->layer_type;
      if (name->length && !expect.at("attention_factor").find(factor))
        factor += "_at_" + std::to_string(*name->length);
      const double want = expect.at("attention_factor").at(factor).as_number();
      EXPECT_NEAR(gain(*layer), want, 4e-16 * want) << who;
      ++arrays;
    }
  }
  EXPECT_GE(arrays, 60);
}

TEST(HuggingFace, EveryOtherScheme) {
  for (const Json* c : cases_with("no_rotary_")) {
    const ModelSpec spec = read_case(*c);
    ASSERT_FALSE(spec.has_error()) << name_of(*c) << errors_of(spec);
    ASSERT_FALSE(spec.layers.empty());
    const std::string want = c->at("expect").at("scheme").as_string();
    std::set<std::string> acting;
    for (const auto& layer : spec.layers) {
      EXPECT_FALSE(layer.rotary);
      acting.insert(layer.scheme);
    }
    const std::string expected = want == "learned" ? "none" : want;
    EXPECT_TRUE(acting.count(expected)) << name_of(*c);
    acting.erase("none");
    acting.erase(expected);
    EXPECT_TRUE(acting.empty()) << name_of(*c);
  }
}

bool sees(const AttentionSpec& a, Index query, Index key) {
  if (a.left && query - key > *a.left) return false;
  if (a.right && key - query > *a.right) return false;
  if (a.chunk && query / *a.chunk != key / *a.chunk) return false;
  return true;
}

void check_visible(const ModelSpec& spec, const Numbers& visible, Index query,
                   const std::string& who) {
  ASSERT_EQ(visible.shape.size(), 2u) << who;
  ASSERT_EQ(static_cast<Index>(spec.layers.size()), visible.shape[0]) << who;
  for (Index l = 0; l < visible.shape[0]; ++l)
    for (Index k = 0; k < visible.shape[1]; ++k)
      EXPECT_EQ(sees(spec.layers[static_cast<std::size_t>(l)].attention, query, k),
                visible.values[static_cast<std::size_t>(l * visible.shape[1] + k)] != 0)
          << who << " layer " << l << " query " << query << " key " << k;
}

TEST(HuggingFace, EveryLayer) {
  for (const Json* c : cases_with("layers_")) {
    const std::string who = name_of(*c);
    const Index tokens = c->at("params").at("tokens").as_integer();
    const ModelSpec spec = read_case(*c, tokens);
    ASSERT_FALSE(spec.has_error()) << who << errors_of(spec);
    const auto& layers = c->at("expect").at("layers").as_array();
    ASSERT_EQ(spec.layers.size(), layers.size()) << who;
    const Numbers angles = numbers(who + "/angles_at_position_1");
    std::size_t row = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const bool turns = layers[i].at("rotary").as_bool();
      EXPECT_EQ(spec.layers[i].rotary.has_value(), turns) << who << " layer " << i;
      EXPECT_EQ(spec.layers[i].scheme, turns ? "rope" : "none") << who << " layer " << i;
      if (!turns || !spec.layers[i].rotary) continue;
      EXPECT_NEAR(gain(spec.layers[i]), layers[i].at("amplitude").as_number(), 1e-8) << who;
      const auto f = frequencies(spec.layers[i]);
      const auto columns = static_cast<std::size_t>(angles.shape.at(1));
      // Cohere repeats each column, others put the second half behind the first
      const double* own = &angles.values[row * columns];
      const std::size_t step = columns == 2 * f.size() && own[0] == own[1] ? 2 : 1;
      for (std::size_t k = 0; k < f.size(); ++k) {
        const double want = own[k * step];
        const double got = std::remainder(f[k], 2 * std::numbers::pi);
        EXPECT_NEAR(got, want, 3e-6) << who << " layer " << i << " pair " << k;
      }
      ++row;
    }
    check_visible(spec, numbers(who + "/visible"), tokens - 1, who);
    const Numbers middle = numbers(who + "/visible_middle");
    if (!middle.shape.empty()) check_visible(spec, middle, tokens / 2, who);
  }
}

// q_scale: [layer, token] or a row of the layers that scale.
TEST(HuggingFace, QueryTemperature) {
  const Numbers positions = numbers("temperature_ministral3/position_ids");
  const Numbers scale = numbers("temperature_ministral3/scale_f64");
  ASSERT_FALSE(scale.values.empty());
  const QueryTemperature t{TemperatureForm::ministral, 0.1, 16384};
  for (std::size_t i = 0; i < scale.values.size(); ++i)
    EXPECT_NEAR(query_factor(t, positions.values[i]), scale.values[i], 4e-16) << i;
  // reference section 6
  EXPECT_NEAR(query_factor({TemperatureForm::llama4, 0.1, 8192}, 8191), 1.0693147180559945, 3e-16);
  EXPECT_EQ(query_factor({TemperatureForm::ministral, 0.1, 8192}, 8191), 1.0);
  EXPECT_NEAR(query_factor({TemperatureForm::llama4, 0.1, 8192}, 16383), 1.1098612288668110, 3e-16);
  EXPECT_EQ(query_factor({TemperatureForm::log_n, 0, 8192}, 100), 1.0);
  EXPECT_NEAR(query_factor({TemperatureForm::log_n, 0, 8192}, 16383),
              std::log(16384.) / std::log(8192.), 3e-16);
}

// What Llama-4's own layers multiplied q by, token by token: NoPE layers only.
TEST(HuggingFace, QueryTemperatureOfEveryLayer) {
  const auto cases = cases_with("layers_llama4_scout");
  ASSERT_EQ(cases.size(), 1u);
  const Numbers scale = numbers("layers_llama4_scout/q_scale");
  const ModelSpec spec = read_case(*cases[0], cases[0]->at("params").at("tokens").as_integer());
  ASSERT_EQ(scale.shape.size(), 2u);
  int tempered = 0;
  std::vector<const LayerSpec*> with;
  for (const auto& layer : spec.layers) {
    EXPECT_EQ(layer.query_temperature.has_value(), layer.scheme == "none") << layer.index;
    if (layer.query_temperature || scale.shape[0] == static_cast<Index>(spec.layers.size()))
      with.push_back(&layer);
  }
  ASSERT_EQ(scale.shape[0], static_cast<Index>(with.size()));
  for (Index r = 0; r < scale.shape[0]; ++r)
    for (Index t = 0; t < scale.shape[1]; ++t) {
      const auto& own = with[static_cast<std::size_t>(r)]->query_temperature;
      const double got = own ? query_factor(*own, static_cast<double>(t)) : 1.0;
      // measured as the ratio of two float32 norms: the case allows 2e-6
      EXPECT_NEAR(got, scale.values[static_cast<std::size_t>(r * scale.shape[1] + t)], 2e-6)
          << "layer " << with[static_cast<std::size_t>(r)]->index << " token " << t;
      tempered += got != 1;
    }
  EXPECT_GT(tempered, 100);
}

// One module, call after call: frequencies are those of the longest call since the last one that
// was shorter than max_position_embeddings.
TEST(HuggingFace, DynamicNtkOfEveryCall) {
  const auto cases = cases_with("state_dynamic_ntk");
  ASSERT_EQ(cases.size(), 1u);
  const Numbers lengths = numbers("state_dynamic_ntk/lengths");
  const Numbers want = numbers("state_dynamic_ntk/inv_freq_f64");
  ASSERT_EQ(want.shape.size(), 2u);
  const auto pairs = static_cast<std::ptrdiff_t>(want.shape[1]);
  Index held = 64;
  for (std::size_t call = 0; call < lengths.values.size(); ++call) {
    const auto length = static_cast<Index>(lengths.values[call]);
    if (length > held) held = length;
    if (length < 64) held = 64;
    const ModelSpec spec = read_case(*cases[0], held);
    ASSERT_FALSE(spec.has_error()) << errors_of(spec);
    const auto from = want.values.begin() + static_cast<std::ptrdiff_t>(call) * pairs;
    expect_same_frequencies(spec.layers.front(), {{want.shape[1]}, {from, from + pairs}},
                            "call " + std::to_string(call));
  }
}

TEST(HuggingFace, SoftmaxScaleOfLatentAttention) {
  const auto cases = cases_with("softmax_scale_mla");
  ASSERT_EQ(cases.size(), 1u);
  for (const Json& row : cases[0]->at("params").at("rows").as_array()) {
    Json config = Json::object({{"model_type", "deepseek_v3"},
                                {"qk_nope_head_dim", 128},
                                {"qk_rope_head_dim", 64},
                                {"max_position_embeddings", 163840}});
    Json dict = row.at("rope_parameters");
    dict.set("rope_theta", 10000.0);
    config.set("rope_parameters", dict);
    const ModelSpec spec = read_hugging_face(config, "config.json");
    ASSERT_FALSE(spec.has_error()) << errors_of(spec);
    const double size = row.at("qk_head_dim").as_number();
    EXPECT_EQ(spec.layers.front().rotary->head_dim, 192);
    EXPECT_EQ(spec.layers.front().rotary->blocks.front().offset, 128);
    const double want = row.at("scaling").as_number();
    EXPECT_NEAR(spec.layers.front().rotary->logit_factor() / std::sqrt(size), want, 1e-15 * want)
        << row.at("name").as_string();
  }
}

TEST(HuggingFace, LongRopeSwitchesAtEveryCall) {
  for (const Json* c : cases_with("state_longrope")) {
    const Numbers lengths = numbers(name_of(*c) + "/lengths");
    const Numbers want = numbers(name_of(*c) + "/inv_freq_f64");
    for (std::size_t i = 0; i < lengths.values.size(); ++i) {
      const ModelSpec spec = read_case(*c, static_cast<Index>(lengths.values[i]));
      ASSERT_FALSE(spec.has_error()) << errors_of(spec);
      const auto n = static_cast<std::size_t>(want.shape[1]);
      const Numbers row{{static_cast<Index>(n)},
                        {want.values.begin() + static_cast<std::ptrdiff_t>(i * n),
                         want.values.begin() + static_cast<std::ptrdiff_t>((i + 1) * n)}};
      expect_same_frequencies(spec.layers.front(), row, name_of(*c) + " call " + std::to_string(i));
    }
  }
}

TEST(HuggingFace, EveryFileIsRead) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(suite_folder() / "configs")) {
    if (!entry.is_directory()) continue;
    const ModelSpec spec = read_model(entry.path());
    EXPECT_FALSE(spec.has_error()) << entry.path() << "\n" << errors_of(spec);
    EXPECT_FALSE(spec.layers.empty()) << entry.path();
    const Json json = explain_json(spec);
    EXPECT_EQ(json.at("schema").as_string(), "posenc.explain/1");
    EXPECT_EQ(parse_json(json.dump(), "explain"), json);
    (void)doctor_json(doctor(spec)).dump();
    for (const auto& layer : spec.layers)
      for (const auto& e : layer.encodings)
        if (layer.rotary) {  // the text reproduces the rotary
          RotarySpec again = resolve(parse_encoding(to_text(e.value)), Context{spec.context.value});
          again.bfloat16_rounds_once = layer.rotary->bfloat16_rounds_once;
          EXPECT_EQ(again, *layer.rotary) << entry.path() << to_text(e.value);
        }
    ++files;
  }
  EXPECT_EQ(files, 58);
}

TEST(HuggingFace, EveryModelTypeOfTheLayoutsIsKnown) {
  const Json layouts = read_json(suite_folder() / "layouts.json");
  int known = 0;
  for (const auto& [name, layout] : layouts.at("model_types").as_object()) {
    const std::string type = name.substr(0, name.find('.'));
    const Json config = Json::object({{"model_type", type}});
    const ModelSpec spec = read_hugging_face(config, "config.json");
    for (const auto& f : spec.findings) EXPECT_NE(f.code, "unknown_model_type") << type;
    if (!spec.has_error()) {
      EXPECT_FALSE(spec.layers.empty()) << type;
      ++known;
    }
  }
  EXPECT_EQ(layouts.at("model_types").as_object().size(), 188u);
  EXPECT_GE(known, 170);
}

}  // namespace
}  // namespace posenc
