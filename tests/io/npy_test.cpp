// SPDX-License-Identifier: Apache-2.0
// .npy. The golden bytes were written by numpy.save (2.4); hostile ones are made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "support/random.h"
#include "support/temporary_directory.h"

namespace posenc {
namespace {

using testing::HasSubstr;

std::vector<std::byte> bytes_of(std::string_view s) {
  std::vector<std::byte> b(s.size());
  if (!s.empty()) std::memcpy(b.data(), s.data(), s.size());
  return b;
}

std::string file(int version, std::string_view header, std::string_view data) {
  std::string s = "\x93NUMPY";
  s += static_cast<char>(version);
  s += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    s += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  return s.append(header).append(data);
}
Array read(std::string_view s) {
  return parse_npy(bytes_of(s), "f.npy");
}
std::string refusal(std::string_view s) {
  try {
    read(s);
  } catch (const FormatError& e) {
    EXPECT_EQ(e.file(), "f.npy");
    EXPECT_FALSE(e.place().empty());
    EXPECT_LT(std::strlen(e.what()), 500u);
    return e.what();
  }
  return "";
}
std::string dict(std::string_view descr, std::string_view shape, std::string_view order = "False") {
  return std::string("{'descr': '")
      .append(descr)
      .append("', 'fortran_order': ")
      .append(order)
      .append(", 'shape': ")
      .append(shape)
      .append(", }\n");
}
std::string zeros(std::size_t n) {
  return std::string(n, '\0');
}

TEST(Npy, ReadsWhatNumpyWrites) {
  // numpy.save(f, numpy.array([[1.5, -2], [0.25, 3]], dtype='<f4'))
  std::string golden("\x93NUMPY\x01\x00\x76\x00", 10);
  golden += "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
  golden += std::string(58, ' ') + '\n';
  golden += std::string("\x00\x00\xc0\x3f\x00\x00\x00\xc0\x00\x00\x80\x3e\x00\x00\x40\x40", 16);
  const Array a = read(golden);
  EXPECT_EQ(a.dtype, DType::f32);
  EXPECT_EQ(a.shape, (std::vector<Index>{2, 2}));
  EXPECT_EQ(a.doubles(), (std::vector<double>{1.5, -2, 0.25, 3}));
  const auto written = npy_bytes(a);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(written.data()), written.size()), golden);
}

TEST(Npy, EveryHeaderVersionAndSpelling) {
  for (const int version : {1, 2, 3})
    EXPECT_EQ(read(file(version, dict("|u1", "(2,)"), "\x07\x08")).doubles(),
              (std::vector<double>{7, 8}));
  for (const char* header :
       {"{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"|u1\"}",
        "  { 'fortran_order' : True , 'descr' : '<u1' , 'shape' : ( 2 , ) }   \n",
        "{'descr': '=u1', 'fortran_order': False, 'shape': (2L,), }"})
    EXPECT_EQ(read(file(1, header, "\x07\x08")).doubles(), (std::vector<double>{7, 8})) << header;
  EXPECT_EQ(read(file(1, dict("<i4", "()"), std::string("\xfe\xff\xff\xff", 4))).doubles(),
            std::vector<double>{-2});
  EXPECT_EQ(read(file(1, dict("<f8", "(0, 3)"), "")).shape, (std::vector<Index>{0, 3}));
}

TEST(Npy, WidensWhatTensorsLack) {
  const auto values = [](std::string_view descr, std::string_view data, DType want) {
    const std::string n =
        std::to_string(data.size() / static_cast<std::size_t>(descr.back() - '0'));
    const Array a = read(file(1, dict(descr, "(" + n + ",)"), data));
    EXPECT_EQ(a.dtype, want) << descr;
    return a.doubles();
  };
  using namespace std::string_view_literals;
  using D = std::vector<double>;
  EXPECT_EQ(values("|b1", "\x00\x01"sv, DType::u8), (D{0, 1}));
  EXPECT_EQ(values("|i1", "\xff\x01"sv, DType::i32), (D{-1, 1}));
  EXPECT_EQ(values("<i2", "\xfe\xff"sv, DType::i32), (D{-2}));
  EXPECT_EQ(values("<u2", "\xfe\xff"sv, DType::i32), (D{65534}));
  EXPECT_EQ(values(">u2", "\xfe\xff"sv, DType::i32), (D{65279}));
  EXPECT_EQ(values("<u4", "\xff\xff\xff\xff"sv, DType::i64), (D{4294967295.0}));
  EXPECT_EQ(values("<u8", "\x01\x00\x00\x00\x00\x00\x00\x00"sv, DType::i64), (D{1}));
  EXPECT_EQ(values("<f2", "\x00\x3c"sv, DType::f16), (D{1}));
  EXPECT_EQ(values(">f2", "\x3c\x00"sv, DType::f16), (D{1}));
  EXPECT_EQ(values(">f8", "\x3f\xf0\x00\x00\x00\x00\x00\x00"sv, DType::f64), (D{1}));
  EXPECT_EQ(values(">i8", "\xff\xff\xff\xff\xff\xff\xff\xfe"sv, DType::i64), (D{-2}));
}

TEST(Npy, FortranOrderIsTransposed) {
  const Array a = read(file(1, dict("|u1", "(2, 3)", "True"), "\x01\x04\x02\x05\x03\x06"));
  EXPECT_EQ(a.doubles(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  // [i, j, k] of shape (2, 3, 2) stands at i + 2 j + 6 k.
  std::string data;
  for (char c = 0; c < 12; ++c) data += c;
  const auto d = read(file(1, dict("|u1", "(2, 3, 2)", "True"), data)).doubles();
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      for (std::size_t k = 0; k < 2; ++k)
        EXPECT_EQ(d[(i * 3 + j) * 2 + k], static_cast<double>(i + 2 * j + 6 * k));
}

TEST(Npy, RefusesBrokenFiles) {
  const std::string good = file(1, dict("<f4", "(2,)"), zeros(8));
  EXPECT_EQ(refusal(good), "");
  for (std::size_t n = 0; n < good.size(); ++n)
    EXPECT_NE(refusal(good.substr(0, n)), "") << "cut at " << n;
  EXPECT_THAT(refusal(good + "x"), HasSubstr("needs 8 bytes of data, got 9"));
  EXPECT_THAT(refusal("PK\x03\x04 this is a zip archive"), HasSubstr("no .npy file"));
  EXPECT_THAT(refusal(file(4, dict("<f4", "(2,)"), zeros(8))), HasSubstr("version"));
  EXPECT_THAT(refusal(file(0, dict("<f4", "(2,)"), zeros(8))), HasSubstr("version"));
  std::string minor = good;
  minor[7] = 1;
  EXPECT_THAT(refusal(minor), HasSubstr("1.1"));
  std::string longer = file(2, dict("<f4", "(2,)"), zeros(8));
  longer[10] = longer[11] = '\xff';
  EXPECT_THAT(refusal(longer), HasSubstr("must end inside the file"));
}

TEST(Npy, RefusesOddHeaders) {
  const auto with = [](std::string_view header) { return refusal(file(1, header, zeros(8))); };
  for (const char* header :
       {"",
        "{",
        "{}",
        "{'descr': '<f4'}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': None, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 2}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [2]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (,2)}",
        "{'descr' '<f4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}",
        "{descr: '<f4', 'fortran_order': False, 'shape': (2,)}",
        "{'de\\x73cr': '<f4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}"})
    EXPECT_THAT(with(header), HasSubstr("f.npy: byte ")) << header;
  for (const char* descr : {"", "f4", "<f3", "<f16", "<c8", "|O", "<U4", "|S4", "<V2", "|f4", "<M8",
                            "bfloat16", "<f44", "<"})
    EXPECT_THAT(with(dict(descr, "(2,)")), HasSubstr("descr")) << descr;
}

TEST(Npy, RefusesHostileShapes) {
  const auto with = [](std::string_view shape) {
    return refusal(file(1, dict("<f4", shape), zeros(8)));
  };
  EXPECT_THAT(with("(9223372036854775808,)"), HasSubstr("63 bits"));
  EXPECT_THAT(with("(99999999999999999999999,)"), HasSubstr("63 bits"));
  EXPECT_THAT(with("(9223372036854775807,)"), HasSubstr("63 bits"));
  EXPECT_THAT(with("(4294967296, 4294967296)"), HasSubstr("63 bits"));
  EXPECT_THAT(with("(4611686018427387904, 4)"), HasSubstr("63 bits"));
  EXPECT_THAT(with("(0, 4611686018427387904, 4)"), HasSubstr("63 bits"));
  EXPECT_THAT(with("(1099511627776,)"), HasSubstr("needs 4398046511104 bytes"));
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1,";
  EXPECT_THAT(with(many + ")"), HasSubstr("64 axes"));
  EXPECT_THAT(refusal(file(1, dict("|b1", "(2,)"), "\x01\x02")), HasSubstr("bool"));
  EXPECT_THAT(refusal(file(1, dict("<u8", "(1,)"), std::string(8, '\xff'))), HasSubstr("63 bits"));
}

TEST(Npy, WritesAndReadsBack) {
  const test::TemporaryDirectory directory;
  test::Random random(1);
  for (const DType t : {DType::f64, DType::f32, DType::f16, DType::i64, DType::i32, DType::u8})
    for (const std::vector<Index>& shape :
         {std::vector<Index>{}, {0}, {1}, {7}, {2, 3}, {1, 2, 3, 4, 5, 6}, {3, 0, 2}}) {
      Array a = make_array(t, shape);
      for (std::byte& b : a.bytes) b = static_cast<std::byte>(random.bits());
      write_npy(directory / "a.npy", a);
      const Array b = read_npy(directory / "a.npy");
      EXPECT_EQ(b.dtype, a.dtype);
      EXPECT_EQ(b.shape, a.shape);
      EXPECT_EQ(b.bytes, a.bytes);
      EXPECT_EQ((npy_bytes(a).size() - a.bytes.size()) % 64, 0u);
    }
}

TEST(Npy, WritingRefuses) {
  EXPECT_THROW(npy_bytes(make_array(DType::bf16, {2})), std::invalid_argument);
  Array broken = make_array(DType::f32, {2});
  broken.shape = {3};
  EXPECT_THROW(npy_bytes(broken), std::invalid_argument);
  broken.shape = {-2};
  EXPECT_THROW(npy_bytes(broken), std::invalid_argument);
  EXPECT_THROW(npy_bytes(make_array(DType::u8, std::vector<Index>(65, 1))), std::invalid_argument);
}

}  // namespace
}  // namespace posenc
