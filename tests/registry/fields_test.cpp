// SPDX-License-Identifier: Apache-2.0
// What the registry says of its fields, and hashes of values.
#include "posenc/registry/fields.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "posenc/attention/plan.h"
#include "posenc/relative/any_scheme.h"
#include "registry/everything.h"
#include "registry/field_ref.h"
#include "registry/grammar.h"
#include "registry/hash.h"
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

TEST(Fields, DefaultsThatOtherFieldsDecideNameThem) {
  std::size_t found = 0;
  auto all = all_schemes();
  for (const SchemeInfo& s : all_scalings()) all.push_back(s);
  for (const SchemeInfo& s : all) {
    std::set<std::string> known{"heads", "head_dim", "1"};
    for (const FieldInfo& f : s.fields) known.insert(std::string(f.name));
    for (const FieldInfo& f : s.fields) {
      if (f.default_from.empty()) continue;
      ++found;
      EXPECT_FALSE(f.required) << s.card.name << "." << f.name;
      std::istringstream words{std::string(f.default_from)};
      for (std::string word; words >> word;)
        EXPECT_TRUE(word == "+" || word == "-" || word == "*" || known.count(word))
            << s.card.name << "." << f.name << " " << word;
    }
  }
  EXPECT_EQ(found, 18u);
}

TEST(Fields, DefaultsThatOtherFieldsDecideAreThese) {
  const auto rotary = [](const char* text) {
    return resolve(parse_encoding(text)).blocks[0].spectrum.frequency;
  };
  EXPECT_EQ(rotary("rope head_dim=16 offset=4 pairing=half_split"),
            rotary("rope head_dim=16 offset=4 pairing=half_split rotary_dim=12"));
  EXPECT_EQ(rotary("xpos head_dim=16 offset=4 pairing=half_split center=0"),
            rotary("xpos head_dim=16 offset=4 pairing=half_split center=0 rotary_dim=12"));
  EXPECT_EQ(rotary("mrope head_dim=16 offset=4 pairing=half_split sections=[2,2,2] layout=chunked"),
            rotary("mrope head_dim=16 offset=4 pairing=half_split sections=[2,2,2] layout=chunked "
                   "rotary_dim=12"));
  const std::string rope = "rope head_dim=16 pairing=half_split + ";
  const std::string yarn = rope + "yarn factor=4 original_context=128";
  EXPECT_EQ(rotary(yarn.c_str()), rotary((yarn + " range_context=128").c_str()));
  EXPECT_NE(rotary(yarn.c_str()), rotary((yarn + " range_context=512").c_str()));
  const auto dynamic = [&](const char* more) {
    const std::string text = rope + "dynamic_yarn original_context=128 length_rule=per_call" + more;
    return resolve(parse_encoding(text), Context{200}).blocks[0].spectrum.frequency;
  };
  EXPECT_EQ(dynamic(""), dynamic(" max_context=128"));
  EXPECT_NE(dynamic(""), dynamic(" max_context=512"));
}

// What a scheme of the list says of its arrays.
struct Said {
  std::map<std::string, Json> parameters, inputs;
  std::string at;
};

Said said_of(const std::string& name) {
  Said said;
  const Json registry = registry_json();
  for (const Json& s : registry.at("schemes").as_array()) {
    if (s.at("name") != Json(name)) continue;
    said.at = s.at("at").as_string();
    for (const Json& p : s.at("parameters").as_array())
      said.parameters[p.at("name").as_string()] = p.at("shape");
    for (const Json& p : s.at("inputs").as_array())
      said.inputs[p.at("name").as_string()] = p.at("shape");
  }
  return said;
}

Index size_of_word(const Json& word, const ScoreShape& s) {
  if (word == Json("batch")) return kBatch;
  if (word == Json("queries")) return kQueries;
  if (word == Json("keys")) return kKeys;
  if (!word.is_string()) return word.as_integer();
  Index n = 1;
  std::istringstream product(word.as_string());
  for (std::string factor; product >> factor;)
    if (factor != "*")
      n *= factor == "heads"      ? s.heads
           : factor == "head_dim" ? s.head_dim
                                  : static_cast<Index>(std::stoll(factor));
  return n;
}

template <class List>
void expect_said(const Json& said, const List& found, const ScoreShape& sizes) {
  const auto& all = said.as_array();
  ASSERT_EQ(all.size(), found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(all[i].at("name"), Json(found[i].name));
    const auto& shape = all[i].at("shape").as_array();
    ASSERT_EQ(shape.size(), found[i].shape.size()) << said.dump();
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      EXPECT_EQ(size_of_word(shape[axis], sizes), found[i].shape[axis]) << said.dump();
  }
}

TEST(Fields, SizesOfArraysHoldAtOtherSizesToo) {
  ScoreShape sizes{.heads = 10, .head_dim = 48};
  sizes.distance.assign(3, {-5, 3});
  std::size_t checked = 0;
  const Json registry = registry_json();
  for (const Json& s : registry.at("schemes").as_array()) {
    if (s.at("family") != Json("relative")) continue;
    ASSERT_FALSE(s.at("parameters").is_null()) << s.at("name").dump();
    const AnyRelativeScheme scheme = relative_scheme(parse_encoding(s.at("at").as_string()));
    expect_said(s.at("parameters"), scheme.parameters(sizes), sizes);
    expect_said(s.at("inputs"), scheme.inputs(sizes), sizes);
    ++checked;
  }
  EXPECT_EQ(checked, RelativeSchemes::size);
}

TEST(Fields, ArraysAreSaidByNameAndShape) {
  const Said t5 = said_of("t5"), forgetting = said_of("forgetting"), learned = said_of("learned");
  EXPECT_EQ(t5.at, "t5 preset=encoder");
  EXPECT_EQ(t5.parameters.at("table").dump(), R"([32, "heads"])");
  EXPECT_TRUE(t5.inputs.empty());
  EXPECT_TRUE(forgetting.parameters.empty());
  EXPECT_EQ(forgetting.inputs.at("log_gate").dump(), R"(["batch", "keys", "heads"])");
  EXPECT_EQ(learned.at, "learned preset=bert width=768 positions=512");
  EXPECT_EQ(learned.parameters.at("table").dump(), "[512, 768]");
  EXPECT_EQ(said_of("transformer_xl").parameters.at("w_kr").dump(), R"(["heads * head_dim", 64])");
  EXPECT_EQ(said_of("relative_projection").parameters.at("b_r").dump(), R"(["heads * 16"])");
  EXPECT_EQ(said_of("dape").parameters.at("mlp2_0_weight").dump(), R"([32, "2 * heads", 1])");
  const Json registry = registry_json();
  EXPECT_TRUE(registry.at("schemes").as_array().front().at("parameters").is_null());
  for (const Json& s : registry.at("scalings").as_array())
    EXPECT_TRUE(s.at("parameters").is_null() && s.at("inputs").is_null() && s.at("at").is_null());
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
