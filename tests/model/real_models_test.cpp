// SPDX-License-Identifier: Apache-2.0
// Files as they are met: one small config for each kind of model and era (real_models.json), with
// what explain and doctor must say of it. The numbers are those of transformers 5.23's own classes
// built from the same config (frequencies, gain, counts of layers), or follow from the sizes.
#include <algorithm>
#include <set>

#include "hugging_face_suite.h"

namespace posenc {
namespace {

using namespace test;

// The value at a JSON pointer; null when there is none.
const Json* at_pointer(const Json& json, const std::string& pointer) {
  const Json* at = &json;
  for (std::size_t from = 1; from <= pointer.size();) {
    const auto cut = std::min(pointer.find('/', from), pointer.size());
    const std::string key = pointer.substr(from, cut - from);
    if (at->is_array()) {
      const std::size_t index = std::stoul(key);
      if (index >= at->as_array().size()) return nullptr;
      at = &at->as_array()[index];
    } else {
      at = at->is_object() ? at->find(key) : nullptr;
    }
    if (at == nullptr) return nullptr;
    from = cut + 1;
  }
  return at;
}

bool same(const Json& got, const Json& want) {
  if (!got.is_number() || !want.is_number() || want.is_integer()) return got == want;
  return std::abs(got.as_number() - want.as_number()) <= 1e-12 * std::abs(want.as_number());
}

const Json& real_models() {
  static const Json models =
      read_json(std::filesystem::path(POSENC_SOURCE_DIR) / "tests" / "model" / "real_models.json");
  return models;
}

TEST(RealModels, SayWhatTheyAre) {
  int read = 0, refused = 0, values = 0;
  for (const Json& m : real_models().at("models").as_array()) {
    const std::string who = m.at("name").as_string();
    const ModelSpec spec = read_hugging_face(m.at("config"), "config.json");
    std::set<std::string> codes;
    for (const auto& f : doctor(spec))
      codes.insert(f.code + " " + std::string(enum_text(f.severity)));
    const Json* wanted = m.find("codes");
    for (const Json& code : wanted ? wanted->as_array() : Json::Array{}) {
      EXPECT_TRUE(codes.count(code.as_string())) << who << " lacks " << code.as_string();
    }
    if (const Json* error = m.find("error")) {
      ++refused;
      EXPECT_TRUE(codes.count(error->as_string() + " error")) << who << "\n" << errors_of(spec);
      continue;
    }
    ASSERT_FALSE(spec.has_error()) << who << "\n" << errors_of(spec);
    const Json json = explain_json(spec);
    for (const auto& [pointer, want] : m.at("expect").as_object()) {
      const Json* got = at_pointer(json, pointer);
      ASSERT_TRUE(got) << who << " has no " << pointer;
      EXPECT_TRUE(same(*got, want))
          << who << pointer << " is " << got->dump() << ", not " << want.dump();
      ++values;
    }
    ++read;
  }
  EXPECT_GE(read, 80);
  EXPECT_GE(refused, 6);
  EXPECT_GE(values, 500);
}

// docs/interfaces.md section 2: every value of `rotary` and `attention` has a field, every field a
// source and a place, every layer all its keys.
void expect_complete(const Json& layer, const std::string& who) {
  for (const char* key :
       {"index", "attention", "scheme", "encodings", "rotary", "query_temperature", "fields"})
    ASSERT_TRUE(layer.find(key)) << who << key;
  std::set<std::string> need{"attention", "scheme"};
  const Json& attention = layer.at("attention");
  for (const char* key : {"kind", "left", "right", "chunk"}) ASSERT_TRUE(attention.find(key));
  if (!attention.at("left").is_null() || !attention.at("right").is_null()) need.insert("window");
  if (!attention.at("chunk").is_null()) need.insert("chunk");
  if (const Json& rotary = layer.at("rotary"); !rotary.is_null()) {
    need.insert({"head_dim", "rotary_dim", "offset", "pairing", "direction", "output_order", "base",
                 "inv_freq", "attention_factor", "logit_factor"});
    if (!rotary.at("axes").is_null()) need.insert("axes");
    EXPECT_EQ(rotary.at("inv_freq").as_array().size() * 2,
              static_cast<std::size_t>(rotary.at("rotary_dim").as_integer()))
        << who;
    for (const Json& block : rotary.at("blocks").as_array())
      for (const char* key :
           {"offset", "width", "pairing", "direction", "output_order", "inv_freq", "axes"})
        EXPECT_TRUE(block.find(key)) << who << key;
  }
  if (!layer.at("query_temperature").is_null())
    need.insert({"query_temperature.form", "query_temperature.beta", "query_temperature.period"});
  for (const auto& name : need) EXPECT_TRUE(layer.at("fields").find(name)) << who << name;
  for (const auto& [name, field] : layer.at("fields").as_object()) {
    const std::string& source = field.at("source").as_string();
    EXPECT_TRUE(source == "stated" || source == "class_default" || source == "derived" ||
                source == "user");
    EXPECT_FALSE(field.at("where").as_string().empty()) << who << name;
  }
}

TEST(RealModels, ExplainHasEveryFieldOfItsForm) {
  for (const Json& m : real_models().at("models").as_array()) {
    if (m.find("error")) continue;
    const std::string who = m.at("name").as_string() + " ";
    const Json json = explain_json(read_hugging_face(m.at("config"), "config.json"));
    for (const char* key : {"schema", "model_type", "reader", "context", "input", "layers",
                            "towers", "memory", "findings"})
      ASSERT_TRUE(json.find(key)) << who << key;
    for (const char* key : {"table_bytes_at_context", "table_free_bytes",
                            "key_cache_bytes_per_token", "key_cache_bytes_at_context"})
      EXPECT_TRUE(json.at("memory").find(key)) << who << key;
    for (const Json& layer : json.at("layers").as_array()) expect_complete(layer, who);
    for (const auto& [name, tower] : json.at("towers").as_object())
      for (const Json& layer : tower.at("layers").as_array()) expect_complete(layer, who + name);
    for (const Json& f : json.at("findings").as_array())
      for (const char* key : {"severity", "code", "message", "where", "fix", "value"})
        EXPECT_TRUE(f.find(key)) << who << key;
  }
}

}  // namespace
}  // namespace posenc
