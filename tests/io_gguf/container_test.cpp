// SPDX-License-Identifier: Apache-2.0
// The container, against the files of conformance/gguf, and against every file cut at every byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "posenc/core/error.h"
#include "posenc/io/gguf.h"

namespace posenc {
namespace {

namespace fs = std::filesystem;

const fs::path kFiles = fs::path(POSENC_SOURCE_DIR) / "conformance/gguf/files";

std::vector<std::byte> slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string s((std::istreambuf_iterator<char>(in)), {});
  std::vector<std::byte> out(s.size());
  if (!s.empty()) std::memcpy(out.data(), s.data(), s.size());
  return out;
}

std::vector<fs::path> files_with(const std::string& prefix) {
  std::vector<fs::path> out;
  for (const auto& e : fs::directory_iterator(kFiles))
    if (e.path().filename().string().rfind(prefix, 0) == 0) out.push_back(e.path());
  return out;
}

TEST(GgufContainer, ReadsEveryModelOfTheSuite) {
  std::size_t read = 0;
  for (const auto& e : fs::directory_iterator(kFiles)) {
    const std::string file = e.path().filename().string();
    if (file.rfind("hostile", 0) == 0 || file.rfind("value", 0) == 0 || file.rfind("free", 0) == 0)
      continue;
    const auto bytes = slurp(e.path());
    const GgufFile f = parse_gguf(bytes, file);
    EXPECT_NE(f.find("general.architecture"), nullptr) << file;
    for (const GgufTensor& t : f.tensors) EXPECT_TRUE(t.complete) << file << ' ' << t.name;
    ++read;
  }
  EXPECT_EQ(read, 25u + 7u);
}

TEST(GgufContainer, KnowsWhatALlama31Says) {
  for (const char* name : {"llama31.gguf", "llama31_big_endian.gguf"}) {
    const auto bytes = slurp(kFiles / name);
    const GgufFile f = parse_gguf(bytes, name);
    EXPECT_EQ(f.version, 3u);
    EXPECT_EQ(f.big_endian, std::string(name) != "llama31.gguf");
    EXPECT_EQ(f.find("llama.block_count")->integer(), 32);
    EXPECT_EQ(f.find("llama.rope.freq_base")->number(), 500000.0);
    EXPECT_EQ(f.find("general.architecture")->text(), "llama");
    EXPECT_FALSE(f.find("general.architecture")->number());
    ASSERT_NE(f.tensor("rope_freqs.weight"), nullptr);
    const auto divisors = f.values(*f.tensor("rope_freqs.weight"));
    ASSERT_EQ(divisors.size(), 64u);
    EXPECT_EQ(divisors[28], 1.0);
    // reference 4.7: pair 29 keeps 0.828168411837 of its frequency
    EXPECT_NEAR(1 / divisors[29], 0.828168411837, 1e-7);
    EXPECT_EQ(divisors[63], 8.0);
  }
  const auto bytes = slurp(kFiles / "qwen2vl_version_2.gguf");
  const GgufFile f = parse_gguf(bytes, "qwen2vl_version_2.gguf");
  EXPECT_EQ(f.version, 2u);
  EXPECT_EQ(f.find("qwen2vl.rope.dimension_sections")->integers(),
            (std::vector<Index>{16, 24, 24, 0}));
}

// One key of type u8 whose value the file lacks.
std::string refusal_of_key(const std::string& key) {
  std::vector<std::byte> bytes;
  const auto put = [&](const auto& value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), p, p + sizeof value);
  };
  for (const char c : {'G', 'G', 'U', 'F'}) put(c);
  put(std::uint32_t{3}), put(std::uint64_t{0}), put(std::uint64_t{1});
  put(std::uint64_t{key.size()});
  for (const char c : key) put(c);
  put(std::uint32_t{99});
  put(std::uint64_t{0});
  try {
    parse_gguf(bytes, "m.gguf");
  } catch (const FormatError& e) {
    return e.what();
  }
  return "";
}

TEST(GgufContainer, ErrorsShowNamesAsTextCutAtEightyCharacters) {
  EXPECT_EQ(refusal_of_key(std::string("a\0\033[2J\xff", 7)),
            "m.gguf: a??[2J?: no value has type 99 (byte 43)");
  EXPECT_EQ(refusal_of_key(std::string(300, 'k')).substr(0, 90),
            "m.gguf: " + std::string(80, 'k') + "..");
}

TEST(GgufContainer, ReadsValuesOfEveryWidth) {
  const auto bytes = slurp(kFiles / "accept_every_type.gguf");
  const GgufFile f = parse_gguf(bytes, "accept_every_type.gguf");
  EXPECT_EQ(f.find("a.u8")->integer(), 255);
  EXPECT_EQ(f.find("a.u16")->integer(), 65535);
  EXPECT_FALSE(f.find("a.u64")->integer());  // 2^64 - 1 does not fit
  EXPECT_EQ(f.find("a.u64")->number(), 0x1p64);
  EXPECT_EQ(f.find("a.f64")->number(), 0.1);
  EXPECT_EQ(f.find("a.bool")->boolean(), true);
  EXPECT_EQ(f.find("a.str")->text(), "h\xc3\xa9\xe4\xbd\xa0");
  EXPECT_EQ(f.find("a.bools")->integers()->size(), 2u);
  EXPECT_FALSE(f.find("a.strings")->integers());
  EXPECT_EQ(std::get<GgufArray>(f.find("a.strings")->value).count, 3u);
  EXPECT_EQ(f.find("no such key"), nullptr);
}

TEST(GgufContainer, RefusesWhatIsBrokenAndNamesThePlace) {
  std::size_t refused = 0;
  for (const fs::path& path : files_with("hostile_")) {
    const auto bytes = slurp(path);
    const std::string file = path.filename().string();
    if (file == "hostile_cut_before_data.gguf" || file == "hostile_cut_one_byte_short.gguf") {
      const GgufFile f = parse_gguf(bytes, file);
      ASSERT_NE(f.tensor("rope_freqs.weight"), nullptr);
      EXPECT_FALSE(f.tensor("rope_freqs.weight")->complete);
      EXPECT_THROW((void)f.values(*f.tensor("rope_freqs.weight")), FormatError);
      continue;
    }
    try {
      (void)parse_gguf(bytes, file);
      ADD_FAILURE() << file << " was accepted";
    } catch (const FormatError& e) {
      EXPECT_EQ(e.file(), file);
      EXPECT_FALSE(e.place().empty());
      EXPECT_NE(std::string(e.what()).find(file), std::string::npos);
    }
    ++refused;
  }
  EXPECT_EQ(refused, 48u);
}

TEST(GgufContainer, NamesTheKey) {
  const auto place = [](const char* file) -> std::string {
    const auto bytes = slurp(kFiles / file);
    try {
      (void)parse_gguf(bytes, file);
    } catch (const FormatError& e) {
      return e.place();
    }
    return "accepted";
  };
  EXPECT_EQ(place("hostile_duplicate_key.gguf"), "llama.rope.freq_base");
  EXPECT_EQ(place("hostile_alignment_3.gguf"), "general.alignment");
  EXPECT_EQ(place("hostile_string_length_2_63.gguf"), "x.y");
  EXPECT_EQ(place("hostile_array_count_2_61_u64.gguf"), "x.y");
  EXPECT_EQ(place("hostile_tensor_elements_overflow.gguf"), "t");
  EXPECT_EQ(place("hostile_tensors_overlap.gguf"), "other");
  EXPECT_EQ(place("hostile_version_1.gguf"), "byte 4");
}

// A copy of exact size on the heap, so that a sanitizer sees any read past the end.
TEST(GgufContainer, SurvivesEveryTruncationAndEveryFlippedByte) {
  for (const char* name : {"accept_every_type.gguf", "llama31_big_endian.gguf",
                           "phi3_longrope.gguf", "accept_alignment_512.gguf"}) {
    const auto whole = slurp(kFiles / name);
    const std::size_t checked = std::min<std::size_t>(whole.size(), 4096);
    for (std::size_t n = 0; n < checked; ++n) {
      const std::vector<std::byte> cut(whole.begin(),
                                       whole.begin() + static_cast<std::ptrdiff_t>(n));
      try {
        const GgufFile f = parse_gguf(cut, name);
        for (const GgufTensor& t : f.tensors) EXPECT_TRUE(!t.complete || t.offset + t.size <= n);
      } catch (const FormatError&) {
      }
      auto flipped = whole;
      flipped[n] ^= std::byte{0xff};
      try {
        const GgufFile f = parse_gguf(flipped, name);
        for (const GgufTensor& t : f.tensors)
          if (t.complete && t.type == 0) (void)f.values(t);
      } catch (const FormatError&) {
      }
    }
  }
}

TEST(GgufContainer, WidensHalves) {
  // f16 bits of 1, -2, the smallest subnormal, 65504, infinity; bf16 of 1.5
  const std::vector<std::uint16_t> half{0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00};
  GgufFile f;
  f.file = "memory";
  f.bytes = std::as_bytes(std::span(half));
  GgufTensor t;
  t.name = "t";
  t.type = 1;
  t.shape = {5};
  t.size = 10;
  t.complete = true;
  const auto v = f.values(t);
  EXPECT_EQ(v[0], 1.0);
  EXPECT_EQ(v[1], -2.0);
  EXPECT_EQ(v[2], 0x1p-24);
  EXPECT_EQ(v[3], 65504.0);
  EXPECT_TRUE(std::isinf(v[4]));
  t.type = 12;
  EXPECT_THROW((void)f.values(t), FormatError);
}

TEST(GgufContainer, MapsAFile) {
  const MappedFile mapped(kFiles / "llama2.gguf");
  EXPECT_EQ(mapped.bytes().size(), fs::file_size(kFiles / "llama2.gguf"));
  EXPECT_NE(parse_gguf(mapped.bytes(), "llama2.gguf").find("llama.context_length"), nullptr);
  EXPECT_THROW(MappedFile{fs::path("/nonexistent/x.gguf")}, FormatError);
  EXPECT_THROW(MappedFile{kFiles}, FormatError);
}

}  // namespace
}  // namespace posenc
