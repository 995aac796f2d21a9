// SPDX-License-Identifier: Apache-2.0
// A config.json read as llama.cpp reads the model after its converter: the same as the GGUF file
// that the converter wrote of that config (the suite holds both).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "posenc/core/error.h"
#include "suite.h"
#include "support/temporary_directory.h"

namespace posenc {
namespace {

using namespace test;

ModelSpec as_llama_cpp(const Json& config, std::optional<Index> context = {}) {
  ReadOptions options;
  options.reader = "llama_cpp";
  options.context = context;
  return read_hugging_face(config, "config.json", options);
}

void expect_same_rotary(const LayerSpec& x, const LayerSpec& y, const std::string& who) {
  ASSERT_EQ(x.rotary.has_value(), y.rotary.has_value()) << who;
  if (!x.rotary) return;
  EXPECT_EQ(x.rotary->head_dim, y.rotary->head_dim) << who;
  EXPECT_EQ(x.rotary->blocks.size(), y.rotary->blocks.size()) << who;
  const RotaryBlock &p = x.rotary->blocks.at(0), &q = y.rotary->blocks.at(0);
  EXPECT_EQ(p.offset, q.offset) << who;
  EXPECT_EQ(p.pairing, q.pairing) << who;
  EXPECT_EQ(p.spectrum.axes, q.spectrum.axes) << who;
  EXPECT_NEAR(p.spectrum.gain, q.spectrum.gain, 1e-12) << who;
  EXPECT_NEAR(x.rotary->logit_factor(), y.rotary->logit_factor(), 1e-12) << who;
  ASSERT_EQ(p.spectrum.frequency.size(), q.spectrum.frequency.size()) << who;
  // The converter forms Llama-3's divisors in float32, here they are rounded once.
  for (std::size_t k = 0; k < p.spectrum.frequency.size(); ++k)
    EXPECT_NEAR(p.spectrum.frequency[k], q.spectrum.frequency[k],
                4e-7 * std::abs(q.spectrum.frequency[k]))
        << who << " pair " << k;
}

TEST(Convert, ReadsWhatTheConverterWrote) {
  const std::set<std::string> kUnknown{"falcon", "nomic_bert"};
  int compared = 0;
  std::set<std::string> refusals;
  for (const Json& c : cases()) {
    if (c.at("scheme").as_string() != "gguf") continue;
    const std::string name = c.at("name").as_string();
    const ModelSpec file = read_suite_file(name);
    const ModelSpec config = as_llama_cpp(*c.at_pointer("/params/hf_config"));
    if (refused(config)) {
      EXPECT_TRUE(finding(config, "layout_not_covered")) << name << '\n' << report(config);
      refusals.insert(name);
      continue;
    }
    ++compared;
    EXPECT_EQ(config.reader, "llama_cpp");
    EXPECT_TRUE(finding(config, "converted")) << name;
    EXPECT_EQ(config.model_type, file.model_type) << name;
    EXPECT_EQ(config.context.value, file.context.value) << name;
    EXPECT_EQ(config.input.size(), file.input.size()) << name;
    ASSERT_EQ(config.layers.size(), file.layers.size()) << name << '\n' << report(config);
    for (std::size_t i = 0; i < file.layers.size(); ++i) {
      const LayerSpec &x = config.layers[i], &y = file.layers[i];
      const std::string who = name + " layer " + std::to_string(i);
      EXPECT_EQ(x.scheme, y.scheme) << who;
      EXPECT_EQ(x.attention.kind, y.attention.kind) << who;
      EXPECT_EQ(x.attention.left, y.attention.left) << who;
      EXPECT_EQ(x.attention.right, y.attention.right) << who;
      expect_same_rotary(x, y, who);
    }
  }
  EXPECT_EQ(refusals, kUnknown);
  EXPECT_EQ(compared, 23);
}

// The original length in and beside the dictionary, or in neither: the converter was run on each
// config (original_lengths.json).
void expect_divisors(const ModelSpec& spec, const Json::Array& divisors, double theta,
                     const std::string& who) {
  const Spectrum& s = spectrum(spec);
  ASSERT_EQ(s.frequency.size(), divisors.size()) << who;
  const auto pairs = static_cast<double>(divisors.size());
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double want = std::pow(theta, -static_cast<double>(i) / pairs) / divisors[i].as_number();
    EXPECT_NEAR(s.frequency[i], want, 4e-7 * want) << who << " pair " << i;
  }
}

TEST(Convert, OriginalLengthWhereTheConverterLooks) {
  const Json made = read_json(std::filesystem::path(POSENC_SOURCE_DIR) /
                              "tests/model_gguf/original_lengths.json");
  int scaled = 0, lengths = 0, failed = 0;
  for (const Json& c : made.at("cases").as_array()) {
    const std::string who = c.at("name").as_string();
    const ModelSpec spec = as_llama_cpp(c.at("config"));
    EXPECT_EQ(refused(spec), c.find("fails") != nullptr) << who << '\n' << report(spec);
    if (refused(spec)) {
      EXPECT_TRUE(finding(spec, "missing_key")) << who;
      ++failed;
      continue;
    }
    const LayerSpec& layer = spec.layers.at(0);
    if (const Json* divisors = c.find("divisors")) {
      expect_divisors(spec, divisors->as_array(), 500000, who);
      ++scaled;
    } else if (const Json* length = c.find("original_context_length")) {
      const auto field = std::ranges::find_if(
          layer.fields, [](const FieldValue& f) { return f.name.ends_with(".original_context"); });
      ASSERT_NE(field, layer.fields.end()) << who;
      EXPECT_EQ(field->value, *length) << who;
      ++lengths;
    } else {
      EXPECT_TRUE(layer.encodings.at(0).value.scalings.empty()) << who;
    }
  }
  EXPECT_EQ(scaled, 8);
  EXPECT_EQ(lengths, 5);
  EXPECT_EQ(failed, 1);
  const auto about = [&](std::size_t i, const char* code) {
    return finding(as_llama_cpp(made.at("cases").as_array()[i].at("config")), code);
  };
  EXPECT_FALSE(about(0, "both_spellings") || about(0, "missing_key"));
  EXPECT_TRUE(about(2, "both_spellings"));  // 4096 inside, 16384 beside
  EXPECT_TRUE(about(3, "missing_key"));     // neither
}

Json llama(Json scaling) {
  return Json::object({{"model_type", "llama"},
                       {"hidden_size", 512},
                       {"num_attention_heads", 4},
                       {"num_hidden_layers", 2},
                       {"max_position_embeddings", 4096},
                       {"rope_scaling", std::move(scaling)}});
}

TEST(Convert, SaysWhatTheConverterDrops) {
  const ModelSpec dynamic =
      as_llama_cpp(llama(Json::object({{"rope_type", "dynamic"}, {"factor", 2.0}})), 16384);
  ASSERT_FALSE(refused(dynamic)) << report(dynamic);
  EXPECT_TRUE(finding(dynamic, "gguf_lost"));
  EXPECT_EQ(dynamic.layers.at(0).encodings.at(0).value.scalings.size(), 0u);
  // llama's q and k are permuted on the way: neighbours turn together there
  EXPECT_EQ(dynamic.layers.at(0).rotary->blocks.at(0).pairing, Pairing::interleaved);
  const ModelSpec odd =
      as_llama_cpp(llama(Json::object({{"rope_type", "brand_new"}, {"factor", 2.0}})));
  EXPECT_TRUE(refused(odd));
  const ModelSpec unknown = as_llama_cpp(Json::object({{"model_type", "brand_new"}}));
  EXPECT_TRUE(finding(unknown, "layout_not_covered"));
}

// The other way: a GGUF file as transformers loads it, half-split again and without its scaling.
TEST(Convert, LoadsAsTransformersDoes) {
  ReadOptions options;
  options.reader = "transformers";
  const ModelSpec llama31 = read_suite_file("llama31", options);
  ASSERT_FALSE(refused(llama31)) << report(llama31);
  EXPECT_EQ(llama31.reader, "transformers");
  EXPECT_EQ(llama31.model_type, "llama");
  EXPECT_EQ(llama31.layers.size(), 32u);
  EXPECT_EQ(llama31.context.value, 131072);
  EXPECT_TRUE(finding(llama31, "gguf_lost"));
  const RotaryBlock& b = llama31.layers[0].rotary->blocks.at(0);
  EXPECT_EQ(b.pairing, Pairing::half_split);
  EXPECT_EQ(b.width(), 128);
  EXPECT_NEAR(b.spectrum.frequency.back(), std::pow(500000., -126. / 128), 1e-20);
  const ModelSpec gemma = read_suite_file("gemma3", options);
  ASSERT_FALSE(refused(gemma)) << report(gemma);
  EXPECT_EQ(gemma.layers[0].attention.left, Index{1023});
  EXPECT_EQ(gemma.layers[5].attention.left, std::nullopt);
  const ModelSpec t5 = read_suite_file("t5", options);
  ASSERT_FALSE(refused(t5)) << report(t5);
  EXPECT_EQ(t5.layers[0].scheme, "t5");
  EXPECT_TRUE(refused(read_suite_file("deepseek_v3", options)));
}

// A directory: config.json before GGUF, except for the reader llama_cpp.
TEST(Convert, ADirectoryOfBothKinds) {
  namespace fs = std::filesystem;
  const test::TemporaryDirectory directory;
  const fs::path folder = directory.path();
  EXPECT_THROW(read_model(folder), FormatError);
  fs::copy_file(kSuite / "files" / "llama31.gguf", folder / "model.gguf");
  EXPECT_EQ(read_model(folder).reader, "llama_cpp");
  std::ofstream(folder / "config.json") << llama(nullptr).dump();
  EXPECT_EQ(read_model(folder).reader, "transformers");
  ReadOptions options;
  options.reader = "llama_cpp";
  EXPECT_EQ(read_model(folder, options).layers.size(), 32u);  // the file's own
  fs::remove(folder / "config.json");
  fs::copy_file(kSuite / "files" / "llama2.gguf", folder / "other.gguf");
  EXPECT_THROW(read_model(folder), FormatError);
  std::ofstream(folder / "broken.gguf") << "{}";
  EXPECT_THROW(read_model(folder / "broken.gguf"), FormatError);
}

}  // namespace
}  // namespace posenc
