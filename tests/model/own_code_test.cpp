// SPDX-License-Identifier: Apache-2.0
// auto_map beside a type that transformers knows: its code runs with trust_remote_code, and a key
// that only such code reads says what it does (DNABERT-2, MosaicBERT, jina-embeddings v2, LLM2Vec).
#include <gmock/gmock.h>

#include "hugging_face_suite.h"

namespace posenc {
namespace {

using namespace test;
using testing::HasSubstr;

ModelSpec read_with_code(const std::string& text) {
  return read_hugging_face(parse_json(text, "config.json"), "config.json");
}
const Finding* code_in(const ModelSpec& spec, const std::string& code) {
  for (const Finding& f : spec.findings)
    if (f.code == code) return &f;
  return nullptr;
}
std::string bert_with(const std::string& more) {
  return R"({"model_type":"bert","num_hidden_layers":2,"max_position_embeddings":512)" + more + "}";
}

TEST(OwnCode, IsNamedBesideAKnownType) {
  const char* map = R"(,"auto_map":{"AutoConfig":"configuration_bert.BertConfig",
                        "AutoModelForMaskedLM":"bert_layers.BertForMaskedLM"})";
  const ModelSpec plain = read_with_code(bert_with(map));
  const Finding* note = code_in(plain, "remote_code");
  ASSERT_TRUE(note);
  EXPECT_EQ(note->severity, Severity::note);
  EXPECT_EQ(note->where, "config.json#/auto_map");
  EXPECT_THAT(note->message, HasSubstr("bert_layers.BertForMaskedLM"));
  EXPECT_THAT(note->message, HasSubstr("BertConfig of transformers"));
  EXPECT_FALSE(code_in(plain, "key_ignored"));
  // A configuration class alone is the repository's too; a tokenizer or a list is no model.
  EXPECT_TRUE(
      code_in(read_with_code(bert_with(R"(,"auto_map":{"AutoConfig":"c.C"})")), "remote_code"));
  for (const char* other : {R"(,"auto_map":{"AutoTokenizer":["t.T",null],"AutoProcessor":"p.P"})",
                            R"(,"auto_map":{})", R"(,"auto_map":"b.B")", ""})
    EXPECT_FALSE(code_in(read_with_code(bert_with(other)), "remote_code")) << other;
}

// A type whose class is the repository's anyway has one note, not two.
TEST(OwnCode, IsSaidOnce) {
  const ModelSpec spec = read_with_code(
      R"({"model_type":"internlm2","hidden_size":64,"num_attention_heads":4,"num_hidden_layers":2,
          "max_position_embeddings":512,"auto_map":{"AutoModel":"modeling_internlm2.Model"}})");
  int notes = 0;
  for (const Finding& f : spec.findings) notes += f.code == "remote_code";
  EXPECT_EQ(notes, 1);
}

TEST(OwnCode, OfTheTextPart) {
  const ModelSpec spec = read_with_code(
      R"({"model_type":"llava","text_config":{"model_type":"llama","num_hidden_layers":2,
          "auto_map":{"AutoModelForCausalLM":"modeling_x.X"}},
          "vision_config":{"model_type":"clip_vision_model"}})");
  const Finding* note = code_in(spec, "remote_code");
  ASSERT_TRUE(note);
  EXPECT_EQ(note->where, "config.json#/text_config/auto_map");
}

// Code that is known beside a type of transformers: its positions count, not those of the type.
TEST(OwnCode, KnownCodeCounts) {
  const auto scheme_of = [](const std::string& map, const std::string& more) {
    const ModelSpec spec =
        read_with_code(bert_with(R"(,"auto_map":{"AutoModel":")" + map + R"("},)" + more));
    EXPECT_FALSE(spec.has_error()) << map;
    return spec.layers.at(0).scheme + (spec.input.empty() ? "" : " learned");
  };
  const std::string alibi = R"("position_embedding_type":"alibi")",
                    start = R"("alibi_starting_size":8)";
  EXPECT_EQ(scheme_of("jinaai/jina-bert-implementation--modeling_bert.JinaBertModel", alibi),
            "alibi");
  EXPECT_EQ(scheme_of("modeling_bert.JinaBertModel", alibi), "none learned");
  EXPECT_EQ(scheme_of("zhihan1996/DNABERT-2-117M--bert_layers.BertModel", start), "alibi");
  EXPECT_EQ(scheme_of("bert_layers.BertModel", R"("pad_token_id":0)"), "none learned");
  const ModelSpec normed = read_with_code(bert_with(
      R"(,"auto_map":{"AutoModel":"jinaai/jina-bert-v2-qk-post-norm--modeling_bert.M"})"));
  EXPECT_THAT(explain_json(normed).dump(), HasSubstr("over all heads"));
}

// A file of LLaVA's own code has the text's keys at the top, where transformers' class does not look.
TEST(OwnCode, OfLlava) {
  const auto read = [](const std::string& more) {
    return read_with_code(R"({"model_type":"llava","mm_vision_tower":"clip","hidden_size":64,
        "num_attention_heads":4,"num_hidden_layers":3,"rope_theta":5000.0)" +
                          more + "}");
  };
  const ModelSpec llama = read(R"(,"architectures":["LlavaLlamaForCausalLM"])");
  ASSERT_EQ(llama.layers.size(), 3u);
  EXPECT_EQ(llama.layers[0].rotary->head_dim, 16);
  EXPECT_EQ(llama.layers[0].field("base")->value, Json(5000.0));
  EXPECT_TRUE(llama.towers.empty());
  for (const char* other : {"", R"(,"architectures":["LlavaMptForCausalLM"])"}) {
    const ModelSpec spec = read(other);
    EXPECT_TRUE(spec.has_error()) << other;
    EXPECT_THAT(code_in(spec, "layout_not_covered")->message, HasSubstr("LLaVA's own code"));
  }
  EXPECT_EQ(read(R"(,"text_config":{"num_hidden_layers":2})").layers.size(), 2u);
}

// Keys of another scheme, which the class does not read: a warning with and without auto_map.
TEST(OwnCode, KeysThatShowAnotherScheme) {
  const char* map = R"(,"auto_map":{"AutoModel":"modeling_x.X"})";
  for (const char* key :
       {R"("alibi_starting_size":512)", R"("position_embedding_type":"alibi")",
        R"("use_alibi":true)", R"("rotary_emb_fraction":1.0)", R"("use_rope":true)",
        R"("relative_attention_num_buckets":32)", R"("position_encoding_type":"rotary")",
        R"("relative_attention":true)", R"("use_relative_position_bias":true)"}) {
    const ModelSpec with = read_with_code(bert_with(std::string(",") + key + map));
    const Finding* warning = code_in(with, "key_ignored");
    ASSERT_TRUE(warning) << key;
    EXPECT_EQ(warning->severity, Severity::warning) << key;
    EXPECT_THAT(warning->message, HasSubstr("modeling_x.X, which auto_map names, may read it"));
    const ModelSpec without = read_with_code(bert_with(std::string(",") + key));
    ASSERT_TRUE(code_in(without, "key_ignored")) << key;
    EXPECT_THAT(code_in(without, "key_ignored")->message, Not(HasSubstr("auto_map")));
  }
  // What the class does anyway.
  EXPECT_FALSE(code_in(read_with_code(bert_with(R"(,"position_embedding_type":"absolute")")),
                       "key_ignored"));
  EXPECT_FALSE(
      code_in(read_with_code(R"({"model_type":"bloom","n_layer":2,"alibi_starting_size":512})"),
              "key_ignored"));
  EXPECT_FALSE(
      code_in(read_with_code(R"({"model_type":"llama","num_hidden_layers":2,"use_rope":true})"),
              "key_ignored"));
}

}  // namespace
}  // namespace posenc
