// SPDX-License-Identifier: Apache-2.0
// A key deleted never leaves a changed value that still claims to be stated; a value replaced by
// nonsense never crashes.
#include <algorithm>
#include <functional>
#include <map>

#include "hugging_face_suite.h"
#include "posenc/core/error.h"
#include "support/sanitized.h"

namespace posenc {
namespace {

using namespace test;

// Calls visit with the path of every member of every object.
void for_each_member(const Json& config, const std::function<void(const std::string&)>& visit,
                     const std::string& path = "") {
  if (!config.is_object()) return;
  for (const auto& [key, value] : config.as_object()) {
    visit(path + "/" + key);
    for_each_member(value, visit, path + "/" + key);
  }
}

Json changed(const Json& config, const std::string& path, const Json* replacement) {
  Json copy = config;
  Json* at = &copy;
  std::size_t from = 1;
  for (;;) {
    const auto cut = path.find('/', from);
    const std::string key = path.substr(from, cut == std::string::npos ? cut : cut - from);
    auto& object = at->as_object();
    for (auto it = object.begin(); it != object.end(); ++it)
      if (it->first == key) {
        if (cut == std::string::npos) {
          if (replacement)
            it->second = *replacement;
          else
            object.erase(it);
          return copy;
        }
        at = &it->second;
        break;
      }
    from = cut + 1;
  }
}

struct Seen {
  Json value;
  Origin origin;
  std::string where;
};
using Fields = std::map<std::string, Seen>;
Fields fields_of(const ModelSpec& spec) {
  Fields out;
  const auto add = [&](const std::string& prefix, const std::vector<LayerSpec>& layers) {
    for (const auto& layer : layers)
      for (const auto& f : layer.fields)
        out[prefix + std::to_string(layer.index) + "/" + f.name] = {f.value, f.origin, f.where};
  };
  add("", spec.layers);
  for (const auto& tower : spec.towers) add(tower.name + "/", tower.layers);
  out["context"] = {spec.context.value, spec.context.origin, spec.context.where};
  return out;
}

// All of the suite's files; every eighth under sanitizers.
std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> out;
  for (const auto& e : std::filesystem::directory_iterator(suite_folder() / "configs"))
    if (e.is_directory()) out.push_back(e.path() / "config.json");
  std::sort(out.begin(), out.end());
  if (!kSanitized) return out;
  std::vector<std::filesystem::path> some;
  for (std::size_t i = 0; i < out.size(); i += 8) some.push_back(out[i]);
  return some;
}

// The value at a pointer of the file (config.json#/rope_scaling/factor); null when it is not there.
const Json* at_place(const Json& config, const std::string& where) {
  const std::string file = "config.json#/";
  if (where.rfind(file, 0) != 0) return nullptr;
  const Json* at = &config;
  for (std::size_t from = file.size(); from <= where.size();) {
    const auto cut = std::min(where.find('/', from), where.size());
    const std::string key = where.substr(from, cut - from);
    if (at->is_array()) {
      const std::size_t index = std::stoul(key);
      if (index >= at->as_array().size()) return nullptr;
      at = &at->as_array()[index];
    } else {
      at = at->is_object() ? at->find(key) : nullptr;
    }
    if (at == nullptr) return nullptr;
    from = cut + 1;
  }
  return at;
}

// What says that it is stated points at a key of the file that holds that very value. Layer types
// go through renaming, attention is what a type means, and truncate is read as Python does.
void expect_truthful(const Json& config, const Fields& fields, const std::string& who) {
  for (const auto& [name, seen] : fields) {
    if (seen.origin != Origin::stated) continue;
    const Json* there = at_place(config, seen.where);
    EXPECT_TRUE(there) << who << ": " << name << " says " << seen.where;
    const std::string field = name.substr(name.rfind('/') + 1);
    if (!there || field == "attention" || field == "layer_type" || field == "scheme" ||
        field == "window" || field == "yarn.truncate" || field == "causal")
      continue;
    EXPECT_EQ(*there, seen.value) << who << ": " << name << " says " << seen.where;
  }
}

struct Deletions {
  int tried = 0, changes = 0, elsewhere = 0;
};

void expect_no_false_claim(const Json& config, const std::string& who, Deletions& count) {
  const Fields before = fields_of(read_hugging_face(config, "config.json"));
  expect_truthful(config, before, who);
  for_each_member(config, [&](const std::string& path) {
    const Json without = changed(config, path, nullptr);
    const ModelSpec spec = read_hugging_face(without, "config.json");
    ++count.tried;
    if (spec.has_error()) return;
    const Fields after = fields_of(spec);
    expect_truthful(without, after, who + " without " + path);
    for (const auto& [name, now] : after) {
      const auto old = before.find(name);
      if (old == before.end() || old->second.value == now.value) continue;
      ++count.changes;
      const bool same_claim = now.origin == Origin::stated && now.where == old->second.where;
      EXPECT_FALSE(same_claim) << who << " without " << path << ": " << name << " changed from "
                               << old->second.value.dump() << " to " << now.value.dump()
                               << " and still says " << now.where;
      // what was hidden behind the deleted key is stated too: then it must have stood there
      // before
      if (now.origin == Origin::stated) {
        ++count.elsewhere;
        const Json* before_there = at_place(config, now.where);
        EXPECT_TRUE(before_there && *before_there == *at_place(without, now.where))
            << who << " without " << path << ": " << name << " says " << now.where;
      }
    }
  });
}

TEST(Robust, ADeletedKeyIsNeverStillStated) {
  Deletions count;
  for (const auto& file : files()) expect_no_false_claim(read_json(file), file.string(), count);
  EXPECT_GT(count.tried, kSanitized ? 100 : 1000);
  EXPECT_GT(count.changes, kSanitized ? 10 : 100);
  RecordProperty("stated_elsewhere", count.elsewhere);
}

// Whole files of classes that are no part of transformers.
TEST(Robust, ADeletedKeyOfRemoteCodeIsNeverStillStated) {
  const Json all =
      read_json(std::filesystem::path(POSENC_SOURCE_DIR) / "tests" / "model" / "real_models.json");
  Deletions count;
  for (const Json& m : all.at("models").as_array()) {
    const Json* codes = m.find("codes");
    if (codes && codes->dump().find("remote_code note") != std::string::npos)
      expect_no_false_claim(m.at("config"), name_of(m), count);
  }
  EXPECT_GT(count.tried, 300);
  EXPECT_GT(count.changes, 20);
}

TEST(Robust, NonsenseNeverCrashes) {
  const Json nonsense[] = {nullptr,
                           "x",
                           -1,
                           0,
                           1e300,
                           Json::array(),
                           Json::object(),
                           true,
                           std::int64_t{1} << 62,
                           2.5,
                           Json::array({Json(-1), Json("y")})};
  int reads = 0, refused = 0;
  ReadOptions converter;
  converter.reader = "llama_cpp";
  for (const auto& file : files()) {
    const Json config = read_json(file);
    for_each_member(config, [&](const std::string& path) {
      for (const Json& bad : nonsense) {
        const ModelSpec spec = read_hugging_face(changed(config, path, &bad), "config.json");
        ++reads;
        refused += spec.has_error();
        if (bad.is_null() || bad.is_array() || bad == Json(1e300)) {
          EXPECT_NO_THROW(
              (void)read_hugging_face(changed(config, path, &bad), "config.json", converter));
        }
        if (spec.has_error()) {
          EXPECT_THROW(require_readable(spec), std::runtime_error);
          continue;
        }
        for (const auto& layer : spec.layers)
          if (layer.rotary) check_rotary(*layer.rotary);
      }
    });
  }
  EXPECT_GT(reads, kSanitized ? 1000 : 10000);
  EXPECT_GT(refused, kSanitized ? 100 : 1000);
}

TEST(Robust, WhatIsNoModel) {
  for (const Json& bad : {Json(nullptr), Json(3), Json("x"), Json::array(), Json::object()}) {
    const ModelSpec spec = read_hugging_face(bad, "config.json");
    EXPECT_TRUE(spec.has_error());
    EXPECT_NO_THROW((void)explain_json(spec).dump());
    EXPECT_NO_THROW((void)doctor_json(doctor(spec)).dump());
  }
  EXPECT_THROW(read_model("/no/such/place"), FormatError);
  ReadOptions options;
  options.reader = "llama_cpp";
  EXPECT_TRUE(read_hugging_face(Json::object(), "config.json", options).has_error());
  options.reader = "vllm";
  EXPECT_THROW(read_hugging_face(Json::object(), "config.json", options), std::invalid_argument);
  options = {};
  options.context = -1;
  EXPECT_THROW(read_hugging_face(Json::object(), "config.json", options), std::invalid_argument);
}

}  // namespace
}  // namespace posenc
