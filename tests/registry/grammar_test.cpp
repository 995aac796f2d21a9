// SPDX-License-Identifier: Apache-2.0
// The SCHEME grammar over the registry, and its value types on a struct of our own.
#include "registry/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "posenc/core/array_lookup.h"
#include "posenc/registry.h"
#include "posenc/registry/fields.h"
#include "registry/everything.h"
#include "support/random.h"

namespace posenc {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::string& text, const ArrayLookup& arrays = {}) {
  try {
    parse_encoding(text, arrays);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

Everything read(const std::string& fields, const ArrayLookup& arrays = {}) {
  const auto parts = grammar::split("everything " + fields);
  Everything e;
  Everything fallback;
  grammar::assign(parts.at(0), field_refs(e), field_refs(fallback), arrays);
  return e;
}
std::string text_of(Everything e) {
  Everything fallback;
  return grammar::print("everything", field_refs(e), field_refs(fallback));
}
std::string read_refusal(const std::string& fields, const ArrayLookup& arrays = {}) {
  try {
    read(fields, arrays);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

TEST(Grammar, ReadsTheExample) {
  const Encoding e =
      parse_encoding("rope head_dim=128 pairing=half_split base=1e+5 + linear factor=4");
  const Rope& rope = std::get<Rope>(e.scheme);
  EXPECT_EQ(rope.head_dim, 128);
  EXPECT_EQ(rope.base, 1e5);
  EXPECT_EQ(rope.pairing, Pairing::half_split);
  ASSERT_EQ(e.scalings.size(), 1u);
  EXPECT_EQ(std::get<Linear>(e.scalings[0]).factor, 4);
  EXPECT_EQ(to_text(e), "rope head_dim=128 base=100000 pairing=half_split + linear factor=4");
  EXPECT_EQ(card(e.scheme).name, "rope");
  EXPECT_EQ(e.scalings[0].card().name, "linear");
  EXPECT_TRUE(is_rotary(e.scheme));
}

TEST(Grammar, BlanksAreFree) {
  const Encoding e =
      parse_encoding("  rope\thead_dim=64\n pairing=interleaved  +  linear factor=2 ");
  EXPECT_EQ(to_text(e), "rope head_dim=64 pairing=interleaved + linear factor=2");
}

TEST(Grammar, ResolvesRotarySchemes) {
  const Encoding e =
      parse_encoding("rope head_dim=8 pairing=interleaved base=100 + linear factor=4");
  const RotarySpec spec = resolve(e);
  ASSERT_EQ(spec.blocks.size(), 1u);
  EXPECT_EQ(spec.blocks[0].spectrum.frequency,
            resolve(std::get<Rope>(e.scheme), std::vector<Scaling>{Linear{4}})
                .blocks[0]
                .spectrum.frequency);
  EXPECT_DOUBLE_EQ(spec.blocks[0].spectrum.frequency[0], 0.25);
}

TEST(Grammar, RefusalsNameWordRuleAndValue) {
  EXPECT_THAT(refusal(""), HasSubstr("[scheme] must begin"));
  EXPECT_THAT(refusal("  "), HasSubstr("must begin"));
  EXPECT_THAT(refusal("rpoe head_dim=8"),
              AllOf(HasSubstr("did you mean rope?"), HasSubstr("rpoe")));
  EXPECT_THAT(refusal("qqqqqqqqqqqqqqqqqqqq"),
              AllOf(HasSubstr("rope"), testing::Not(HasSubstr("mean"))));
  EXPECT_THAT(refusal("linear factor=2"), HasSubstr("follows a +"));
  EXPECT_THAT(refusal("rope head_dim=8 pairing=half_split + rope head_dim=8"), HasSubstr("scheme"));
  EXPECT_THAT(refusal("rope head_dim=8 pairing=half_split + linaer factor=8"),
              HasSubstr("did you mean linear?"));
  EXPECT_THAT(refusal("rope head_dim=8 pairing=half_split +"), HasSubstr("follow the last +"));
  EXPECT_THAT(refusal("+ rope"), HasSubstr("before +"));
  EXPECT_THAT(refusal("rope + + linear"), HasSubstr("before +"));
  EXPECT_THAT(refusal("rope head_dim 8"), HasSubstr("key=value"));
  EXPECT_THAT(refusal("rope =8"), HasSubstr("key=value"));
  EXPECT_THAT(refusal("rope pairing=half_split"), HasSubstr("rope: head_dim must be given"));
  EXPECT_THAT(refusal("rope head_dim=8"), HasSubstr("rope: pairing must be given"));
  EXPECT_THAT(
      refusal("rope head_dim=8 pairing=half_split hed_dim=3"),
      AllOf(HasSubstr("did you mean head_dim?"), HasSubstr("rotary_dim"), HasSubstr("hed_dim")));
  // What files and papers call it; a sentence that ends once.
  EXPECT_THAT(
      refusal("rope head_dim=8 pairing=half_split theta=5"),
      AllOf(HasSubstr("(did you mean base? There are: head_dim"), HasSubstr(", got \"theta\"")));
  EXPECT_THAT(refusal("sinusoidal d_model=8"), HasSubstr("did you mean width?"));
  EXPECT_THAT(refusal("rope head_dim=8 head_dim=8 pairing=half_split"), HasSubstr("given once"));
  EXPECT_THAT(refusal("rope head_dim=8 pairing=half-split"),
              AllOf(HasSubstr("half_split"), HasSubstr("interleaved"), HasSubstr("half-split")));
  EXPECT_THAT(refusal("rope head_dim=8 pairing=unset"), HasSubstr("unset"));
  for (const char* bad :
       {"0", "-1", "65537", "4096.5", "nan", "inf", "x", "", "1e999", "8x", "[8]"})
    EXPECT_THAT(refusal(std::string("rope pairing=half_split head_dim=") + bad),
                HasSubstr("head_dim must"))
        << bad;
  for (const char* bad : {"0", "-1", "nan", "-nan", "inf", "1e301", "1e400", "1e-400", "0x10"})
    EXPECT_THAT(refusal(std::string("rope head_dim=8 pairing=half_split base=") + bad),
                HasSubstr("base must"))
        << bad;
}

// A short word differs in one letter or in two that changed places.
TEST(Grammar, SuggestsNoOtherShortWord) {
  constexpr std::string_view kKnown[] = {"bros", "yarn", "llama", "longrope"};
  EXPECT_EQ(nearest_word("frob", kKnown), "");
  EXPECT_EQ(nearest_word("brox", kKnown), "bros");
  EXPECT_EQ(nearest_word("yran", kKnown), "yarn");
  EXPECT_EQ(nearest_word("yar", kKnown), "yarn");
  EXPECT_EQ(nearest_word("lamma", kKnown), "llama");
  EXPECT_EQ(nearest_word("longropes", kKnown), "longrope");
  EXPECT_EQ(nearest_word("logropse", kKnown), "longrope");
}

TEST(Grammar, IntegersMayBeWrittenAsPowers) {
  EXPECT_EQ(read("shade=dark integer=1e6").integer, 1000000);
  EXPECT_EQ(read("shade=dark integer=-5").integer, -5);
  EXPECT_THAT(read_refusal("shade=dark integer=1.5e0"), HasSubstr("whole number"));
  EXPECT_THAT(read_refusal("shade=dark integer=1e16"), HasSubstr("integer must be"));
  EXPECT_THAT(read_refusal("shade=dark integer=9223372036854775808"), HasSubstr("integer must be"));
  EXPECT_EQ(
      read("shade=dark integers=[9223372036854775807,-9223372036854775808]").integers,
      (std::vector<Index>{std::numeric_limits<Index>::max(), std::numeric_limits<Index>::min()}));
}

TEST(Grammar, Lists) {
  EXPECT_EQ(read("shade=dark numbers=[1.1,1.2]").numbers, (std::vector<double>{1.1, 1.2}));
  EXPECT_EQ(read("shade=dark numbers=[ 1.1 , 1.2 ]").numbers, (std::vector<double>{1.1, 1.2}));
  EXPECT_TRUE(read("shade=dark numbers=[]").numbers.empty());
  EXPECT_EQ(read("shade=dark integers=[1,-2]").integers, (std::vector<Index>{1, -2}));
  EXPECT_EQ(read("shade=dark shades=[light, dark,light]").shades,
            (std::vector<Shade>{Shade::light, Shade::dark, Shade::light}));
  EXPECT_TRUE(read("shade=dark shades=[]").shades.empty());
  EXPECT_EQ(text_of(read("shade=dark shades=[dark,light]")),
            "everything shade=dark shades=[dark,light]");
  EXPECT_THAT(read_refusal("shade=dark shades=[lihgt]"), HasSubstr("did you mean light?"));
  for (const char* bad : {"dark", "[dark", "[dark,]", "[unset]", "[1]", "@whole", ""})
    EXPECT_NE(read_refusal(std::string("shade=dark shades=") + bad), "") << bad;
  for (const char* bad :
       {"[1", "1", "[1,]", "[,1]", "[1,,2]", "[1 2]", "[x]", "]1[", "[nan]", "[-1]", "[[1]]", ""})
    EXPECT_NE(read_refusal(std::string("shade=dark numbers=") + bad), "") << bad;
}

TEST(Grammar, ArraysByName) {
  const ArrayLookup arrays = [](std::string_view name) {
    if (name == "short_factor") return std::vector<double>{1, 2.5};
    if (name == "whole") return std::vector<double>{4, 5};
    if (name == "negative") return std::vector<double>{-1};
    if (name == "broken") return std::vector<double>{std::nan("")};
    throw std::invalid_argument("[arrays] no such array, got \"" + std::string(name) + "\"");
  };
  EXPECT_EQ(read("shade=dark numbers=@short_factor", arrays).numbers,
            (std::vector<double>{1, 2.5}));
  EXPECT_EQ(read("shade=dark integers=@whole", arrays).integers, (std::vector<Index>{4, 5}));
  EXPECT_THAT(read_refusal("shade=dark integers=@short_factor", arrays), HasSubstr("whole"));
  EXPECT_THAT(read_refusal("shade=dark numbers=@negative", arrays), HasSubstr("at least 0"));
  EXPECT_THAT(read_refusal("shade=dark numbers=@broken", arrays), HasSubstr("numbers must be"));
  EXPECT_THAT(read_refusal("shade=dark numbers=@other", arrays), HasSubstr("no such array"));
  EXPECT_THAT(read_refusal("shade=dark numbers=@other"), HasSubstr("no arrays are given"));
  EXPECT_THAT(read_refusal("shade=dark number=@whole", arrays), HasSubstr("must be a number"));
}

TEST(Grammar, TextAndOptionals) {
  EXPECT_EQ(read("shade=dark text=abc").text, "abc");
  EXPECT_EQ(read(R"(shade=dark text="a b + \"c\" \\")").text, "a b + \"c\" \\");
  EXPECT_EQ(read("shade=dark text=\"\"").text, "");
  EXPECT_EQ(read("shade=dark maybe_integer=none").maybe_integer, std::nullopt);
  EXPECT_EQ(read("shade=dark maybe_text=none").maybe_text, std::nullopt);
  EXPECT_EQ(read("shade=dark maybe_text=\"none\"").maybe_text, "none");
  EXPECT_EQ(read("shade=dark maybe_shade=light").maybe_shade, Shade::light);
  EXPECT_EQ(read("shade=dark maybe_number=-2").maybe_number, -2.0);
  for (const char* bad : {"maybe_number=6", "maybe_shade=unset", "text=", "text=\"a", "text=\"a\"b",
                          "text=a,b", "flag=yes", "flag=1", "maybe_integer=nil"})
    EXPECT_NE(read_refusal(std::string("shade=dark ") + bad), "") << bad;
}

TEST(Grammar, TextLeavesOutDefaults) {
  EXPECT_EQ(text_of(read("shade=dark")), "everything shade=dark");
  EXPECT_EQ(text_of(read("shade=dark number=1.5 numbers=[0.5] maybe_integer=3 text=word")),
            "everything shade=dark");
  EXPECT_EQ(text_of(read("shade=dark maybe_integer=none numbers=[] flag=false text=\"none\"")),
            "everything flag=false shade=dark text=\"none\" numbers=[] maybe_integer=none");
}

// A random value in the range of its field.
struct Randomise {
  test::Random& random;
  const Field& field;

  double number() const {
    const double low = std::max(field.min, -1e6), high = std::min(field.max, 1e6);
    switch (random.integer(0, 3)) {
      case 0:
        return field.min;
      case 1:
        return std::clamp(std::round(random.uniform(low, high)), field.min, field.max);
      case 2:
        return std::clamp(std::exp(random.uniform(-600, 600)), field.min, field.max);
      default:
        return random.uniform(low, high);
    }
  }
  Index integer() const {
    const double low = std::max(field.min, -1e12), high = std::min(field.max, 1e12);
    return random.integer(static_cast<Index>(std::ceil(low)), static_cast<Index>(high));
  }
  std::size_t length() const { return static_cast<std::size_t>(random.integer(0, 5)); }

  void operator()(double* x) const { *x = number(); }
  void operator()(Index* x) const { *x = integer(); }
  void operator()(bool* x) const { *x = random.coin(); }
  void operator()(std::string* x) const {
    x->clear();
    for (std::size_t i = length(); i > 0; --i)
      *x += " \"\\[],@+=none\xc3\xa9\n"[static_cast<std::size_t>(random.integer(0, 15))];
  }
  void operator()(std::vector<double>* x) const {
    x->resize(length());
    for (double& v : *x) v = number();
  }
  void operator()(std::vector<Index>* x) const {
    x->resize(length());
    for (Index& v : *x) v = integer();
  }
  void operator()(const EnumRef& e) const {
    const Index first = e.names[0] == "unset" ? 1 : 0;
    const auto last = static_cast<Index>(e.names.size()) - 1;
    e.set(e.value, static_cast<std::size_t>(random.integer(first, last)));
  }
  void operator()(const EnumListRef& e) const {
    std::vector<std::size_t> values(length());
    for (std::size_t& v : values) v = static_cast<std::size_t>(random.integer(1, 2));
    e.set(e.value, values);
  }
  void operator()(const OptionalRef& o) const {
    if (random.coin())
      o.reset(o.value);
    else
      std::visit(*this, o.engage(o.value).target);
  }
};

template <class T>
T random_value(test::Random& random) {
  T x{};
  for (const FieldRef& f : field_refs(x)) std::visit(Randomise{random, f.field}, f.value.target);
  return x;
}

TEST(Grammar, ParseOfTextIsTheSameForEveryFieldType) {
  test::Random random(11);
  for (int i = 0; i < 2000; ++i) {
    const Everything e = random_value<Everything>(random);
    const std::string text = text_of(e);
    EXPECT_EQ(read(text.substr(std::string_view("everything").size())), e) << text;
  }
}

TEST(Grammar, ParseOfTextIsTheSameOverTheRegistry) {
  test::Random random(12);
  int schemes = 0, scalings = 0;
  std::vector<Scaling> chain;
  for_each(Scalings{}, [&]<class T>() {
    ++scalings;
    for (int i = 0; i < 50; ++i) {
      Encoding e{parse_encoding("rope head_dim=8 pairing=half_split").scheme, {}};
      e.scalings.emplace_back(random_value<T>(random));
      EXPECT_EQ(parse_encoding(to_text(e)), e) << to_text(e);
      EXPECT_EQ(hash(parse_encoding(to_text(e))), hash(e)) << to_text(e);
      if (i == 0) chain.push_back(e.scalings[0]);
    }
  });
  for_each(Schemes{}, [&]<class T>() {
    ++schemes;
    for (int i = 0; i < 50; ++i) {
      const Encoding e{random_value<T>(random), i % 2 ? chain : std::vector<Scaling>{}};
      EXPECT_EQ(parse_encoding(to_text(e)), e) << to_text(e);
      EXPECT_EQ(hash(parse_encoding(to_text(e))), hash(e)) << to_text(e);
      EXPECT_EQ(parse_json(to_json(e).dump(), "json"), to_json(e));
    }
  });
  EXPECT_GT(schemes, 0);
  EXPECT_GT(scalings, 0);
}

}  // namespace
}  // namespace posenc
