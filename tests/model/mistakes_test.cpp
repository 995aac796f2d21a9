// SPDX-License-Identifier: Apache-2.0
// Single mistakes in good configs (mistakes.json): each gets a finding that the good config has not
// got. And what is sound gets none of the two warnings that guess.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "hugging_face_suite.h"
#include "model/hugging_face/config_view.h"
#include "model/hugging_face/near_keys.h"

namespace posenc {
namespace {

using namespace test;
namespace fs = std::filesystem;

using Said = std::set<std::pair<std::string, std::string>>;  // code and message

const Json& list_of_mistakes() {
  static const Json list = read_json(fs::path(POSENC_SOURCE_DIR) / "tests/model/mistakes.json");
  return list;
}

// The object that holds the last name of a pointer, and that name.
std::pair<Json*, std::string> holder(Json& config, std::string_view pointer) {
  Json* at = &config;
  for (std::size_t cut; (cut = pointer.find('/', 1)) != std::string_view::npos;
       pointer.remove_prefix(cut)) {
    const std::string_view name = pointer.substr(1, cut - 1);
    for (auto& [key, value] : at->as_object())
      if (key == name) {
        at = &value;
        break;
      }
  }
  return {at, std::string(pointer.substr(1))};
}

Json taken_out(Json& config, const std::string& pointer) {
  const auto [object, name] = holder(config, pointer);
  auto& members = object->as_object();
  const auto at = std::find_if(members.begin(), members.end(),
                               [&, &key = name](const auto& m) { return m.first == key; });
  EXPECT_NE(at, members.end()) << pointer;
  Json value = at->second;
  members.erase(at);
  return value;
}

Json with_mistake(Json config, const Json& mistake) {
  if (const Json* renamed = mistake.find("rename"))
    for (const auto& [from, to] : renamed->as_object())
      holder(config, from).first->set(to.as_string(), taken_out(config, from));
  if (const Json* removed = mistake.find("remove"))
    for (const Json& pointer : removed->as_array()) taken_out(config, pointer.as_string());
  if (const Json* changed = mistake.find("set"))
    for (const auto& [pointer, value] : changed->as_object()) {
      const auto [object, name] = holder(config, pointer);
      object->set(name, value);
    }
  return config;
}

std::vector<Finding> doctor_on(const Json& config) {
  return doctor(read_hugging_face(config, "config.json"));
}

bool general(const Finding& f) {
  return f.severity == Severity::note &&
         (f.code == "float32_angle" || f.code == "pair_never_turns" || f.code == "pairing_risk");
}

// What the mistake adds to the findings of its base.
std::vector<Finding> added(const Json& mistake) {
  const Json& base = list_of_mistakes().at("bases").at(mistake.at("base").as_string());
  Said before;
  for (const Finding& f : doctor_on(base)) before.insert({f.code, f.message});
  std::vector<Finding> out;
  for (const Finding& f : doctor_on(with_mistake(base, mistake)))
    if (!before.count({f.code, f.message}) && !general(f)) out.push_back(f);
  return out;
}

TEST(Mistakes, EachHasItsFinding) {
  constexpr int kMostSilent = 7;
  int silent = 0, all = 0;
  for (const Json& mistake : list_of_mistakes().at("mistakes").as_array()) {
    const std::string who = mistake.at("base").as_string() + ": " + mistake.at("what").as_string();
    const std::vector<Finding> found = added(mistake);
    const Json* code = mistake.find("code");
    ++all;
    if (mistake.find("group")) {
      EXPECT_FALSE(found.empty()) << who;  // an error of the reader's own
    } else if (code) {
      EXPECT_THAT(found, testing::Contains(testing::Field(&Finding::code, code->as_string())))
          << who;
    } else {
      ++silent;
      EXPECT_FALSE(mistake.at("silent").as_string().empty()) << who;
      EXPECT_TRUE(found.empty()) << who << " has " << found[0].code << " now: not silent";
    }
  }
  EXPECT_GE(all, 330);
  EXPECT_LE(silent, kMostSilent);
}

TEST(Mistakes, TheBasesAreSound) {
  for (const auto& [name, config] : list_of_mistakes().at("bases").as_object())
    for (const Finding& f : doctor_on(config))
      EXPECT_TRUE(f.severity == Severity::note || f.code == "switch_length" ||
                  f.code == "float32_angle")
          << name << " " << f.code << ": " << f.message;
}

TEST(Mistakes, WhatAKeyMeans) {
  const std::vector<std::string_view> known = {"rope_theta", "max_position_embeddings", "n_head"};
  for (const auto& [name, meant] : {std::pair("ropeTheta", "rope_theta"),
                                    {"rope-theta", "rope_theta"},
                                    {"rope_thteta", "rope_theta"},
                                    {"rope_theta", ""},
                                    {"rope_base", ""},
                                    {"theta", ""},
                                    {"max_postion_embedding", "max_position_embeddings"},
                                    {"n_haed", "n_head"},
                                    {"head", ""},
                                    {"max_pos_embeddings", ""}})
    EXPECT_EQ(hf::nearly(name, known), meant) << name;
  EXPECT_EQ(hf::of_words("max_pos_embeddings", known), "max_position_embeddings");
  EXPECT_EQ(hf::of_words("theta_rope", known), "rope_theta");
  EXPECT_EQ(hf::of_words("max_embeddings", known), "");
}

void expect_no_guess(const std::vector<Finding>& findings, const std::string& who) {
  for (const Finding& f : findings)
    EXPECT_TRUE(f.code != "nearly_a_key" && f.code != "implausible_value")
        << who << " " << f.where << ": " << f.message;
}

int configs_in(const Json& j, const std::string& who) {
  int seen = 0;
  if (j.is_array())
    for (const Json& one : j.as_array()) seen += configs_in(one, who);
  if (!j.is_object()) return seen;
  for (const auto& [key, value] : j.as_object()) {
    if ((key == "config" || key == "params_config") && value.is_object()) {
      expect_no_guess(doctor_on(value), who);
      ++seen;
    }
    seen += configs_in(value, who);
  }
  return seen;
}

TEST(Mistakes, NoneInTheClassDefaults) {
  int types = 0;
  for (const auto& [type, rules] : hf::all_class_rules()) {
    Json stated = rules.defaults.is_null() ? Json::object() : rules.defaults;
    stated.set("model_type", type);
    expect_no_guess(doctor_on(Json::object({{"model_type", type}})), type);
    expect_no_guess(doctor_on(stated), type + ", stated");
    ++types;
  }
  EXPECT_GE(types, 805);
}

TEST(Mistakes, NoneInTheSuites) {
  int files = 0, configs = 0;
  for (const char* folder : {"conformance", "examples/models", "tests/model"})
    for (const auto& entry :
         fs::recursive_directory_iterator(fs::path(POSENC_SOURCE_DIR) / folder)) {
      const fs::path& file = entry.path();
      if (file.filename() == "mistakes.json") continue;
      if (file.filename() == "config.json" || file.extension() == ".gguf") try {
          expect_no_guess(doctor(read_model(file)), file.string());
          ++files;
        } catch (const FormatError&) {  // files made to be refused
        }
      else if (file.extension() == ".json")
        configs += configs_in(read_json(file), file.string());
    }
  EXPECT_GE(files, 140);
  EXPECT_GE(configs, 900);
}

}  // namespace
}  // namespace posenc
