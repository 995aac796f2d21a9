// SPDX-License-Identifier: Apache-2.0
// Every doctor_ case of the suite: which codes, how severe. expected_doctor.json is our verdict: it
// names what is wrong, not what transformers accepts without a word.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "hugging_face_suite.h"

namespace posenc {
namespace {

using namespace test;

// Said of nearly every sound model: not part of a verdict.
bool everywhere(const Finding& f) {
  return f.code == "float32_angle" || f.code == "pair_never_turns" || f.code == "pairing_risk";
}

std::set<std::string> verdict(const ModelSpec& spec) {
  std::set<std::string> out;
  for (const auto& f : doctor(spec))
    if (!everywhere(f)) out.insert(f.code + " " + std::string(enum_text(f.severity)));
  return out;
}

TEST(Doctor, EveryCaseGetsItsVerdict) {
  const Json expected = read_json(std::filesystem::path(POSENC_SOURCE_DIR) / "tests" / "model" /
                                  "expected_doctor.json");
  const auto cases = cases_with("doctor_");
  EXPECT_EQ(cases.size(), 53u);
  for (const Json* c : cases) {
    const ModelSpec spec = read_case(*c);
    std::set<std::string> want;
    const Json* entry = expected.at("cases").find(name_of(*c));
    ASSERT_TRUE(entry) << name_of(*c);
    for (const Json& code : entry->as_array()) want.insert(code.as_string());
    std::string got;
    for (const auto& v : verdict(spec)) got += "\"" + v + "\", ";
    EXPECT_EQ(verdict(spec), want) << name_of(*c) << " got [" << got << "]\n" << errors_of(spec);
    for (const auto& f : spec.findings) {
      EXPECT_FALSE(f.message.empty() || f.where.empty()) << f.code;
      EXPECT_TRUE(f.severity != Severity::error || !f.fix.empty()) << f.code << f.message;
    }
  }
}

// Where the peer built a rotary, ours is the same; where it raised, ours has an error.
TEST(Doctor, WhatThePeerBuiltIsWhatWeRead) {
  int compared = 0;
  for (const Json* c : cases_with("doctor_")) {
    const ModelSpec spec = read_case(*c);
    const bool raises = c->at("expect").at("outcome").as_string() == "raises";
    if (raises) {
      EXPECT_TRUE(spec.has_error()) << name_of(*c);
      continue;
    }
    ASSERT_FALSE(spec.has_error()) << name_of(*c) << errors_of(spec);
    for (const auto& [key, full] : c->at("outputs").as_object()) {
      if (key.rfind("inv_freq", 0) != 0 || key.find("_older") != std::string::npos) continue;
      std::string type = key.substr(8);
      std::optional<Index> context = 1;
      if (type == "_after_9000") context = 9000, type = "";
      const ModelSpec at = read_case(*c, context);
      const bool sliding = type == "_sliding_attention";
      const LayerSpec* layer = nullptr;
      for (const auto& l : at.layers)
        if (!layer && (l.attention.kind == AttentionKind::sliding) == sliding) layer = &l;
      ASSERT_TRUE(layer) << name_of(*c) << key;
      const auto got = frequencies(*layer);
      const Numbers want = numbers(full.as_string());
      ASSERT_EQ(got.size(), want.values.size()) << name_of(*c) << key;
      for (std::size_t i = 0; i < got.size(); ++i)  // the peer's are float32
        EXPECT_NEAR(got[i], want.values[i], 5e-7 * std::abs(want.values[i])) << name_of(*c) << key;
      const Json* factor =
          c->at("expect").find(type.empty() ? "attention_factor" : "attention_factor" + type);
      if (factor && factor->is_number()) {
        EXPECT_NEAR(gain(*layer), factor->as_number(), 4e-16) << name_of(*c);
      }
      ++compared;
    }
  }
  EXPECT_GE(compared, 30);
}

TEST(Doctor, AssumptionsResolveAndAreSaid) {
  Json config = Json::object({{"model_type", "brand_new"},
                              {"hidden_size", 64},
                              {"num_attention_heads", 4},
                              {"num_hidden_layers", 2},
                              {"max_position_embeddings", 4096}});
  EXPECT_TRUE(read_hugging_face(config, "config.json").has_error());
  ReadOptions options;
  options.assume["pairing"] = "interleaved";
  const ModelSpec spec = read_hugging_face(config, "config.json", options);
  ASSERT_FALSE(spec.has_error()) << errors_of(spec);
  EXPECT_EQ(spec.layers.front().rotary->blocks.front().pairing, Pairing::interleaved);
  EXPECT_EQ(spec.layers.front().field("pairing")->origin, Origin::user);
  std::set<std::string> codes;
  for (const auto& f : spec.findings) codes.insert(f.code);
  EXPECT_TRUE(codes.count("unknown_model_type") && codes.count("assumed"));

  config.set("model_type", "llama");
  config.set("rope_scaling",
             Json::object({{"rope_type", "yarn"}, {"original_max_position_embeddings", 1024}}));
  EXPECT_TRUE(read_hugging_face(config, "config.json").has_error());
  for (const char* key : {"yarn.factor", "/rope_scaling/factor"}) {
    ReadOptions by_field;
    by_field.assume[key] = "4";
    const ModelSpec fixed = read_hugging_face(config, "config.json", by_field);
    ASSERT_FALSE(fixed.has_error()) << key << errors_of(fixed);
    ASSERT_TRUE(fixed.layers.front().field("yarn.factor"));
    EXPECT_EQ(fixed.layers.front().field("yarn.factor")->origin, Origin::user) << key;
    EXPECT_EQ(fixed.layers.front().field("yarn.factor")->value.as_number(), 4);
  }
  ReadOptions unused;
  unused.assume["yarn.facto"] = "4";
  unused.assume["yarn.factor"] = "4";
  const ModelSpec misspelt = read_hugging_face(config, "config.json", unused);
  const auto wrong = std::find_if(misspelt.findings.begin(), misspelt.findings.end(),
                                  [](const Finding& f) { return f.code == "assume_unused"; });
  ASSERT_NE(wrong, misspelt.findings.end());
  EXPECT_THAT(wrong->fix,
              testing::AllOf(testing::HasSubstr("did you mean yarn.factor?"),
                             testing::HasSubstr("fields of this model's SCHEME: base, "),
                             testing::HasSubstr("as --assume base=VALUE")));
}

TEST(Doctor, WhatAnAssumptionMeant) {
  const Json config = parse_json(
      R"({"model_type": "mistral", "rope_scaling": {"type": "yarn", "factor": 4,
          "original_max_position_embeddings": 4096}, "num_hidden_layers": 2})",
      "config.json");
  const auto fix = [&](const char* key) {
    ReadOptions options;
    options.assume[key] = "5";
    for (const Finding& f : read_hugging_face(config, "config.json", options).findings)
      if (f.code == "assume_unused") return f.fix;
    return std::string("read");
  };
  for (const auto& [key, meant] :
       {std::pair("window", "did you mean sliding_window?"),
        {"factor", "did you mean yarn.factor?"},
        {"hiden_size", "did you mean hidden_size?"},
        {"/rope_thet", "did you mean /rope_theta?"},
        {"zzzzzzzz", "fields of this model's SCHEME"},
        {"/zzzzzzzz", "name a key that the model's class reads, as --assume /num_hidden"}})
    EXPECT_THAT(fix(key), testing::StartsWith(meant)) << key;
  EXPECT_EQ(fix("sliding_window"), "read");
}

// A class that a person chose reads by its own names: what it fills in is said, never taken.
TEST(Doctor, SizesOfAnAssumedClass) {
  const auto read = [](const char* text, std::map<std::string, std::string> assume) {
    ReadOptions options;
    options.assume = std::move(assume);
    return read_hugging_face(parse_json(text, "config.json"), "config.json", options);
  };
  const auto said = [](const ModelSpec& spec) -> const Finding* {
    for (const auto& f : spec.findings)
      if (f.code == "assumed_defaults") return &f;
    return nullptr;
  };
  const char* other = R"({"model_type": "mystery", "n_embd": 512, "n_layer": 7, "n_head": 8,
                          "rope_theta": 20000})";
  for (const auto& [key, value] : {std::pair("pairing", "half_split"), {"model_type", "llama"}}) {
    const ModelSpec spec = read(other, {{key, value}});
    const Finding* f = said(spec);
    ASSERT_TRUE(f) << key;
    EXPECT_EQ(f->severity, Severity::error);
    EXPECT_THAT(f->message,
                testing::AllOf(testing::HasSubstr("hidden_size 4096, num_attention_heads "
                                                  "32, num_hidden_layers 32"),
                               testing::HasSubstr("n_embd 512, n_layer 7, n_head 8")));
    const ModelSpec sized = read(other, {{key, value},
                                         {"hidden_size", "512"},
                                         {"num_attention_heads", "8"},
                                         {"num_hidden_layers", "7"},
                                         {"max_position_embeddings", "512"}});
    EXPECT_FALSE(said(sized));
    ASSERT_FALSE(sized.has_error()) << errors_of(sized);
    EXPECT_EQ(sized.layers.size(), 7u);
    EXPECT_EQ(sized.layers.front().rotary->head_dim, 64);
  }
  const char* no_layers = R"({"model_type": "mystery", "hidden_size": 512,
                              "num_attention_heads": 8, "n_layer": 7, "rope_theta": 20000})";
  const ModelSpec counted = read(no_layers, {{"pairing", "half_split"}});
  ASSERT_TRUE(said(counted) && !counted.has_error()) << errors_of(counted);
  EXPECT_THAT(said(counted)->message, testing::StartsWith("num_hidden_layers 32, "));
  const char* no_theta = R"({"model_type": "mystery", "head_dim": 64, "num_hidden_layers": 2,
                             "rotary_theta": 500000})";
  const ModelSpec spec = read(no_theta, {{"model_type", "llama"}});
  ASSERT_TRUE(said(spec));
  EXPECT_EQ(said(spec)->severity, Severity::warning);
  EXPECT_THAT(said(spec)->message, testing::HasSubstr("rotary_theta 500000"));
  // Not sizes alone: rows, windows, latent heads; and keys that are no numbers.
  const auto message = [&](const char* text, const char* type) {
    const ModelSpec assumed = read(text, {{"model_type", type}});
    return said(assumed) ? said(assumed)->message : "none";
  };
  const char* sized = R"({"model_type": "mystery", "hidden_size": 512, "num_attention_heads": 8,
                          "num_hidden_layers": 2, "rope_theta": 5e5, "vocab_size": 8,
                          "attn_window": [128, 0], "rope_kind": "yarn"})";
  EXPECT_THAT(message(sized, "gpt2"), testing::HasSubstr("max_position_embeddings 1024"));
  EXPECT_THAT(message(sized, "mistral"),
              testing::AllOf(testing::HasSubstr("sliding_window 4096"),
                             testing::EndsWith("nothing read its attn_window [128, 0], rope_kind "
                                               "\"yarn\"")));
  EXPECT_TRUE(read(sized, {{"model_type", "deepseek_v3"}}).has_error());
  EXPECT_THAT(message(sized, "deepseek_v3"), testing::HasSubstr("qk_rope_head_dim 64"));
  EXPECT_THAT(message(other, "qwen2_vl"), testing::HasSubstr("nothing read its n_embd 512"));
  // The file's own class may fill in what it likes.
  EXPECT_FALSE(said(read(R"({"model_type": "llama"})", {})));
  EXPECT_FALSE(said(read(R"({"model_type": "llama"})", {{"model_type", "llama"}})));
}

TEST(Doctor, NoLayers) {
  const auto codes = [](Index layers) {
    const Json config = Json::object({{"model_type", "llama"}, {"num_hidden_layers", layers}});
    std::string all;
    for (const Finding& f : doctor(read_hugging_face(config, "config.json"))) all += f.code + " ";
    return all;
  };
  EXPECT_THAT(codes(0), testing::HasSubstr("no_layers"));
  EXPECT_THAT(codes(1), testing::Not(testing::HasSubstr("no_layers")));
  // Convolutions have none to count.
  for (const char* type : {"encodec", "efficientnet", "janus_vqgan"})
    for (const Finding& f :
         doctor(read_hugging_face(Json::object({{"model_type", type}}), "config.json")))
      EXPECT_NE(f.code, "no_layers") << type;
  // A tower beside them changes nothing.
  const Json none = parse_json(
      R"({"model_type": "qwen2_vl", "text_config": {"num_hidden_layers": 0}})", "config.json");
  const ModelSpec seeing = read_hugging_face(none, "config.json");
  EXPECT_FALSE(seeing.towers.empty());
  EXPECT_THAT(seeing.findings, testing::Contains(testing::Field(
                                   &Finding::where, "config.json#/text_config/num_hidden_layers")));
}

// Sizes that no model has are named, with the rule and the value.
TEST(Doctor, SizesOfNoModel) {
  const auto said = [](const char* type, const std::string& key, const char* value) {
    const std::string text =
        std::string(R"({"model_type": ")") + type + R"(", ")" + key + R"(": )" + value + "}";
    std::string all;
    for (const auto& f : doctor(read_hugging_face(parse_json(text, "config.json"), "config.json")))
      if (f.where == "config.json#/" + key) all += f.message;
    return all;
  };
  for (const char* type : {"llama", "gpt2", "bert", "opt", "gpt_neox", "bloom"})
    for (const char* key : {"num_hidden_layers", "num_attention_heads", "hidden_size"})
      for (const char* value : {"0", "-1", "1e18", "1000000000000000000"}) {
        EXPECT_THAT(said(type, key, value), testing::StartsWith(std::string(key) + " must be "))
            << type << " " << value;
      }
  for (const char* value : {"0", "-1", "1e18"})
    EXPECT_THAT(said("llama", "head_dim", value),
                testing::StartsWith("head_dim must be a whole number from 1 to 65536, got "));
  EXPECT_EQ(said("gpt2", "n_layer", "0"),
            "n_layer must be positive, got 0: the model has 0 layers");
}

TEST(Doctor, RisksAtTheContext) {
  const auto find = [](const std::vector<Finding>& all, std::string_view code) -> const Finding* {
    for (const auto& f : all)
      if (f.code == code) return &f;
    return nullptr;
  };
  ReadOptions options;
  const auto folder = suite_folder() / "configs";
  auto findings = doctor(read_model(folder / "llama_3_1_8b", options));
  const Finding* angle = find(findings, "float32_angle");
  ASSERT_TRUE(angle && angle->value);
  // reference 12.2: base 5e5 at 128k, 8.9e-3 over a sample of positions
  EXPECT_GT(*angle->value, 1e-3);
  EXPECT_LT(*angle->value, 2e-2);
  EXPECT_FALSE(find(findings, "context_beyond_table"));
  options.context = 2'000'000;
  findings = doctor(read_model(folder / "llama_2_7b", options));
  ASSERT_TRUE(find(findings, "context_beyond_table"));
  EXPECT_EQ(find(findings, "context_beyond_table")->severity, Severity::warning);
  EXPECT_EQ(find(findings, "float32_angle")->severity, Severity::warning);
  EXPECT_TRUE(find(doctor(read_model(folder / "llama_2_7b_dynamic")), "dynamic_cache"));
  EXPECT_TRUE(find(doctor(read_model(folder / "phi_3_mini_128k")), "switch_length"));
  EXPECT_TRUE(find(doctor(read_model(folder / "exaone_4_32b")), "scaling_hidden_by_window"));
  const Finding* logit = nullptr;
  findings = doctor(read_model(folder / "deepseek_v3"));
  logit = find(findings, "mla_logit_factor");
  ASSERT_TRUE(logit && logit->value);
  EXPECT_NEAR(*logit->value, 1.8738542070926265, 1e-15);
}

// Llama-3.1 states 131072, more than its factor times the trained length.
TEST(Doctor, TheLengthThatTheFileStatesIsInItsTable) {
  const auto beyond = [](Index context) {
    ReadOptions options;
    options.context = context;
    const auto all = doctor(read_model(suite_folder() / "configs" / "llama_3_1_8b", options));
    const auto f = std::find_if(all.begin(), all.end(), [](const Finding& one) {
      return one.code == "context_beyond_table";
    });
    return f == all.end() ? std::optional<double>() : f->value;
  };
  EXPECT_EQ(beyond(131072), std::nullopt);
  EXPECT_EQ(beyond(131073), 131072.0);
}

// The reader notes a switch once for all layers; the doctor repeats it, as a warning where the
// context passes it.
TEST(Doctor, ASwitchOfFrequenciesIsSaidOnce) {
  const auto switches = [](const std::vector<Finding>& all) {
    std::vector<Finding> found;
    for (const Finding& f : all)
      if (f.code == "switch_length") found.push_back(f);
    return found;
  };
  for (const Index context : {4096, 4097}) {
    ReadOptions options;
    options.context = context;
    const ModelSpec m = read_model(suite_folder() / "configs" / "phi_3_mini_128k", options);
    const auto read = switches(m.findings), told = switches(doctor(m));
    ASSERT_EQ(read.size(), 1U);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(read[0].severity, Severity::note);
    EXPECT_EQ(read[0].value, 4096.0);
    EXPECT_EQ(told[0].severity, context > 4096 ? Severity::warning : Severity::note);
  }
}

}  // namespace
}  // namespace posenc
