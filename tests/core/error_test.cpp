// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/error.h"

#include <gtest/gtest.h>

#include "core/extent.h"
#include "posenc/core/parameter.h"
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
  const ArgumentError e = caught([] { refuse_field("rope", "head_dim", "must be even", 7.5); });
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

TEST(Errors, TheFieldIsAValue) {
  // A word that begins a sentence is no field.
  EXPECT_EQ(caught([] { refuse("axial", "there must be axes"); }).field(), "");
  const ArgumentError whole =
      caught([] { refuse_field("c", "mask.key_length", "must rise", Index{3}); });
  EXPECT_STREQ(whole.what(), "[c] mask.key_length must rise, got 3");
  EXPECT_EQ(whole.field(), "mask.key_length");
  EXPECT_EQ(whole.rule(), "mask.key_length must rise");
  const ArgumentError text = caught([] { refuse_field("read", "order", "must be bthd", "b\n"); });
  EXPECT_STREQ(text.what(), "[read] order must be bthd, got \"b?\"");
  EXPECT_EQ(text.value(), "\"b?\"");  // what a terminal would act on
  const ArgumentError inside =
      caught([] { refuse_sentence("scheme", "base", "rope needs base=", "x"); });
  EXPECT_STREQ(inside.what(), "[scheme] rope needs base=, got \"x\"");
  EXPECT_EQ(inside.field(), "base");
}

// Of members and of arrays that a scheme names, which were not the first word of a message.
TEST(Errors, ChecksNameComposedFields) {
  const Parameter table{"0.table", {2, 3}, {}, {}};
  const double number = 0;
  const ConstTensorView wrong = tensor(&number, {1});
  const ArgumentError shape = caught([&] { parameter_values("plan", table, wrong); });
  EXPECT_STREQ(shape.what(),
               "[plan] parameter 0.table must be [2, 3] of f64 or f32, got [1] of f64");
  EXPECT_EQ(shape.field(), "0.table");
  const ArgumentError axes = caught([] {
    ConstTensorView v;
    v.rank = 9;
    detail::check_extent("heads", "key mask", v);
  });
  EXPECT_STREQ(axes.what(), "[heads] key mask must have 0 to 5 axes, got 9");
  EXPECT_EQ(axes.field(), "key mask");
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
