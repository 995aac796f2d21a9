// SPDX-License-Identifier: Apache-2.0
// A law of the reader: a file without an error has as many layers as it states, each at its index.
// All configs at hand are read, and each with single values replaced.
#include "class_rules.h"
#include "model/hugging_face/layer_rules.h"
#include "model/hugging_face/towers.h"
#include "support/sanitized.h"

namespace posenc {
namespace {

using namespace test;

// The count that the text part of a file states; none where no one key or list says it.
std::optional<Index> stated_count(const Json& config) {
  const Json* at = &config;
  for (int depth = 0; depth < 4; ++depth) {
    const Json* type = at->is_object() ? at->find("model_type") : nullptr;
    const hf::ClassRules* rules =
        type && type->is_string() ? hf::class_rules(type->as_string()) : nullptr;
    if (!rules) return std::nullopt;
    if (rules->scheme.empty()) {
      at = at->find(hf::text_key(*rules));
      if (!at) return std::nullopt;
      continue;
    }
    // A list of letters counts itself; convolutions are no layers here.
    const bool counts_itself = rules->layers && rules->layers->rule == "letters";
    if (rules->variants || !rules->decoder.empty() || counts_itself ||
        !rules->no_transformer.empty())
      return std::nullopt;
    hf::Report report("config.json");
    const auto count = hf::layer_count(hf::ConfigView(*at, "", *rules, report));
    return count ? std::optional(count->value) : std::nullopt;
  }
  return std::nullopt;
}

struct Law {
  int held = 0, counted = 0;

  void check(const Json& config) {
    const ModelSpec spec = read_hugging_face(config, "config.json");
    if (spec.has_error()) return;
    ++held;
    at_their_index(spec.layers, config);
    for (const Tower& tower : spec.towers) at_their_index(tower.layers, config);
    const auto count = stated_count(config);
    if (!count) return;
    ++counted;
    EXPECT_EQ(static_cast<Index>(spec.layers.size()), *count) << config.dump();
  }

  // The file with a key's value replaced by some others.
  void check_with(Json config, const std::string& key) {
    for (const Json& other : others()) {
      config.set(key, other);
      check(config);
    }
  }
  // Each of its values, at the top and in its objects.
  void check_replaced(const Json& config) {
    for (const auto& [key, value] : config.as_object()) {
      check_with(config, key);
      for (std::size_t k = 0; value.is_object() && k < value.as_object().size(); ++k)
        for (const Json& other : others()) {
          Json inner = value, copy = config;
          inner.as_object()[k].second = other;
          copy.set(key, inner);
          check(copy);
        }
    }
  }

 private:
  static std::vector<Json> others() { return {nullptr, "x", -1, 0, 1.5, 3, Json::array()}; }
  static void at_their_index(const std::vector<LayerSpec>& layers, const Json& config) {
    for (std::size_t i = 0; i < layers.size(); ++i)
      ASSERT_EQ(layers[i].index, static_cast<Index>(i)) << config.dump();
  }
};

TEST(LayerLaw, HoldsForEveryClass) {
  Law law;
  int n = 0;
  for (const auto& [type, rules] : hf::all_class_rules()) {
    Json config = Json::object({{"model_type", type}});
    law.check(config);
    if (++n % (kSanitized ? 16 : 2) != 0 || !rules.defaults.is_object()) continue;
    for (const auto& [key, held] : rules.defaults.as_object())
      if (!held.is_null()) config.set(key, held);
    law.check_replaced(config);
    for (const char* key : {"partial_rotary_factor", "rope_theta", "rope_scaling", "layer_types"})
      law.check_with(config, key);
  }
  EXPECT_GE(law.held, kSanitized ? 500 : 5000);
  EXPECT_GE(law.counted, kSanitized ? 250 : 2500);
}

TEST(LayerLaw, HoldsForEveryConfigOfTheSuites) {
  Law law;
  int n = 0;
  const auto take = [&](const Json& config) {
    if (!config.is_object()) return;
    law.check(config);
    if (++n % (kSanitized ? 64 : 4) == 0) law.check_replaced(config);
  };
  for (const Json& c : suite_cases().as_array()) {
    const Json& params = c.at("params");
    if (params.find("config_file") || params.find("config")) take(config_of(c));
  }
  const auto folder = std::filesystem::path(POSENC_SOURCE_DIR) / "tests" / "model";
  for (const auto& [file, list] :
       {std::pair{"real_models.json", "models"}, {"remote_code.json", "cases"}}) {
    const Json all = read_json(folder / file);
    for (const Json& m : all.at(list).as_array())
      if (const Json* config = m.find("config")) take(*config);
  }
  EXPECT_GE(law.counted, 200);
}

}  // namespace
}  // namespace posenc
