// SPDX-License-Identifier: Apache-2.0
// A suite whose numbers are wrong must fail: one element of every expected array is moved, and
// every case that holds one must notice.
#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <set>

#include "conformance/runner/runner.h"
#include "posenc/io/array.h"
#include "support/temporary_directory.h"

namespace posenc::conformance {
namespace {

namespace fs = std::filesystem;

template <class T>
void add_one(Array& a, std::size_t i) {
  T v{};
  std::memcpy(&v, a.bytes.data() + sizeof(T) * i, sizeof(T));
  v = static_cast<T>(v + T{1});
  std::memcpy(a.bytes.data() + sizeof(T) * i, &v, sizeof(T));
}

void move_one_element(Array& a) {
  const std::size_t i = static_cast<std::size_t>(a.count()) / 2;
  switch (a.dtype) {
    case DType::f64:
      return add_one<double>(a, i);
    case DType::f32:
      return add_one<float>(a, i);
    case DType::i64:
      return add_one<std::int64_t>(a, i);
    case DType::i32:
      return add_one<std::int32_t>(a, i);
    case DType::u8:
      return add_one<std::uint8_t>(a, i);
    case DType::f16:
    case DType::bf16:  // another exponent
      a.bytes[2 * i + 1] ^= std::byte{0x08};
      return;
  }
}

bool is_named(const std::string& checks, const std::string& output) {
  return checks.find('"' + output + '"') != std::string::npos ||
         checks.find('"' + output + '[') != std::string::npos;
}

// What a program recorded on the way is an output of its case and may go into a check: both ends of
// a rotation by 0, moved alike, would still agree.
bool goes_in(const Json& checks, const std::string& output) {
  for (const Json& check : checks.as_array())
    if (const Json* in = check.find("in"))
      for (const auto& [ours, theirs] : in->as_object())
        if (theirs.dump().find('"' + output + '"') != std::string::npos) return true;
  return false;
}

// The suite with one element of each array that a check names moved. Returns the cases that hold
// such an array.
std::set<std::string> spoil(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(from))
    if (entry.path().filename() != "arrays.safetensors")
      fs::copy(entry.path(), to / entry.path().filename(), fs::copy_options::recursive);
  Arrays arrays = read_safetensors(from / "arrays.safetensors");
  const Json cases = read_json(from / "cases.json");
  std::set<std::string> spoiled;
  for (const Json& c : cases.at("cases").as_array()) {
    if (c.find("posenc") == nullptr) continue;
    const std::string checks = c.at("posenc").dump();
    for (const auto& [name, stored] : c.at("outputs").as_object()) {
      if (!is_named(checks, name) || goes_in(c.at("posenc"), name)) continue;
      move_one_element(arrays.at(stored.as_string()));
      spoiled.insert(c.at("name").as_string());
    }
  }
  write_safetensors(to / "arrays.safetensors", arrays);
  return spoiled;
}

// `spared`: cases whose middle element lies where nothing is compared.
void expect_teeth(const std::string& name, const std::set<std::string>& spared = {}) {
  const fs::path suite = fs::path(POSENC_SOURCE_DIR) / "conformance" / name;
  const test::TemporaryDirectory dir;
  const std::set<std::string> spoiled = spoil(suite, dir / name);
  const Json report = run_suites({dir / name});
  EXPECT_FALSE(all_passed(report));
  std::size_t noticed = 0;
  for (const Json& c : report.at("suites").as_array().at(0).at("cases").as_array()) {
    const std::string& own = c.at("name").as_string();
    if (spoiled.count(own) == 0) continue;
    const bool fails = c.at("outcome").as_string() == "fail";
    noticed += fails ? 1 : 0;
    EXPECT_TRUE(fails != (spared.count(own) > 0) ||
                c.at("outcome").as_string() == "not_expressible")
        << own;
  }
  std::cout << name << ": " << noticed << " of " << spoiled.size() << " spoiled cases fail\n";
  EXPECT_GT(noticed, spoiled.size() / 2);
}

TEST(Teeth, Engines) {
  expect_teeth("rotary_engines");
}

TEST(Teeth, HuggingFace) {
  expect_teeth("rotary_hugging_face");
}

TEST(Teeth, Positions) {
  expect_teeth("positions");
}

TEST(Teeth, Absolute) {
  expect_teeth("absolute");
}

TEST(Teeth, Attention) {
  expect_teeth("attention", {"hf_qwen3_left_padded"});  // a row that sees no key
}

TEST(Teeth, RelativeBias) {
  // Padding; and an element that stays within the known difference of 1.
  expect_teeth("relative_bias", {"forgetting_author_leftpad", "t5_buckets_hf_causal_72_100"});
}

TEST(Teeth, RelativeContent) {
  expect_teeth("relative_content");
}

TEST(Teeth, TinyModels) {
  expect_teeth("tiny_models");
}

TEST(Teeth, ModelAttention) {
  expect_teeth("model_attention");
}

TEST(Teeth, Gguf) {
  expect_teeth("gguf");
}

}  // namespace
}  // namespace posenc::conformance
