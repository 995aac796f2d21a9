// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/error.h"

#include <gtest/gtest.h>

#include "posenc/registry.h"

namespace posenc {
namespace {

template <class F>
ArgumentError caught(F&& f) {
  try {
    f();
  } catch (const ArgumentError& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was refused";
  return {"", "", "", ""};
}

TEST(Errors, AnArgumentErrorHasItsPartsAndTheSameSentence) {
  const ArgumentError e = caught([] { refuse("rope", "head_dim must be even", 7.5); });
  EXPECT_STREQ(e.what(), "[rope] head_dim must be even, got 7.5");
  EXPECT_EQ(e.who(), "rope");
  EXPECT_EQ(e.field(), "head_dim");
  EXPECT_EQ(e.rule(), "head_dim must be even");
  EXPECT_EQ(e.value(), "7.5");
  const ArgumentError text = caught([] { refuse("json", "needs a name", ""); });
  EXPECT_STREQ(text.what(), "[json] needs a name, got \"\"");
  EXPECT_EQ(text.field(), "");
  const ArgumentError plain = caught([] { refuse("axial", "a head must hold its axes"); });
  EXPECT_STREQ(plain.what(), "[axial] a head must hold its axes");
  EXPECT_EQ(plain.field(), "");
  EXPECT_EQ(plain.value(), "");
}

TEST(Errors, ADefinitionAndTheGrammarNameTheField) {
  const auto field = [](const char* scheme) {
    return caught([&] { resolve(parse_encoding(scheme)); }).field();
  };
  EXPECT_EQ(field("rope head_dim=7 base=10000 pairing=half_split"), "head_dim");
  EXPECT_EQ(field("rope head_dim=8 base=1e9999 pairing=half_split"), "base");
  EXPECT_EQ(field("rope head_dim=8 base=10000 pairing=both"), "pairing");
  EXPECT_EQ(field("rope head_dim=8 base=10000 pairing=half_split + linear factor=-1"), "factor");
  EXPECT_EQ(field("rope base=10000 pairing=half_split"), "head_dim");
}

}  // namespace
}  // namespace posenc
