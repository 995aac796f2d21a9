// SPDX-License-Identifier: Apache-2.0
// What the tests of the input side share: configs, and looking at findings.
#pragma once
#include "hugging_face_suite.h"

namespace posenc::test {

inline Json config(const char* text) {
  return parse_json(text, "config.json");
}
inline Json with(Json c, const char* key, Json value) {
  c.set(key, std::move(value));
  return c;
}
inline ModelSpec read(const Json& c, std::optional<Index> context = {}) {
  ReadOptions o;
  o.context = context;
  return read_hugging_face(c, "config.json", o);
}
inline const Finding* find(const std::vector<Finding>& all, std::string_view code) {
  for (const Finding& f : all)
    if (f.code == code) return &f;
  return nullptr;
}
inline std::string severity_of(const std::vector<Finding>& all, std::string_view code) {
  const Finding* f = find(all, code);
  return f ? std::string(enum_text(f->severity)) : "none";
}
inline std::string text_of(const ModelSpec& spec) {
  return spec.input.empty() ? "" : to_text(spec.input[0].value);
}

inline const Json& bert() {
  static const Json c = config(R"({"architectures": ["BertForMaskedLM"], "hidden_size": 768,
    "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12,
    "num_hidden_layers": 12, "pad_token_id": 0, "type_vocab_size": 2, "vocab_size": 30522})");
  return c;
}

}  // namespace posenc::test
