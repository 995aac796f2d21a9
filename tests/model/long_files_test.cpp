// SPDX-License-Identifier: Apache-2.0
// Files with very many entries: each is read once, and what is wrong with them is said once. No time
// is measured: a reader that looks at every entry for every layer takes minutes here.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "posenc/io/json.h"
#include "posenc/model/read.h"

namespace posenc {
namespace {

ModelSpec read_text(const std::string& text) {
  return read_hugging_face(parse_json(text, "config.json"), "config.json", {});
}

std::string repeated(const std::string& entry, int times) {
  std::string text = entry;
  for (int i = 1; i < times; ++i) text += "," + entry;
  return text;
}

const Finding* found(const ModelSpec& spec, const std::string& code) {
  const auto it = std::find_if(spec.findings.begin(), spec.findings.end(),
                               [&](const Finding& f) { return f.code == code; });
  return it == spec.findings.end() ? nullptr : &*it;
}

TEST(LongFiles, BlocksOfEveryLayer) {
  const std::string block =
      R"({"attention":{"n_heads_in_group":4,"no_op":false,"window_length":null}})";
  const ModelSpec spec =
      read_text(R"({"model_type":"nemotron-nas","hidden_size":512,"num_attention_heads":8,)"
                R"("max_position_embeddings":4096,"num_hidden_layers":4000,"block_configs":[)" +
                repeated(block, 4000) + "]}");
  ASSERT_EQ(spec.layers.size(), 4000U);
  ASSERT_TRUE(spec.layers[3999].cached_key_channels);
  EXPECT_EQ(spec.layers[3999].cached_key_channels->value, 2 * 64);  // 8 // 4 heads of 64 channels
}

TEST(LongFiles, MoreLayerTypesThanLayers) {
  const ModelSpec spec = read_text(
      R"({"model_type":"gemma3_text","hidden_size":512,"num_attention_heads":8,"head_dim":64,)"
      R"("max_position_embeddings":4096,"num_hidden_layers":4,"layer_types":[)" +
      repeated("\"full_attention\"", 64000) + "]}");
  EXPECT_TRUE(spec.layers.empty());
  const Finding* length = found(spec, "layer_types_length");
  ASSERT_TRUE(length);
  EXPECT_EQ(length->value, 64000.0);
}

TEST(LongFiles, UnknownKeysOfTheDictionary) {
  std::string keys;
  for (int i = 0; i < 32000; ++i) keys += ",\"k" + std::to_string(i) + "\":1";
  const ModelSpec spec = read_text(
      R"({"model_type":"llama","hidden_size":512,"num_attention_heads":8,"num_hidden_layers":2,)"
      R"("max_position_embeddings":4096,"rope_scaling":{"rope_type":"linear","factor":2.0)" +
      keys + "}}");
  EXPECT_EQ(spec.layers.size(), 2U);
  EXPECT_TRUE(found(spec, "key_ignored"));
}

TEST(LongFiles, CountsThatOverflow) {
  const ModelSpec spec = read_text(R"({"model_type":"swin","depths":[2,9223372036854775807]})");
  const Finding* refused = found(spec, "wrong_type");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->where, "config.json#/depths");
  EXPECT_NE(refused->message.find("got 9223372036854775807"), std::string::npos)
      << refused->message;
}

}  // namespace
}  // namespace posenc
