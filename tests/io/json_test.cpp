// SPDX-License-Identifier: Apache-2.0
#include "posenc/io/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>

#include "posenc/core/error.h"
#include "support/random.h"
#include "support/temporary_directory.h"

namespace posenc {
namespace {

using testing::HasSubstr;

// The error of a text that must be refused; an empty place when it was read.
struct Refusal {
  std::string place, what;
};
Refusal refusal(std::string_view text) {
  try {
    parse_json(text, "f.json");
  } catch (const FormatError& e) {
    EXPECT_EQ(e.file(), "f.json");
    return {e.place(), e.what()};
  }
  return {};
}

TEST(Json, ReadsEveryType) {
  const Json j = parse_json(
      R"({"n": null, "t": true, "f": false, "i": -7, "d": 1.5, "e": 1e3, "s": "aé\u00e9\n",
          "l": [1, [2]], "o": {}})",
      "f.json");
  EXPECT_TRUE(j.at("n").is_null());
  EXPECT_TRUE(j.at("t").as_bool());
  EXPECT_FALSE(j.at("f").as_bool());
  EXPECT_EQ(j.at("i").as_integer(), -7);
  EXPECT_TRUE(j.at("e").is_number() && !j.at("e").is_integer());
  EXPECT_EQ(j.at("e").as_number(), 1000.0);
  EXPECT_EQ(j.at("i").as_number(), -7.0);
  EXPECT_EQ(j.at("s").as_string(), "a\xc3\xa9\xc3\xa9\n");
  EXPECT_EQ(j.at_pointer("/l/1/0")->as_integer(), 2);
  EXPECT_TRUE(j.at("o").as_object().empty());
  EXPECT_EQ(j.as_object().front().first, "n") << "objects keep the order of the file";
}

TEST(Json, LargeNumbers) {
  const auto number = [](const char* s) { return parse_json(s, "f.json"); };
  EXPECT_EQ(number("9223372036854775807").as_integer(), std::numeric_limits<Index>::max());
  EXPECT_EQ(number("-9223372036854775808").as_integer(), std::numeric_limits<Index>::min());
  EXPECT_FALSE(number("9223372036854775808").is_integer());
  EXPECT_EQ(number("9223372036854775808").as_number(), 0x1p63);
  EXPECT_EQ(number("18446744073709551616").as_number(), 0x1p64);
  EXPECT_EQ(number("-9223372036854775809").as_number(), -0x1p63);
  EXPECT_EQ(number("5e-324").as_number(), 5e-324);
  EXPECT_EQ(number("1e-400").as_number(), 0.0);
  EXPECT_EQ(number("0.1").as_number(), 0.1);
  EXPECT_THAT(refusal("[1e309]").what, HasSubstr("overflow"));
  EXPECT_THAT(refusal("-1e999").place, HasSubstr("byte"));
}

TEST(Json, RefusesWhatIsNoJson) {
  for (const char* text : {"",
                           "  ",
                           "{",
                           "}",
                           "[1",
                           "[1,]",
                           "{\"a\":1,}",
                           "{\"a\"}",
                           "{a:1}",
                           "'a'",
                           "[NaN]",
                           "[Infinity]",
                           "[-Infinity]",
                           "nan",
                           "[inf]",
                           "01",
                           "+1",
                           "1.",
                           ".5",
                           "1e",
                           "--1",
                           "0x10",
                           "tru",
                           "[1] 2",
                           "{} x",
                           "// c\n1",
                           "/* */1",
                           "\"\\x\"",
                           "\"\n\"",
                           "\"a",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "1 2",
                           "\xef\xbb\xbf{}",
                           "\"\xff\"",
                           "\"\xc0\x80\"",
                           "\"\xed\xa0\x80\"",
                           "\"\xf4\x90\x80\x80\"",
                           "{\"\xff\": 1}"})
    EXPECT_THAT(refusal(text).place, HasSubstr("byte ")) << text;
  using namespace std::string_view_literals;
  EXPECT_EQ(refusal("{}\0{}"sv).place, "byte 2");
  EXPECT_THAT(refusal("[1, 2"sv).what, HasSubstr("f.json: byte "));
}

TEST(Json, RefusesDuplicateKeysByPath) {
  EXPECT_EQ(refusal(R"({"a": {"b": 1, "c": 2, "b": 3}})").place, "#/a/b");
  EXPECT_EQ(refusal(R"([0, {"x/~": 1, "x/~": 1}])").place, "#/1/x~1~0");
  EXPECT_EQ(refusal(R"({"a": 1, "\u0061": 1})").place, "#/a");
  std::string many = "{";  // beyond the linear search
  for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i) + "\": 0, ";
  EXPECT_EQ(refusal(many + "\"k3\": 1}").place, "#/k3");
  EXPECT_EQ(refusal(many + "\"k77\": 1}").place, "#/k77");
  EXPECT_EQ(refusal(many + "\"k100\": 1}").place, "");
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(refusal(nested(200)).what, "");
  EXPECT_THAT(refusal(nested(201)).what, HasSubstr("200 levels"));
  EXPECT_THAT(refusal(std::string(5'000'000, '[')).what, HasSubstr("200 levels"));
  std::string objects;
  for (int i = 0; i < 1000; ++i) objects += "{\"a\":";
  EXPECT_THAT(refusal(objects).what, HasSubstr("200 levels"));
}

TEST(Json, SizeIsBounded) {
  EXPECT_THAT(refusal(std::string(100'000'001, ' ')).what, HasSubstr("100 MB"));
  std::string many = "[0";
  for (int i = 0; i < 4'000'000; ++i) many += ",0";
  EXPECT_THAT(refusal(many + "]").what, HasSubstr("4 million"));
}

TEST(Json, ErrorsStayShort) {
  EXPECT_LT(refusal("\"" + std::string(1'000'000, 'a')).what.size(), 1000u);
  EXPECT_LT(refusal("{\"" + std::string(1'000'000, 'a') + "\":1,\"" + std::string(1'000'000, 'a') +
                    "\":1}")
                .what.size(),
            1000u);
}

TEST(Json, ErrorsShowNamesAsTextCutAtEightyCharacters) {
  EXPECT_EQ(refusal(R"({"\u001b[2J\u0000x": 1, "\u001b[2J\u0000x": 1})").place, "#/?[2J?x");
  const std::string name(100, 'n');
  EXPECT_EQ(refusal("{\"" + name + "\": 1, \"" + name + "\": 1}").place,
            "#/" + std::string(80, 'n') + "...");
}

TEST(Json, TypesAreChecked) {
  const Json j = Json::array({Json(1), Json("x")});
  EXPECT_THROW(j.as_object(), std::invalid_argument);
  EXPECT_THROW(j.as_integer(), std::invalid_argument);
  EXPECT_THROW(Json(1.0).as_integer(), std::invalid_argument);
  EXPECT_THROW(Json("1").as_number(), std::invalid_argument);
  EXPECT_THROW(Json(1).as_bool(), std::invalid_argument);
  EXPECT_THROW(Json::object().at("missing"), std::invalid_argument);
  EXPECT_THROW(j.at("x"), std::invalid_argument);
  EXPECT_EQ(j.find("x"), nullptr);
  EXPECT_THROW(Json(1).push(Json()), std::invalid_argument);
}

TEST(Json, Pointers) {
  const Json j = parse_json(R"({"a/b": [10, {"~": 1}], "": 2})", "f.json");
  EXPECT_EQ(j.at_pointer(""), &j);
  EXPECT_EQ(j.at_pointer("/a~1b/0")->as_integer(), 10);
  EXPECT_EQ(j.at_pointer("/a~1b/1/~0")->as_integer(), 1);
  EXPECT_EQ(j.at_pointer("/")->as_integer(), 2);
  for (const char* p : {"a", "/x", "/a~1b/2", "/a~1b/00", "/a~1b/-1", "/a~1b/0x", "/a~1b/",
                        "/a~1b/0/1", "/a~1b/18446744073709551616"})
    EXPECT_EQ(j.at_pointer(p), nullptr) << p;
}

TEST(Json, Changes) {
  Json j;
  j.set("a", 1);
  j.set("b", Json());
  j.set("a", "two");
  Json list;
  list.push(1.0);
  j.set("l", list);
  EXPECT_EQ(j.dump(), R"({"a": "two", "b": null, "l": [1.0]})");
  EXPECT_EQ(j.dump(2), "{\n  \"a\": \"two\",\n  \"b\": null,\n  \"l\": [\n    1.0\n  ]\n}");
  EXPECT_EQ(Json::object().dump(2), "{}");
  EXPECT_EQ(Json::array().dump(), "[]");
}

TEST(Json, DumpRefuses) {
  EXPECT_THROW(Json(std::nan("")).dump(), std::invalid_argument);
  EXPECT_THROW(Json(INFINITY).dump(), std::invalid_argument);
  for (const char* text : {"\xff", "\xc0\x80", "a\xe2\x82", "\xed\xa0\x80", "\xf5\x80\x80\x80"})
    EXPECT_THROW(Json(text).dump(), std::invalid_argument) << text;
  Json deep;
  for (int i = 0; i < 201; ++i) deep = Json::array({deep});
  EXPECT_THROW(deep.dump(), std::invalid_argument);
}

Json random_json(test::Random& random, int depth) {
  switch (random.integer(0, depth < 4 ? 6 : 4)) {
    case 0:
      return Json(nullptr);
    case 1:
      return Json(random.coin());
    case 2:
      return Json(static_cast<std::int64_t>(random.bits()) >> random.integer(0, 63));
    case 3: {
      const double d = std::bit_cast<double>(random.bits());
      return Json(std::isfinite(d) ? d : std::round(random.uniform(-1e6, 1e6)));
    }
    case 4: {
      constexpr std::string_view kPieces[] = {"a",
                                              "\"",
                                              "\\",
                                              "/",
                                              "\n",
                                              "\x01",
                                              "\x7f",
                                              "\xc3\xa9",
                                              "\xe2\x82\xac",
                                              "\xf0\x9f\x98\x80",
                                              " "};
      std::string s;
      for (Index i = random.integer(0, 6); i > 0; --i)
        s += kPieces[static_cast<std::size_t>(random.integer(0, 10))];
      if (random.integer(0, 9) == 0) s += '\0';
      return Json(s);
    }
    case 5: {
      Json j = Json::array();
      for (Index i = random.integer(0, 5); i > 0; --i) j.push(random_json(random, depth + 1));
      return j;
    }
    default: {
      Json j = Json::object();
      for (Index i = random.integer(0, 20); i > 0; --i)
        j.set("k" + std::to_string(random.integer(0, 99)), random_json(random, depth + 1));
      return j;
    }
  }
}

TEST(Json, ParseOfDumpIsTheSame) {
  test::Random random(7);
  for (int i = 0; i < 3000; ++i) {
    const Json j = random_json(random, 0);
    EXPECT_EQ(parse_json(j.dump(), "f.json"), j) << j.dump();
    EXPECT_EQ(parse_json(j.dump(1), "f.json"), j) << j.dump(1);
  }
  for (const double d : {0.0, 1.0, -1.0, 1e15, 1e16, 1e20, 1e22, 1e300, 5e-324,
                         1.7976931348623157e308, 123456789012345680000.0})
    EXPECT_EQ(parse_json(Json(d).dump(), "f.json"), Json(d)) << Json(d).dump();
  EXPECT_TRUE(std::signbit(parse_json(Json(-0.0).dump(), "f.json").as_number()));
  Json deep;
  for (int i = 0; i < 200; ++i) deep = i % 2 ? Json::array({deep}) : Json::object({{"k", deep}});
  EXPECT_EQ(parse_json(deep.dump(), "f.json"), deep);
}

TEST(Json, ReadsFiles) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "a.json") << "{\"a\": [1, 2]}\n";
  EXPECT_EQ(read_json(directory / "a.json").dump(), "{\"a\": [1, 2]}");
  EXPECT_THROW(read_json(directory / "none.json"), FormatError);
  EXPECT_THROW(read_json(directory.path()), FormatError);
}

TEST(Json, ReadsTheConformanceSuites) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::filesystem::path(POSENC_SOURCE_DIR) / "conformance")) {
    if (entry.path().filename() != "cases.json") continue;
    ++files;
    const Json j = read_json(entry.path());
    EXPECT_EQ(parse_json(j.dump(), "dump"), j) << entry.path();
  }
  EXPECT_GE(files, 7u);
}

}  // namespace
}  // namespace posenc
