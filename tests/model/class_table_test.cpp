// SPDX-License-Identifier: Apache-2.0
// The table of model types is read as typed rules: what it says and nobody knows is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "model/hugging_face/class_rules/class_rules.h"

namespace posenc::inline v0::hf {
namespace {

std::string refusal(const std::string& entry) {
  try {
    const std::string text = R"({"some": )" + entry + "}";
    const std::string_view texts[] = {text};
    (void)read_class_table(texts);
  } catch (const std::logic_error& problem) {
    return problem.what();
  }
  return "";
}

TEST(ClassTable, UnknownMembersAreRefusedByPlace) {
  EXPECT_EQ(refusal(R"({"class": "SomeConfig", "pairing": "half_split"})"), "");
  EXPECT_EQ(refusal(R"({"class": "SomeConfig", "pairng": "half_split"})"),
            "[class table] some has no member pairng");
  EXPECT_EQ(refusal(R"({"rope": {"rule": "flat", "parital": 0.5}})"),
            "[class table] some.rope has no member parital");
  EXPECT_EQ(refusal(R"({"parts": {"text_config": {"typ": "llama"}}})"),
            "[class table] some.parts.text_config has no member typ");
}

TEST(ClassTable, ATypeHasOneEntry) {
  const std::string_view texts[] = {R"({"some": {}, "other": {}})", R"({"some": {}})"};
  EXPECT_THAT([&] { (void)read_class_table(texts); },
              ::testing::ThrowsMessage<std::logic_error>(
                  "[class table] some must have one entry, got two"));
}

TEST(ClassTable, MembersOfAnotherFormAreRefused) {
  EXPECT_EQ(refusal(R"({"typed": "yes"})"),
            "[class table] some.typed must be true or false, got \"yes\"");
  EXPECT_EQ(refusal(R"({"window": {"divide": 1.5}})"),
            "[class table] some.window.divide must be a whole number, got 1.5");
  EXPECT_EQ(refusal(R"({"names": ["d_model"]})"),
            "[class table] some.names must be an object of texts, got [\"d_model\"]");
}

// What comes to stand over the rules only where a file says so is checked on reading the table.
TEST(ClassTable, OverlaysAreHeldToTheSameMembers) {
  EXPECT_EQ(refusal(R"({"variants": {"key": "k", "of": {"a": {"inptu": "learned"}}}})"),
            "[class table] some.variants.of.a has no member inptu");
  EXPECT_EQ(refusal(R"({"decoder_is": {"schme": "none"}})"),
            "[class table] some.decoder_is has no member schme");
}

TEST(ClassTable, AnOverlayReplacesByMemberAndNullTakesAway) {
  ClassRules rules;
  rules.class_name = "SomeConfig", rules.pairing = "half_split", rules.typed = true;
  rules = with(rules, parse_json(R"({"pairing": "interleaved", "typed": null})", "test"));
  EXPECT_EQ(rules.class_name, "SomeConfig");
  EXPECT_EQ(rules.pairing, "interleaved");
  EXPECT_FALSE(rules.typed);
}

TEST(ClassTable, EveryTypeIsThereWithItsRules) {
  EXPECT_GT(all_class_rules().size(), 800U);
  const ClassRules* llama = class_rules("llama");
  ASSERT_NE(llama, nullptr);
  EXPECT_EQ(llama->class_name, "LlamaConfig");
  EXPECT_EQ(llama->scheme, "rope");
  EXPECT_EQ(llama->pairing, "half_split");
  EXPECT_EQ(class_rules("no_such_type"), nullptr);
}

// The part that is read as the model, where a file leaves its model_type out.
TEST(ClassTable, EveryMainPartHasATypeWithRules) {
  for (const auto& [name, rules] : all_class_rules())
    for (const auto& [key, part] : rules.parts.pairs)
      EXPECT_TRUE(!part.main || class_rules(part.type)) << name << "." << key << ": " << part.type;
}

}  // namespace
}  // namespace posenc::v0::hf
