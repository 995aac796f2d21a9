// SPDX-License-Identifier: Apache-2.0
// The operators that llama.cpp really ran (conformance/gguf, llama_cpp_operators) against what the
// reader says: frequencies, pairing, amplitude, softmax factor, ALiBi, sections, windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "posenc/io/gguf.h"
#include "suite.h"

namespace posenc {
namespace {

using namespace test;

// ggml's frequencies from its arguments, written from ggml's documentation of rope in double:
// theta_i = base^(-2i/n) / ff_i; YaRN's mix between theta and theta * freq_scale by a ramp between
// floor(corr(beta_fast)) and ceil(corr(beta_slow)).
std::vector<double> ggml_frequencies(const Json& op, const std::vector<double>& divisors) {
  const double n = op.at("n_dims").as_number(), base = op.at("freq_base").as_number();
  const double scale = op.at("freq_scale").as_number(), ext = op.at("ext_factor").as_number();
  const auto corr = [&](const char* beta) {
    const double turns = op.at(beta).as_number();
    return n * std::log(op.at("n_ctx_orig").as_number() / (turns * 2 * M_PI)) /
           (2 * std::log(base));
  };
  const double low = std::max(0.0, std::floor(corr("beta_fast")));
  const double high = std::min(n - 1, std::ceil(corr("beta_slow")));
  std::vector<double> out;
  for (int i = 0; 2 * i < n; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const double theta = std::pow(base, -2.0 * i / n) / (divisors.empty() ? 1 : divisors[k]);
    double f = theta * scale;
    if (ext != 0) {
      const double y = (i - low) / std::max(0.001, high - low);
      const double mix = (1 - std::min(1.0, std::max(0.0, y))) * ext;
      f = theta * scale * (1 - mix) + theta * mix;
    }
    out.push_back(f);
  }
  return out;
}

// ggml_mrope's stream of pair i.
Index stream(const Json& op, Index i) {
  std::vector<Index> s;
  for (const Json& n : op.at("sections").as_array()) s.push_back(n.as_integer());
  const Index sum = s[0] + s[1] + s[2] + s[3];
  if (sum == 0) return 0;
  const Index k = i % sum;
  if (op.at("mode").as_string() == "IMROPE") {
    const auto axis = static_cast<std::size_t>(k % 3);
    return k < 3 * s[axis] ? static_cast<Index>(axis) : 3;
  }
  return k < s[0] ? 0 : k < s[0] + s[1] ? 1 : k < s[0] + s[1] + s[2] ? 2 : 3;
}

void check_rope(const Json& op, const LayerSpec& layer, const std::vector<double>& divisors,
                const std::string& who) {
  ASSERT_TRUE(layer.rotary) << who;
  ASSERT_EQ(layer.rotary->blocks.size(), 1u) << who;
  const RotaryBlock& b = layer.rotary->blocks[0];
  const Spectrum& s = b.spectrum;
  EXPECT_EQ(b.width(), op.at("n_dims").as_integer()) << who;
  const std::string mode = op.at("mode").as_string();
  EXPECT_EQ(b.pairing, mode == "NORM" ? Pairing::interleaved : Pairing::half_split) << who;
  EXPECT_EQ(b.direction, 1) << who;
  // Operators are stored as float32.
  EXPECT_NEAR(s.gain, op.at("amplitude").as_number(), 3e-7) << who;
  EXPECT_EQ(field(layer, "base")->value.as_number(), op.at("freq_base").as_number()) << who;
  const auto want = ggml_frequencies(op, divisors);
  ASSERT_EQ(s.pairs(), static_cast<Index>(want.size())) << who;
  for (Index i = 0; i < s.pairs(); ++i)
    for (Index a = 0; a < s.axes; ++a) {
      const double got = s.frequency[static_cast<std::size_t>(a * s.pairs() + i)];
      const double expected =
          s.axes == 1 || stream(op, i) == a ? want[static_cast<std::size_t>(i)] : 0.0;
      EXPECT_NEAR(got, expected, 2e-7 * expected) << who << " pair " << i << " axis " << a;
    }
}

TEST(GgufOperators, AreWhatLlamaCppRan) {
  int models = 0, ropes = 0, attentions = 0;
  for (const Json& c : cases()) {
    const Json* traces = c.at_pointer("/params/expected/llama_cpp_operators");
    if (traces == nullptr || !traces->is_array()) continue;
    ++models;
    const std::string name = c.at("name").as_string();
    const auto bytes = slurp(kSuite / c.at("params").at("file").as_string());
    const GgufFile file = parse_gguf(bytes, name);
    for (const Json& trace : traces->as_array()) {
      ReadOptions options;
      options.context = trace.at("n_ctx").as_integer();
      const ModelSpec m = read_gguf(bytes, name, options);
      ASSERT_FALSE(refused(m)) << name << '\n' << report(m);
      std::vector<bool> turned(static_cast<std::size_t>(trace.at("layers_built").as_integer()));
      for (const Json& o : trace.at("operators").as_array()) {
        const Json& op = o.at("setting");
        for (const Json& l : o.at("layers").as_array()) {
          const LayerSpec& layer = m.layers.at(static_cast<std::size_t>(l.as_integer()));
          const std::string who = name + " layer " + std::to_string(layer.index);
          if (op.at("op").as_string() == "rope") {
            std::vector<double> divisors;
            if (op.at("factors").is_string())
              divisors = file.values(*file.tensor(op.at("factors").as_string()));
            check_rope(op, layer, divisors, who);
            turned.at(static_cast<std::size_t>(layer.index)) = true;
            ++ropes;
          } else {
            const double bias = op.at("max_bias").as_number();
            const FieldValue* f = field(layer, "max_bias");
            EXPECT_EQ(f != nullptr ? f->value.as_number() : 0.0, bias) << who;
            EXPECT_EQ(layer.scheme == "alibi", bias > 0) << who;
            const double unscaled = op.at("scale").as_number() * std::sqrt(192.0);
            if (name == "deepseek_v3") {  // heads of 192
              EXPECT_NEAR(layer.rotary->logit_factor(), unscaled, 3e-7);
            }
            ++attentions;
          }
        }
      }
      for (std::size_t i = 0; i < turned.size(); ++i)
        EXPECT_EQ(m.layers[i].rotary.has_value(), turned[i]) << name << " layer " << i;
    }
  }
  EXPECT_EQ(models, 21);
  EXPECT_GT(ropes, 40);
  EXPECT_GT(attentions, 40);
}

// What llama.cpp prints after loading: widths, windows, lengths.
TEST(GgufOperators, AgreeWithWhatLlamaCppPrints) {
  int models = 0;
  for (const Json& c : cases()) {
    const Json* said = c.at_pointer("/params/expected/llama_cpp");
    if (said == nullptr || !said->is_object()) continue;
    ++models;
    const std::string name = c.at("name").as_string();
    const ModelSpec m = read_suite_file(name);
    ASSERT_FALSE(refused(m)) << name << '\n' << report(m);
    EXPECT_EQ(m.model_type, said->at("architecture").as_string());
    EXPECT_EQ(m.context.value, said->at("n_ctx_train").as_integer());
    EXPECT_EQ(m.trained_context, said->at("n_ctx_orig").as_integer());
    EXPECT_EQ(static_cast<Index>(m.layers.size()), said->at("n_layer").as_integer());
    const Index window = said->at("n_swa").as_integer();
    bool slides = false;
    for (const LayerSpec& layer : m.layers) {
      if (layer.attention.kind == AttentionKind::sliding) {
        slides = true;
        EXPECT_EQ(layer.attention.left, window - 1) << name;
      }
      const bool causal = said->at("causal").as_integer() == 1;
      EXPECT_EQ(layer.attention.right, causal ? std::optional<Index>(0) : std::nullopt) << name;
    }
    EXPECT_EQ(slides, window > 0) << name;
  }
  EXPECT_EQ(models, 24);
}

TEST(GgufOperators, EveryValueSaysWhereItCameFrom) {
  for (const Json& c : cases()) {
    if (c.at("scheme").as_string() != "gguf") continue;
    const ModelSpec m = read_suite_file(c.at("name").as_string());
    for (const LayerSpec& layer : m.layers) {
      for (const FieldValue& f : layer.fields) {
        EXPECT_FALSE(f.where.empty()) << f.name;
        const bool tensor = f.where.find(".weight") != std::string::npos;
        const bool own_key = f.where.rfind(m.model_type + ".", 0) == 0;
        EXPECT_TRUE(f.origin != Origin::stated || tensor || own_key) << f.name << ' ' << f.where;
      }
      if (!layer.rotary) continue;
      for (const char* name : {"head_dim", "rotary_dim", "base", "pairing", "attention_factor"})
        EXPECT_NE(field(layer, name), nullptr) << c.at("name").as_string() << ' ' << name;
    }
  }
}

TEST(GgufOperators, TextsReadBack) {
  for (const Json& c : cases()) {
    if (c.at("scheme").as_string() != "gguf") continue;
    const ModelSpec m = read_suite_file(c.at("name").as_string());
    for (const LayerSpec& layer : m.layers)
      for (const auto& e : layer.encodings) EXPECT_EQ(parse_encoding(to_text(e.value)), e.value);
  }
}

}  // namespace
}  // namespace posenc
