// SPDX-License-Identifier: Apache-2.0
// What the registry says of its fields, and hashes of values.
#include "posenc/core/fields.h"

#include <gtest/gtest.h>

#include <set>

#include "core/everything.h"
#include "core/field_ref.h"
#include "core/grammar.h"
#include "core/hash.h"
#include "support/random.h"

namespace posenc {
namespace {

TEST(Fields, EverySchemeIsListedOnceAndDocumented) {
  std::set<std::string_view> names;
  auto all = all_schemes();
  EXPECT_EQ(all.size(), Schemes::size);
  for (const SchemeInfo& s : all_scalings()) all.push_back(s);
  EXPECT_EQ(all.size(), Schemes::size + Scalings::size);
  for (const SchemeInfo& s : all) {
    EXPECT_TRUE(names.insert(s.card.name).second) << s.card.name << " stands twice";
    EXPECT_FALSE(s.card.title.empty()) << s.card.name;
    EXPECT_FALSE(s.card.paper.empty()) << s.card.name;
    EXPECT_EQ(s.card.name.find_first_of(" =+[]@\",A"), std::string_view::npos) << s.card.name;
    std::set<std::string_view> fields;
    for (const FieldInfo& f : s.fields) {
      EXPECT_TRUE(fields.insert(f.name).second) << s.card.name << "." << f.name;
      EXPECT_FALSE(f.doc.empty()) << s.card.name << "." << f.name;
      EXPECT_EQ(f.name.find_first_of(" =+[]@\","), std::string_view::npos) << f.name;
    }
  }
}

TEST(Fields, SayWhatTheyAre) {
  const SchemeInfo rope = all_schemes().front();
  EXPECT_EQ(rope.card.name, "rope");
  EXPECT_EQ(rope.family, "rotary");
  ASSERT_GE(rope.fields.size(), 7u);
  EXPECT_EQ(rope.fields[0].name, "head_dim");
  EXPECT_EQ(rope.fields[0].type, "integer");
  EXPECT_EQ(rope.fields[0].min, 1.0);
  EXPECT_TRUE(rope.fields[0].required);
  EXPECT_EQ(rope.fields[3].default_text, "10000");
  EXPECT_EQ(rope.fields[4].type, "half_split|interleaved");
  Everything e;
  const auto refs = field_refs(e);
  const auto info = [&](std::size_t i) { return grammar::field_info(refs[i]); };
  EXPECT_EQ(info(0).unit, "rad");
  EXPECT_EQ(info(0).min, std::nullopt);
  EXPECT_EQ(info(3).choices, (std::vector<std::string_view>{"dark", "light"}));
  EXPECT_EQ(info(5).type, "list of numbers");
  EXPECT_EQ(info(7).type, "list of words");
  EXPECT_EQ(info(7).choices, (std::vector<std::string_view>{"dark", "light"}));
  EXPECT_EQ(info(7).default_text, "[]");
  EXPECT_TRUE(info(8).optional);
  EXPECT_EQ(info(8).type, "number");
  EXPECT_EQ(info(8).default_text, "none");
  EXPECT_EQ(info(9).default_text, "3");
  EXPECT_TRUE(info(8).default_value.is_null());
  EXPECT_EQ(info(9).default_value, Json(3));
  EXPECT_EQ(e, Everything()) << "asking changes nothing";
}

TEST(Fields, AreJsonWithDefaultsByTheirTypes) {
  const Json registry = registry_json();
  EXPECT_EQ(registry.at("schema"), Json("posenc.list/1"));
  EXPECT_EQ(registry.at("schemes").as_array().size(), Schemes::size);
  EXPECT_EQ(registry.at("scalings").as_array().size(), Scalings::size);
  for (const char* list : {"schemes", "scalings"})
    for (const Json& s : registry.at(list).as_array()) {
      for (const Json& f : s.at("fields").as_array()) {
        const Json& value = f.at("default_value");
        const bool none = f.at("optional").as_bool() && f.at("default") == Json("none");
        EXPECT_EQ(value.is_null(), none || f.at("required").as_bool()) << f.dump();
      }
      for (const Json& p : s.at("presets").as_array()) {
        EXPECT_EQ(p.at("fields").as_object().size(), s.at("fields").as_array().size());
        const Encoding e = parse_encoding(p.at("preset").as_string());
        EXPECT_EQ(to_json(e.scheme).at("fields"), p.at("fields")) << p.dump();
      }
    }
}

TEST(Fields, AScalingIsReadByItself) {
  const std::string text = "yarn factor=4 original_context=4096";
  const Scaling yarn = parse_scaling(text);
  EXPECT_EQ(to_text(yarn), text);
  EXPECT_EQ(yarn, parse_encoding("rope head_dim=8 pairing=half_split + " + text).scalings.front());
  EXPECT_THROW(parse_scaling("rope head_dim=8 pairing=half_split"), std::invalid_argument);
  EXPECT_THROW(parse_scaling("linear factor=2 + linear factor=2"), std::invalid_argument);
  EXPECT_THROW(parse_scaling("linearr factor=2"), std::invalid_argument);
}

TEST(Hash, EqualValuesHaveEqualHashes) {
  Everything a, b;
  EXPECT_EQ(hash_of(a), hash_of(b));
  a.number = 0.0;
  b.number = -0.0;
  ASSERT_EQ(a, b);
  EXPECT_EQ(hash_of(a), hash_of(b));
  std::set<std::uint64_t> seen;
  test::Random random(5);
  for (int i = 0; i < 10000; ++i) {
    Everything e;
    e.number = i;
    e.numbers.assign(static_cast<std::size_t>(i % 7), 0.0);
    seen.insert(hash_of(e));
  }
  EXPECT_EQ(seen.size(), 10000u);
}

}  // namespace
}  // namespace posenc
