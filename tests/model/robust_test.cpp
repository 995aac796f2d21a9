// SPDX-License-Identifier: Apache-2.0
// A key deleted never leaves a changed value that still claims to be stated; a value replaced by
// nonsense never crashes.
#include <functional>
#include <map>

#include "hugging_face_suite.h"
#include "posenc/core/error.h"

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

std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> out;
  for (const auto& e : std::filesystem::directory_iterator(suite_folder() / "configs"))
    if (e.is_directory()) out.push_back(e.path() / "config.json");
  return out;
}

TEST(Robust, ADeletedKeyIsNeverStillStated) {
  int deletions = 0, changes = 0;
  for (const auto& file : files()) {
    const Json config = read_json(file);
    const Fields before = fields_of(read_hugging_face(config, "config.json"));
    for_each_member(config, [&](const std::string& path) {
      const ModelSpec spec = read_hugging_face(changed(config, path, nullptr), "config.json");
      ++deletions;
      if (spec.has_error()) return;
      for (const auto& [name, now] : fields_of(spec)) {
        const auto old = before.find(name);
        if (old == before.end() || old->second.value == now.value) continue;
        ++changes;
        const bool same_claim = now.origin == Origin::stated && now.where == old->second.where;
        EXPECT_FALSE(same_claim) << file << " without " << path << ": " << name << " changed from "
                                 << old->second.value.dump() << " to " << now.value.dump()
                                 << " and still says " << now.where;
        // what says it is stated points at a key that is there
        EXPECT_TRUE(now.origin != Origin::stated || now.where != "config.json#" + path) << name;
      }
    });
  }
  EXPECT_GT(deletions, 1000);
  EXPECT_GT(changes, 100);
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
  for (const auto& file : files()) {
    const Json config = read_json(file);
    for_each_member(config, [&](const std::string& path) {
      for (const Json& bad : nonsense) {
        const ModelSpec spec = read_hugging_face(changed(config, path, &bad), "config.json");
        ++reads;
        refused += spec.has_error();
        if (spec.has_error()) {
          EXPECT_THROW(require_readable(spec), std::runtime_error);
          continue;
        }
        for (const auto& layer : spec.layers)
          if (layer.rotary) check(*layer.rotary);
      }
    });
  }
  EXPECT_GT(reads, 10000);
  EXPECT_GT(refused, 1000);
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
  EXPECT_THROW(read_hugging_face(Json::object(), "config.json", options), std::invalid_argument);
  options = {};
  options.context = -1;
  EXPECT_THROW(read_hugging_face(Json::object(), "config.json", options), std::invalid_argument);
}

}  // namespace
}  // namespace posenc
