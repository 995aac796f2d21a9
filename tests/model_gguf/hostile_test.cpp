// SPDX-License-Identifier: Apache-2.0
// Files that must be refused, read, or may be either, without a crash, an over-read or a giant
// allocation. Every file is read from a heap block of its exact size.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <new>

#include "posenc/core/error.h"
#include "suite.h"
#include "support/sanitized.h"

namespace posenc {
namespace {

using namespace test;

// No reader of a file of some kilobytes may need more than this.
class MemoryLimit {
 public:
  MemoryLimit() {
    getrlimit(RLIMIT_AS, &before_);
    if (kSanitized) return;
    rlimit limited = before_;
    limited.rlim_cur = rlim_t{4} << 30;  // the program itself, threads and libraries included
    setrlimit(RLIMIT_AS, &limited);
  }
  ~MemoryLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

std::string reason(const ModelSpec& m) {
  return report(m);
}

TEST(GgufHostile, EveryVerdictIsTheSuites) {
  const MemoryLimit limit;
  int seen = 0, refusals = 0, values = 0, accepted = 0, free_choice = 0;
  for (const Json& c : cases()) {
    if (c.at("scheme").as_string() != "gguf_hostile") continue;
    ++seen;
    const Json& params = c.at("params");
    const std::string file = params.at("file").as_string();
    const std::string expect = params.at("expect").as_string();
    const auto bytes = slurp(kSuite / file);
    ASSERT_EQ(static_cast<Index>(bytes.size()), params.at("bytes").as_integer());
    try {
      const ModelSpec m = read_gguf(bytes, file);
      EXPECT_NE(expect, "refuse") << file;
      if (expect == "refuse_value") {
        ++values;
        EXPECT_TRUE(refused(m)) << file;
        const std::string key = params.at("key").as_string();
        bool named = false;
        for (const Finding& f : m.findings)
          named = named || (f.severity == Severity::error && f.where == key);
        EXPECT_TRUE(named) << file << " must name " << key << '\n' << reason(m);
      } else if (expect == "accept") {
        ++accepted;
        EXPECT_FALSE(refused(m)) << file << '\n' << reason(m);
        EXPECT_FALSE(m.layers.empty()) << file;
      } else {
        ++free_choice;
      }
    } catch (const FormatError& e) {
      EXPECT_TRUE(expect == "refuse" || expect == "free") << file << ' ' << e.what();
      EXPECT_NE(std::string(e.what()).find(file), std::string::npos);
      EXPECT_FALSE(e.place().empty());
      if (const Json* key = params.find("key"); key != nullptr && expect == "refuse") {
        EXPECT_NE(std::string(e.what()).find(key->as_string()), std::string::npos) << e.what();
      }
      if (expect == "refuse")
        ++refusals;
      else
        ++free_choice;
    }
  }
  EXPECT_EQ(seen, 77);
  EXPECT_EQ(refusals, 48);
  EXPECT_EQ(values, 19);
  EXPECT_EQ(accepted, 7);
  EXPECT_EQ(free_choice, 3);
}

// A reading is a plan, a refusal with a finding, or FormatError: nothing else, at any cut.
void survive(const std::vector<std::byte>& bytes) {
  try {
    const ModelSpec m = read_gguf(bytes, "cut");
    for (const Finding& f : m.findings) EXPECT_FALSE(f.code.empty() || f.message.empty());
    EXPECT_TRUE(refused(m) || !m.layers.empty());
  } catch (const FormatError&) {
  }
}

TEST(GgufHostile, SurvivesEveryTruncation) {
  for (const char* name :
       {"accept_full", "accept_every_type", "accept_no_tensors", "accept_version_2",
        "accept_alignment_8", "accept_alignment_512", "accept_trailing_bytes"}) {
    const auto whole = slurp(kSuite / "files" / (std::string(name) + ".gguf"));
    for (std::size_t n = 0; n <= whole.size(); ++n)
      survive(std::vector<std::byte>(whole.begin(), whole.begin() + static_cast<long>(n)));
  }
}

TEST(GgufHostile, SurvivesEveryChangedByte) {
  for (const char* name : {"accept_full", "qwen3vl", "gemma3", "deepseek_v3"}) {
    const auto whole = slurp(kSuite / "files" / (std::string(name) + ".gguf"));
    for (std::size_t n = 0; n < std::min<std::size_t>(whole.size(), 1500); ++n)
      for (const unsigned char bits : {0x01, 0x80, 0xff}) {
        auto changed = whole;
        changed[n] ^= std::byte{bits};
        survive(changed);
      }
  }
}

// llama.cpp refuses a matrix of divisors: it loads a list of one number a pair.
TEST(GgufHostile, DivisorsAreAList) {
  const std::vector<float> values(64, 2.0f);
  Writer list("llama"), matrix("llama"), column("llama");
  EXPECT_FALSE(refused(list.tensor("rope_freqs.weight", values).read()));
  EXPECT_FALSE(refused(column.tensor("rope_freqs.weight", values, {64, 1}).read()));
  const ModelSpec m = matrix.tensor("rope_freqs.weight", values, {32, 2}).read();
  expect_error(m, "list_length", "rope_freqs.weight");
  EXPECT_NE(reason(m).find("must be a list of one number a pair, got 2 axes"), std::string::npos);
}

TEST(GgufHostile, LongFactorsNeedShortOnes) {
  const std::vector<float> values(64, 2.0f);
  Writer beyond("phi3"), within("phi3"), both("phi3");
  expect_error(beyond.tensor("rope_factors_long.weight", values).read(), "table_missing",
               "rope_factors_short.weight");
  expect_error(within.tensor("rope_factors_short.weight", values).read(), "table_missing",
               "rope_factors_long.weight");
  both.tensor("rope_factors_long.weight", values).tensor("rope_factors_short.weight", values);
  EXPECT_FALSE(refused(both.read())) << reason(both.read());
}

TEST(GgufHostile, HeadsDivideTheWidth) {
  Writer w("llama");
  w.set("attention.head_count", 33u);
  const ModelSpec m = w.read();
  expect_error(m, "out_of_range", "llama.embedding_length");
  EXPECT_NE(reason(m).find("multiple of attention.head_count, got 4096 for 33 heads"),
            std::string::npos);
  // Heads of a width of their own need not fill the embedding.
  EXPECT_FALSE(refused(w.set("attention.key_length", 128u).read()));
}

}  // namespace
}  // namespace posenc
