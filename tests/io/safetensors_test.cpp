// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "posenc/io/json.h"
#include "support/random.h"
#include "support/temporary_directory.h"

namespace posenc {
namespace {

using testing::HasSubstr;

std::vector<std::byte> file(std::string_view header, std::size_t data_bytes,
                            std::optional<std::uint64_t> length = {}) {
  const std::uint64_t n = length.value_or(header.size());
  std::vector<std::byte> b(8 + header.size() + data_bytes);
  std::memcpy(b.data(), &n, 8);
  std::memcpy(b.data() + 8, header.data(), header.size());
  for (std::size_t i = 0; i < data_bytes; ++i) b[8 + header.size() + i] = static_cast<std::byte>(i);
  return b;
}
std::string refusal(const std::vector<std::byte>& bytes) {
  try {
    parse_safetensors(bytes, "f.safetensors");
  } catch (const FormatError& e) {
    EXPECT_EQ(e.file(), "f.safetensors");
    EXPECT_LT(std::strlen(e.what()), 1000u);
    return e.what();
  }
  return "";
}

TEST(Safetensors, ReadsTheConformanceSuites) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::filesystem::path(POSENC_SOURCE_DIR) / "conformance")) {
    if (entry.path().filename() != "arrays.safetensors") continue;
    ++files;
    const Arrays arrays = read_safetensors(entry.path());
    EXPECT_FALSE(arrays.empty()) << entry.path();
    const Arrays again = parse_safetensors(safetensors_bytes(arrays), "again");
    ASSERT_EQ(again.size(), arrays.size());
    for (const auto& [name, a] : arrays) {
      EXPECT_EQ(again.at(name).dtype, a.dtype) << name;
      EXPECT_EQ(again.at(name).shape, a.shape) << name;
      EXPECT_EQ(again.at(name).bytes, a.bytes) << name;
    }
  }
  EXPECT_GE(files, 6u);
}

TEST(Safetensors, ReadsEveryType) {
  const Arrays a = parse_safetensors(file(R"({"__metadata__":{"format":"pt"},
               "b":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]},
               "i8":{"dtype":"I8","shape":[2],"data_offsets":[2,4]},
               "i16":{"dtype":"I16","shape":[1],"data_offsets":[4,6]},
               "u16":{"dtype":"U16","shape":[1],"data_offsets":[6,8]},
               "u32":{"dtype":"U32","shape":[1],"data_offsets":[8,12]},
               "u64":{"dtype":"U64","shape":[],"data_offsets":[12,20]},
               "bf":{"dtype":"BF16","shape":[1,2],"data_offsets":[20,24]},
               "none":{"dtype":"F64","shape":[0,7],"data_offsets":[24,24]},
               "u8":{"dtype":"U8","shape":[1],"data_offsets":[24,25]}}   )",
                                          25),
                                     "f.safetensors");
  EXPECT_EQ(a.at("b").dtype, DType::u8);
  EXPECT_EQ(a.at("i8").integers(), (std::vector<Index>{2, 3}));
  EXPECT_EQ(a.at("i16").integers(), std::vector<Index>{0x0504});
  EXPECT_EQ(a.at("i16").dtype, DType::i32);
  EXPECT_EQ(a.at("u16").integers(), std::vector<Index>{0x0706});
  EXPECT_EQ(a.at("u32").integers(), std::vector<Index>{0x0b0a0908});
  EXPECT_EQ(a.at("u32").dtype, DType::i64);
  EXPECT_EQ(a.at("u64").integers(), std::vector<Index>{0x131211100f0e0d0c});
  EXPECT_EQ(a.at("bf").dtype, DType::bf16);
  EXPECT_EQ(a.at("none").shape, (std::vector<Index>{0, 7}));
  EXPECT_EQ(a.at("u8").doubles(), std::vector<double>{24});
}

TEST(Safetensors, WidensTheFullRange) {
  std::vector<std::byte> b = file(R"({"x":{"dtype":"U64","shape":[1],"data_offsets":[0,8]}})", 8);
  for (std::size_t i = b.size() - 8; i < b.size(); ++i) b[i] = std::byte{0xff};
  EXPECT_THAT(refusal(b), HasSubstr("63 bits"));
  b.back() = std::byte{0x7f};
  EXPECT_EQ(parse_safetensors(b, "f").at("x").integers(),
            std::vector<Index>{std::numeric_limits<Index>::max()});
  EXPECT_THAT(refusal(file(R"({"x":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3)),
              HasSubstr("bool"));
}

TEST(Safetensors, RefusesBrokenContainers) {
  const std::string header = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const auto good = file(header, 8);
  EXPECT_EQ(refusal(good), "");
  for (std::size_t n = 0; n < good.size(); ++n)
    EXPECT_NE(refusal({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)}), "") << n;
  EXPECT_THAT(refusal(file(header, 9)), HasSubstr("must cover the data"));
  EXPECT_THAT(refusal(file(header, 7)), HasSubstr("inside the 7 bytes"));
  EXPECT_THAT(refusal(file(header, 8, std::uint64_t{1} << 40)), HasSubstr("100 MB"));
  EXPECT_THAT(refusal(file(header, 8, ~std::uint64_t{0})), HasSubstr("100 MB"));
  EXPECT_THAT(refusal(file(header, 8, header.size() + 9)), HasSubstr("inside the file"));
  EXPECT_THAT(refusal(file("", 8, 0)), HasSubstr("begin with '{'"));
  EXPECT_THAT(refusal(file(" " + header, 8)), HasSubstr("begin with '{'"));
  EXPECT_THAT(refusal(file("[1]", 0)), HasSubstr("begin with '{'"));
  EXPECT_THAT(refusal(file(header + "x", 8)), HasSubstr("byte"));
  EXPECT_EQ(refusal(file("{}", 0)), "") << "a file of no tensors";
  EXPECT_THAT(refusal(file("{}", 1)), HasSubstr("must cover the data"));
  std::string deep = "{\"x\":";
  for (int i = 0; i < 100000; ++i) deep += "[";
  EXPECT_THAT(refusal(file(deep, 0)), HasSubstr("200 levels"));
}

TEST(Safetensors, RefusesBadEntries) {
  const auto with = [](std::string_view entry, std::size_t bytes = 8) {
    return refusal(file("{\"x\":" + std::string(entry) + "}", bytes));
  };
  EXPECT_THAT(with("1"), HasSubstr("#/x: must be an object"));
  EXPECT_THAT(with(R"({"shape":[2],"data_offsets":[0,8]})"), HasSubstr("must have dtype"));
  EXPECT_THAT(with(R"({"dtype":"F32","data_offsets":[0,8]})"), HasSubstr("must have shape"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2]})"), HasSubstr("must have data_offsets"));
  EXPECT_THAT(with(R"({"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]})"),
              HasSubstr("got F8_E4M3"));
  EXPECT_THAT(with(R"({"dtype":"f32","shape":[2],"data_offsets":[0,8]})"), HasSubstr("dtype"));
  EXPECT_THAT(with(R"({"dtype":1,"shape":[2],"data_offsets":[0,8]})"), HasSubstr("dtype"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), HasSubstr("shape"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), HasSubstr("shape"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), HasSubstr("shape"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"), HasSubstr("of two"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})"), HasSubstr("of two"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2],"data_offsets":[0,"8"]})"), HasSubstr("63-bit"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})"), HasSubstr("63-bit"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), HasSubstr("in order"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2],"data_offsets":[0,9223372036854775807]})"),
              HasSubstr("in order inside"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), HasSubstr("need 12"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"),
              HasSubstr("63 bits"));
  EXPECT_THAT(with(R"({"dtype":"F64","shape":[0,4294967296,4294967296],"data_offsets":[0,0]})", 0),
              HasSubstr("63 bits"));
  EXPECT_THAT(with(R"({"dtype":"F64","shape":[18446744073709551617],"data_offsets":[0,8]})"),
              HasSubstr("shape"));
  EXPECT_THAT(refusal(file(R"({"__metadata__":{"a":1}})", 0)), HasSubstr("must be a string"));
  EXPECT_THAT(refusal(file(R"({"__metadata__":[]})", 0)), HasSubstr("object of strings"));
}

TEST(Safetensors, RefusesOverlapsHolesAndDuplicates) {
  const auto two = [](std::string_view a, std::string_view b, std::size_t bytes) {
    return refusal(file(std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)")
                            .append(a)
                            .append(R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)")
                            .append(b)
                            .append("}}"),
                        bytes));
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "");
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "") << "the header may list them in any order";
  EXPECT_THAT(two("[0,4]", "[0,4]", 4), HasSubstr("overlaps"));
  EXPECT_THAT(two("[0,4]", "[3,7]", 7), HasSubstr("overlaps"));
  EXPECT_THAT(two("[0,4]", "[5,9]", 9), HasSubstr("leaves a hole"));
  EXPECT_THAT(two("[1,5]", "[5,9]", 9), HasSubstr("leaves a hole"));
  EXPECT_THAT(two("[0,4]", "[4,8]", 10), HasSubstr("must cover"));
  EXPECT_THAT(refusal(file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                               "a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                           2)),
              HasSubstr("twice"));
}

TEST(Safetensors, ErrorsShowNamesAsTextCutAtEightyCharacters) {
  const auto broken = [](const std::string& name) {
    return refusal(file(
        "{\"" + name + "\": {\"dtype\": \"F32\", \"shape\": 1, \"data_offsets\": [0, 4]}}", 4));
  };
  EXPECT_EQ(broken("\\u001b[31m\\u0000w"), "f.safetensors: #/?[31m?w: shape must be a list");
  EXPECT_EQ(broken(std::string(200, 'w')),
            "f.safetensors: #/" + std::string(80, 'w') + "...: shape must be a list");
}

TEST(Safetensors, WritesAlignedAndReadsBack) {
  const test::TemporaryDirectory directory;
  test::Random random(2);
  Arrays arrays;
  for (const DType t :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    Array a = make_array(t, {3, random.integer(0, 5)});
    for (std::byte& b : a.bytes) b = static_cast<std::byte>(random.bits());
    arrays.emplace("w\"\xc3\xa9/" + std::string(dtype_name(t)), std::move(a));
  }
  write_safetensors(directory / "a.safetensors", arrays, {{"made_by", "a \"test\""}});
  const Arrays again = read_safetensors(directory / "a.safetensors");
  ASSERT_EQ(again.size(), arrays.size());
  for (const auto& [name, a] : arrays) {
    EXPECT_EQ(again.at(name).dtype, a.dtype);
    EXPECT_EQ(again.at(name).shape, a.shape);
    EXPECT_EQ(again.at(name).bytes, a.bytes);
  }
  const auto bytes = safetensors_bytes(arrays, {{"made_by", "a \"test\""}});
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  const Json header =
      parse_json({reinterpret_cast<const char*>(bytes.data()) + 8, length}, "header");
  EXPECT_EQ(header.at("__metadata__").at("made_by").as_string(), "a \"test\"");
  for (const auto& [name, a] : arrays)
    EXPECT_EQ(header.at(name).at("data_offsets").as_array()[0].as_integer() % size_of(a.dtype), 0);
}

TEST(Safetensors, WritingRefuses) {
  EXPECT_THROW(safetensors_bytes({{"__metadata__", make_array(DType::u8, {1})}}),
               std::invalid_argument);
  EXPECT_THROW(safetensors_bytes({{"\xff", make_array(DType::u8, {1})}}), std::invalid_argument);
  Array broken = make_array(DType::u8, {1});
  broken.bytes.clear();
  EXPECT_THROW(safetensors_bytes({{"x", broken}}), std::invalid_argument);
  EXPECT_TRUE(parse_safetensors(safetensors_bytes({}), "none").empty());
}

}  // namespace
}  // namespace posenc
