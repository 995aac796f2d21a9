// SPDX-License-Identifier: Apache-2.0
// The cases of conformance/gguf, and files made on the spot.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "posenc/io/json.h"
#include "posenc/model/read.h"

namespace posenc::test {

inline const std::filesystem::path kSuite =
    std::filesystem::path(POSENC_SOURCE_DIR) / "conformance/gguf";

inline std::vector<std::byte> slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string s((std::istreambuf_iterator<char>(in)), {});
  std::vector<std::byte> out(s.size());
  if (!s.empty()) std::memcpy(out.data(), s.data(), s.size());
  return out;
}

inline Json::Array cases() {
  return read_json(kSuite / "cases.json").at("cases").as_array();
}

inline ModelSpec read_suite_file(const std::string& name, const ReadOptions& options = {}) {
  return read_gguf(slurp(kSuite / "files" / (name + ".gguf")), name + ".gguf", options);
}

inline bool refused(const ModelSpec& m) {
  for (const Finding& f : m.findings)
    if (f.severity == Severity::error) return true;
  return false;
}

inline const Finding* finding(const ModelSpec& m, const std::string& code) {
  for (const Finding& f : m.findings)
    if (f.code == code) return &f;
  return nullptr;
}

inline std::string report(const ModelSpec& m) {
  std::string out;
  for (const Finding& f : m.findings)
    out += std::string(enum_text(f.severity)) + " " + f.code + " at " + f.where + ": " + f.message +
           "\n";
  return out;
}

inline const Spectrum& spectrum(const ModelSpec& m, std::size_t layer = 0) {
  return m.layers.at(layer).rotary->blocks.at(0).spectrum;
}

inline void expect_error(const ModelSpec& m, const std::string& code, const std::string& where) {
  ASSERT_TRUE(refused(m));
  const Finding* f = finding(m, code);
  ASSERT_NE(f, nullptr) << report(m);
  EXPECT_EQ(f->severity, Severity::error);
  EXPECT_EQ(f->where, where);
}

inline const FieldValue* field(const LayerSpec& layer, const std::string& name) {
  for (const FieldValue& f : layer.fields)
    if (f.name == name) return &f;
  return nullptr;
}

// Writes version 3, little-endian files for models that the suite does not have.
class Writer {
 public:
  using Value = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::int32_t>>;
  explicit Writer(const std::string& architecture) : prefix_(architecture + ".") {
    raw("general.architecture", architecture);
    set("context_length", 4096u).set("embedding_length", 4096u).set("block_count", 12u);
    set("attention.head_count", 32u);
  }
  Writer& set(const std::string& key, Value v) {
    values_[prefix_ + key] = std::move(v);
    return *this;
  }
  Writer& drop(const std::string& key) {
    values_.erase(prefix_ + key);
    return *this;
  }
  Writer& raw(const std::string& key, Value v) {
    values_[key] = std::move(v);
    return *this;
  }
  // shape: innermost first; empty: a list.
  Writer& tensor(const std::string& name, std::vector<float> data,
                 std::vector<std::uint64_t> shape = {}) {
    if (shape.empty()) shape = {data.size()};
    tensors_.push_back({name, std::move(data), std::move(shape)});
    return *this;
  }
  std::vector<std::byte> bytes() const {
    std::string out = "GGUF";
    put(out, std::uint32_t{3});
    put(out, std::uint64_t{tensors_.size()});
    put(out, std::uint64_t{values_.size()});
    for (const auto& [key, value] : values_) {
      text(out, key);
      std::visit([&](const auto& v) { write(out, v); }, value);
    }
    std::uint64_t at = 0;
    for (const auto& [name, data, shape] : tensors_) {
      text(out, name);
      put(out, static_cast<std::uint32_t>(shape.size()));
      for (const std::uint64_t n : shape) put(out, n);
      put(out, std::uint32_t{0});
      put(out, at);
      at += (data.size() * 4 + 31) / 32 * 32;
    }
    for (const auto& [name, data, shape] : tensors_) {
      out.resize((out.size() + 31) / 32 * 32);
      for (const float f : data) put(out, f);
    }
    std::vector<std::byte> b(out.size());
    std::memcpy(b.data(), out.data(), out.size());
    return b;
  }
  ModelSpec read(const ReadOptions& options = {}) const {
    return read_gguf(bytes(), prefix_ + "gguf", options);
  }

 private:
  template <class T>
  static void put(std::string& out, T v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  static void text(std::string& out, const std::string& s) {
    put(out, std::uint64_t{s.size()});
    out += s;
  }
  static void write(std::string& out, std::uint32_t v) {
    put(out, std::uint32_t{4});
    put(out, v);
  }
  static void write(std::string& out, float v) {
    put(out, std::uint32_t{6});
    put(out, v);
  }
  static void write(std::string& out, bool v) {
    put(out, std::uint32_t{7});
    out += static_cast<char>(v ? 1 : 0);
  }
  static void write(std::string& out, const std::string& v) {
    put(out, std::uint32_t{8});
    text(out, v);
  }
  static void write(std::string& out, const std::vector<std::int32_t>& v) {
    put(out, std::uint32_t{9});
    put(out, std::uint32_t{5});
    put(out, std::uint64_t{v.size()});
    for (const std::int32_t i : v) put(out, i);
  }

  std::string prefix_;
  std::map<std::string, Value> values_;
  struct Tensor {
    std::string name;
    std::vector<float> data;
    std::vector<std::uint64_t> shape;
  };
  std::vector<Tensor> tensors_;
};

}  // namespace posenc::test
