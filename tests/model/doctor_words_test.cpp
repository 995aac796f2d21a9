// SPDX-License-Identifier: Apache-2.0
// What a finding says must be true of the file, and its fix must lead to a file without it. What
// counts in each file: its configuration class of transformers 5.23 was built.
#include "hugging_face_suite.h"

namespace posenc {
namespace {

using namespace test;

ModelSpec read(const std::string& text, const ReadOptions& options = {}) {
  return read_hugging_face(parse_json(text, "config.json"), "config.json", options);
}
std::vector<Finding> of_code(const ModelSpec& spec, const std::string& code) {
  std::vector<Finding> out;
  for (const Finding& f : spec.findings)
    if (f.code.starts_with(code)) out.push_back(f);
  return out;
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::string kLlama3 = R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
                            R"("original_max_position_embeddings":8192,"rope_type":"llama3")";
std::string llama(const std::string& more) {
  return R"({"model_type":"llama","num_hidden_layers":2,"max_position_embeddings":131072,)" + more +
         "}";
}
std::string both(const std::string& top, const std::string& scaling,
                 const std::string& parameters) {
  return llama(top + R"("rope_scaling":{)" + scaling + kLlama3 + R"(},"rope_parameters":{)" +
               parameters + kLlama3 + "}");
}

// transformers takes rope_scaling with the theta beside it or the class's: 10000 and 500000 here.
TEST(DoctorWords, BothSpellingsCompareTheThetaThatCounts) {
  const auto one = [](const std::string& text) {
    const auto found = of_code(read(text), "both_spellings");
    EXPECT_EQ(found.size(), 1u) << text;
    return found.empty() ? Finding{} : found[0];
  };
  const std::string million = R"("rope_theta":1e6,)", half = R"("rope_theta":500000,)";
  for (const auto& [text, says] : std::initializer_list<std::pair<std::string, const char*>>{
           {both("", "", million), "differ in rope_theta (10000 and 1000000)"},
           {both(half, "", million), "differ in rope_theta (500000 and 1000000)"}}) {
    const Finding f = one(text);
    EXPECT_EQ(f.severity, Severity::warning) << f.message;
    EXPECT_TRUE(has(f.message, says)) << f.message;
  }
  for (const std::string& text : {both(half, "", R"("rope_theta":500000.0,)"), both(half, "", ""),
                                  both("", "", ""), both("", million, million)}) {
    const Finding f = one(text);
    EXPECT_EQ(f.severity, Severity::note) << text << f.message;
    EXPECT_TRUE(has(f.message, "Here they agree")) << f.message;
  }
  const Finding less =
      one(llama(R"("rope_scaling":{)" + kLlama3 + R"(},"rope_parameters":{"rope_theta":10000.0})"));
  EXPECT_TRUE(has(less.message, "differ in rope_type, factor")) << less.message;
  const auto lost = of_code(read(both("", "", million)), "theta_lost_v4");
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].severity, Severity::warning);
  EXPECT_EQ(lost[0].where, "config.json#/rope_parameters/rope_theta");
  EXPECT_TRUE(has(lost[0].message, "1000000 is in rope_parameters")) << lost[0].message;
  EXPECT_TRUE(of_code(read(both(half, "", million)), "theta_lost").empty());
}

// Two copies that agree are no finding, two that differ are one.
TEST(DoctorWords, ACopyOfThetaIsSeen) {
  const auto at = [](const std::string& type, const std::string& key, const std::string& inside,
                     const std::string& beside) {
    return read("{\"model_type\":\"" + type + "\"," + beside + "\"" + key + "\":" + inside + "}");
  };
  const std::string flat = R"({"rope_type":"linear","factor":2.0,"rope_theta":500000.0})";
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto note = of_code(at("llama", key, flat, ""), "theta_lost_v5");
    ASSERT_EQ(note.size(), 1u) << key;
    EXPECT_TRUE(has(note[0].message, "is in " + std::string(key) + " and")) << note[0].message;
    for (const char* same : {R"("rope_theta":500000,)", R"("rope_theta":500000.0,)"}) {
      const ModelSpec spec = at("llama", key, flat, same);
      EXPECT_TRUE(of_code(spec, "theta_lost").empty() && of_code(spec, "both_spellings").empty())
          << key << same;
    }
    const ModelSpec other = at("llama", key, flat, R"("rope_theta":1e6,)");
    EXPECT_TRUE(of_code(other, "theta_lost").empty()) << key;
    const auto warned = of_code(other, "both_spellings");
    ASSERT_EQ(warned.size(), 1u) << key;
    EXPECT_TRUE(has(warned[0].message, "500000 inside the scaling and 1000000 beside it"))
        << warned[0].message;
    EXPECT_EQ(other.layers.at(0).field("base")->value, Json(500000.0));
  }
  const std::string typed = R"({"full_attention":{"rope_type":"default","rope_theta":7e6},)"
                            R"("sliding_attention":{"rope_type":"default","rope_theta":10000.0}})";
  EXPECT_EQ(of_code(at("gemma3_text", "rope_parameters", typed, ""), "theta_lost_v5").size(), 1u);
  const ModelSpec copy = at("gemma3_text", "rope_parameters", typed, R"("rope_theta":7e6,)");
  EXPECT_TRUE(of_code(copy, "theta_lost").empty() && of_code(copy, "both_spellings").empty());
  const ModelSpec other = at("gemma3_text", "rope_parameters", typed, R"("rope_theta":1e6,)");
  EXPECT_TRUE(of_code(other, "theta_lost").empty());
  EXPECT_EQ(of_code(other, "both_spellings").size(), 1u);
}

// Gemma-3-4B as published states no theta; its class holds 1e6 and 1e4.
TEST(DoctorWords, ThetasOfAClassByLayerTypeAreNotLost) {
  const ModelSpec gemma =
      read(R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text","hidden_size":2560,)"
           R"("num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"}}})");
  ASSERT_FALSE(gemma.has_error()) << errors_of(gemma);
  EXPECT_TRUE(of_code(gemma, "theta_lost").empty());
  const auto notes = of_code(gemma, "missing_key");
  ASSERT_EQ(notes.size(), 2u);
  for (const Finding& f : notes) EXPECT_EQ(f.severity, Severity::note) << f.message;
  EXPECT_EQ(gemma.layers.at(5).field("base")->value, Json(1e6));
  EXPECT_EQ(gemma.layers.at(0).field("base")->value, Json(1e4));
  const auto lost = of_code(read(llama(R"("rope_scaling":{)" + kLlama3 + "}")), "theta_lost_v4");
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].severity, Severity::warning);
  EXPECT_TRUE(has(lost[0].message, "If the model was trained with another")) << lost[0].message;
}

TEST(DoctorWords, ARampThatIsAStep) {
  const auto at = [](const std::string& type, const std::string& high) {
    const auto found =
        of_code(read("{\"model_type\":\"" + type +
                     R"(","num_hidden_layers":4,"rope_theta":5e5,)"
                     R"("rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,)"
                     R"("original_max_position_embeddings":1024,"high_freq_factor":)" +
                     high + "}}"),
                "range_reversed");
    EXPECT_EQ(found.size(), 1u) << type;
    return found.empty() ? Finding{} : found[0];
  };
  EXPECT_EQ(at("llama4_text", "1.0").severity, Severity::note);
  EXPECT_TRUE(has(at("llama4_text", "1.0").fix, "nothing to do: Llama-4-Scout"));
  for (const Finding& f : {at("llama4_text", "0.5"), at("llama", "1.0"), at("llama", "0.5")}) {
    EXPECT_EQ(f.severity, Severity::warning) << f.message;
    EXPECT_TRUE(has(f.fix, "low_freq_factor 1 and high_freq_factor 4")) << f.fix;
  }
}

// BloomConfig and FalconConfig take n_embed for the width, over hidden_size, unless it is null
// (run).
TEST(DoctorWords, NEmbedIsTheWidth) {
  const auto channels = [](const std::string& sizes) {
    const ModelSpec spec = read(R"({"model_type":"bloom","n_layer":2,"n_head":32,)" + sizes + "}");
    EXPECT_FALSE(spec.has_error()) << sizes << errors_of(spec);
    const auto& n = spec.layers.at(0).cached_key_channels;
    return n ? n->value : -1;
  };
  EXPECT_EQ(channels(R"("n_embed":4096)"), 4096);
  EXPECT_EQ(channels(R"("n_embed":4096,"hidden_size":1024)"), 4096);
  EXPECT_EQ(channels(R"("n_embed":null,"hidden_size":1024)"), 1024);
  EXPECT_EQ(channels(R"("hidden_size":2048)"), 2048);
  for (const char* wrong :
       {R"("n_embed":"4096")", R"("n_embed":true)", R"("n_embed":4096,"hidden_size":"1024")"})
    EXPECT_TRUE(read(std::string(R"({"model_type":"bloom",)") + wrong + "}").has_error()) << wrong;
  const ModelSpec falcon =
      read(R"({"model_type":"falcon","n_embed":2048,"hidden_size":4096,"num_attention_heads":32})");
  ASSERT_FALSE(falcon.has_error()) << errors_of(falcon);
  EXPECT_EQ(falcon.layers.at(0).rotary->head_dim, 64);
  EXPECT_EQ(of_code(falcon, "both_spellings").size(), 1u);
}

}  // namespace
}  // namespace posenc
