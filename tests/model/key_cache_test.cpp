// SPDX-License-Identifier: Apache-2.0
// What a token leaves in the cache of keys: multi-head latent attention without rotary, and layers that read the keys of
// earlier ones. Numbers: shapes of transformers 5.23's caches after a call.
#include <gmock/gmock.h>

#include "class_rules.h"

namespace posenc {
namespace {

using ::testing::ElementsAre;

std::vector<Index> cached_channels(const std::string& text) {
  const ModelSpec spec = read_hugging_face(parse_json(text, "config.json"), "config.json");
  EXPECT_FALSE(spec.has_error()) << text;
  std::vector<Index> channels;
  for (const LayerSpec& l : spec.layers)
    channels.push_back(l.cached_key_channels ? l.cached_key_channels->value : -1);
  return channels;
}

TEST(KeyCacheSize, LatentsOfLayersWithoutRotary) {
  // Kimi Linear caches the channels that others turn as they are.
  EXPECT_THAT(cached_channels(R"({"model_type":"kimi_linear","num_hidden_layers":5})"),
              ElementsAre(0, 0, 0, 0, 512 + 64));
  EXPECT_THAT(cached_channels(R"({"model_type":"kimi_linear","num_hidden_layers":5,
                                  "kv_lora_rank":256,"qk_rope_head_dim":32})"),
              ElementsAre(0, 0, 0, 0, 256 + 32));
  // Mistral Large 4 has none of them where nothing is turned.
  EXPECT_THAT(cached_channels(R"({"model_type":"mistral_large4_text","num_hidden_layers":4})"),
              ElementsAre(512 + 64, 512 + 64, 512 + 64, 512));
  EXPECT_THAT(cached_channels(R"({"model_type":"deepseek_v3","num_hidden_layers":1})"),
              ElementsAre(512 + 64));
}

TEST(KeyCacheSize, KeysOfEarlierLayersAreKeptOnce) {
  EXPECT_THAT(cached_channels(R"({"model_type":"mistral_large4_text","num_hidden_layers":4,
                                  "kv_source_layers":[0,0,2,3],"no_rope_layers":[1,1,1,0]})"),
              ElementsAre(512 + 64, 0, 512 + 64, 512));
  EXPECT_THAT(cached_channels(
                  R"({"model_type":"gemma3n_text","num_hidden_layers":5,"num_kv_shared_layers":2,
                                  "intermediate_size":48,"num_key_value_heads":2,"head_dim":256})"),
              ElementsAre(512, 512, 512, 0, 0));
  // A class without the key does not read it.
  EXPECT_THAT(
      cached_channels(R"({"model_type":"kimi_k2","num_hidden_layers":2,"kv_source_layers":[0,0]})"),
      ElementsAre(512 + 64, 512 + 64));
}

}  // namespace
}  // namespace posenc
