// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/printable.h"

#include <gtest/gtest.h>

#include <cstring>

#include "posenc/core/error.h"

namespace posenc {
namespace {

using namespace std::string_literals;

TEST(Printable, CleanTextStaysAsItIs) {
  for (const char* text :
       {"", "model.layers.0.weight", "\xc3\xa9t\xc3\xa9", "\xe4\xbd\x8d\xe7\xbd\xae",
        "\xf0\x9f\x99\x82", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, WhatATerminalObeysBecomesAQuestionMark) {
  EXPECT_EQ(printable("\033[2J\a\r\n\t\x7f"), "?[2J?????");
  EXPECT_EQ(printable("a\0b"s), "a?b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "??31m")
      << "U+009B begins a sequence of its own";
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b\xe2\x81\xa6"),
            "a???b???")
      << "U+202E and U+2066 reorder a line";
}

// Unicode 15, table 3-7: well-formed byte sequences.
TEST(Printable, BrokenUtf8BecomesAQuestionMarkAByte) {
  for (const char* text :
       {"\xff", "\xc0\x80", "\xc3", "\xe4\xbd", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80",
        "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf5\x80\x80\x80"})
    EXPECT_EQ(printable(text), std::string(std::strlen(text), '?'));
}

TEST(Printable, LongNamesAreCutByCharacters) {
  EXPECT_EQ(printable(std::string(80, 'x')), std::string(80, 'x'));
  EXPECT_EQ(printable(std::string(81, 'x')), std::string(80, 'x') + "...");
  std::string accents, expected;
  for (int i = 0; i < 100; ++i) accents += "\xc3\xa9";
  for (int i = 0; i < 80; ++i) expected += "\xc3\xa9";
  EXPECT_EQ(printable(accents), expected + "...");
  EXPECT_EQ(printable("abc", 2), "ab...");
}

TEST(Printable, ErrorsAreWhole) {
  const FormatError e("a\033.json", "#/b\0c"s, "got \xff");
  EXPECT_STREQ(e.what(), "a?.json: #/b?c: got ?");
  EXPECT_EQ(e.place(), "#/b?c");
  EXPECT_EQ(e.file(), "a\033.json");
}

}  // namespace
}  // namespace posenc
