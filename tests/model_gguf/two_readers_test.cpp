// SPDX-License-Identifier: Apache-2.0
// The same model twice: config.json as transformers reads it, GGUF as llama.cpp does. Where the two
// programs compute the same, the two readings must be the same; where they do not, the difference
// is listed here with its reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "suite.h"

namespace posenc {
namespace {

using namespace test;

// Models whose frequencies, axes or layers differ on purpose.
const std::map<std::string, std::string> kDiffer{
    {"gpt_oss", "ggml rounds YaRN's range (truncate_rounded)"},
};

// Frequency of each pair, whatever axis it follows.
std::vector<double> by_pair(const Spectrum& s) {
  std::vector<double> out(static_cast<std::size_t>(s.pairs()), 0.0);
  for (std::size_t k = 0; k < s.frequency.size(); ++k) out[k % out.size()] += s.frequency[k];
  return out;
}

TEST(TwoReaders, AgreeWhereTheProgramsDo) {
  int compared = 0, turned = 0;
  std::set<std::string> differ;
  for (const Json& c : cases()) {
    if (c.at("scheme").as_string() != "gguf") continue;
    const std::string name = c.at("name").as_string();
    const Json* config = c.at_pointer("/params/hf_config");
    ASSERT_NE(config, nullptr) << name;
    const ModelSpec a = read_suite_file(name);
    ReadOptions same_length;
    same_length.context = a.context.value;
    const ModelSpec b = read_hugging_face(*config, name + ".json", same_length);
    ASSERT_FALSE(refused(a)) << name << '\n' << report(a);
    if (refused(b)) {
      // transformers itself refuses it: LongRoPE under its first name, "su" (reference 17.1).
      EXPECT_EQ(name.rfind("phi3", 0), 0u) << name << '\n' << report(b);
      continue;
    }
    ++compared;
    ASSERT_EQ(a.layers.size(), b.layers.size()) << name;
    for (std::size_t i = 0; i < a.layers.size(); ++i) {
      const LayerSpec &x = a.layers[i], &y = b.layers[i];
      const std::string who = name + " layer " + std::to_string(i);
      EXPECT_EQ(x.scheme, y.scheme) << who;
      EXPECT_EQ(x.attention.left, y.attention.left) << who;
      ASSERT_EQ(x.rotary.has_value(), y.rotary.has_value()) << who;
      if (!x.rotary) continue;
      ++turned;
      const RotaryBlock &p = x.rotary->blocks.at(0), &q = y.rotary->blocks.at(0);
      EXPECT_EQ(x.rotary->head_dim, y.rotary->head_dim) << who;
      EXPECT_EQ(p.offset, q.offset) << who;
      EXPECT_EQ(p.width(), q.width()) << who;
      EXPECT_NEAR(p.spectrum.gain, q.spectrum.gain, 1e-7) << who;
      EXPECT_NEAR(x.rotary->logit_factor(), y.rotary->logit_factor(), 1e-6) << who;
      const auto f = by_pair(p.spectrum), g = by_pair(q.spectrum);
      ASSERT_EQ(f.size(), g.size()) << who;
      // Divisors are stored as float32.
      double worst = 0;
      for (std::size_t k = 0; k < f.size(); ++k)
        worst = std::max(worst, std::abs(f[k] - g[k]) / std::abs(g[k]));
      if (worst > 2e-7) differ.insert(name);
      EXPECT_TRUE(worst <= 2e-7 || kDiffer.count(name) != 0) << who << " differs by " << worst;
    }
  }
  EXPECT_GE(compared, 23);
  EXPECT_GT(turned, 300);
  EXPECT_TRUE(differ.count("gpt_oss") != 0);
}

}  // namespace
}  // namespace posenc
