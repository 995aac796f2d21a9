// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/class_rules/class_rules.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <type_traits>

namespace posenc::data {
extern const std::string_view hugging_face_models;
}

namespace posenc::hf {
namespace {

template <class T>
concept Rules = requires(T& x) {
  T::describe(x, [](std::string_view, auto&, std::string_view) {});
};

[[noreturn]] void wrong(const std::string& place, const std::string& rule, const Json& got) {
  throw std::logic_error("[class table] " + place + " must be " + rule + ", got " + got.dump());
}

template <Rules T>
void over(T& rules, const Json& more, const std::string& place);

void read(Json& x, const Json& j, const std::string&) {
  x = j;
}
void read(bool& x, const Json& j, const std::string& place) {
  if (!j.is_bool()) wrong(place, "true or false", j);
  x = j.as_bool();
}
void read(Index& x, const Json& j, const std::string& place) {
  if (!j.is_integer()) wrong(place, "a whole number", j);
  x = j.as_integer();
}
// A rule without further words may be true.
void read(std::string& x, const Json& j, const std::string& place) {
  if (!j.is_string() && !(j.is_bool() && j.as_bool())) wrong(place, "a text", j);
  x = j.is_bool() ? "true" : j.as_string();
}
void read(NameMap& x, const Json& j, const std::string& place) {
  if (!j.is_object()) wrong(place, "an object of texts", j);
  for (const auto& [name, value] : j.as_object()) {
    std::string text;
    read(text, value, place + "." + name);
    x.pairs.emplace_back(name, std::move(text));
  }
}
template <Rules T>
void read(T& x, const Json& j, const std::string& place) {
  over(x, j, place);
}
template <class T>
void read(std::optional<T>& x, const Json& j, const std::string& place) {
  read(x.emplace(), j, place);
}
template <class T>
void read(std::vector<T>& x, const Json& j, const std::string& place) {
  if (!j.is_array()) wrong(place, "a list", j);
  for (const Json& item : j.as_array()) read(x.emplace_back(), item, place + "[]");
}
template <class T>
void read(std::vector<std::pair<std::string, T>>& x, const Json& j, const std::string& place) {
  if (!j.is_object()) wrong(place, "an object", j);
  for (const auto& [name, value] : j.as_object())
    read(x.emplace_back(name, T{}).second, value, place + "." + name);
}

template <Rules T>
void over(T& rules, const Json& more, const std::string& place) {
  if (!more.is_object()) wrong(place, "an object", more);
  std::vector<std::string_view> known;
  T::describe(rules, [&](std::string_view name, auto& x, std::string_view) {
    const Json* j = more.find(name);
    if (!j) return;
    known.push_back(name);
    x = std::remove_cvref_t<decltype(x)>{};
    if (!j->is_null()) read(x, *j, place + "." + std::string(name));
  });
  for (const auto& [name, value] : more.as_object())
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw std::logic_error("[class table] " + place + " has no member " + name);
}

bool names(bool, std::string_view) {
  return false;
}
bool names(Index, std::string_view) {
  return false;
}
bool names(const std::string& text, std::string_view key) {
  return text == key;
}
bool names(const NameMap& map, std::string_view key) {
  return std::any_of(map.pairs.begin(), map.pairs.end(),
                     [&](const auto& pair) { return pair.second == key; });
}
bool names(const Json& j, std::string_view key) {
  const auto of_value = [&](const Json& item) { return names(item, key); };
  if (j.is_string()) return j.as_string() == key;
  if (j.is_array()) return std::any_of(j.as_array().begin(), j.as_array().end(), of_value);
  return j.is_object() && std::any_of(j.as_object().begin(), j.as_object().end(),
                                      [&](const auto& member) { return of_value(member.second); });
}
template <Rules T>
bool names(const T& rules, std::string_view key);
template <class T>
bool names(const std::pair<std::string, T>& item, std::string_view key) {
  return names(item.second, key);
}
template <class T>
bool names(const std::optional<T>& x, std::string_view key) {
  return x && names(*x, key);
}
template <class T>
bool names(const std::vector<T>& list, std::string_view key) {
  return std::any_of(list.begin(), list.end(), [&](const T& item) { return names(item, key); });
}
template <Rules T>
bool names(const T& rules, std::string_view key) {
  bool found = false;
  T::describe(rules, [&](std::string_view, const auto& x, std::string_view) {
    found = found || names(x, key);
  });
  return found;
}

using Legend = std::vector<std::pair<std::string, std::string>>;
template <class T>
struct Inner {
  using type = T;
};
template <class T>
struct Inner<std::optional<T>> : Inner<T> {};
template <class T>
struct Inner<std::vector<T>> : Inner<T> {};
template <class T>
struct Inner<std::pair<std::string, T>> : Inner<T> {};

template <Rules T>
void legend_of(const std::string& place, Legend& out) {
  T x;
  T::describe(x, [&](std::string_view name, auto& member, std::string_view doc) {
    out.emplace_back(place + std::string(name), doc);
    using M = typename Inner<std::remove_cvref_t<decltype(member)>>::type;
    if constexpr (Rules<M>) legend_of<M>(out.back().first + ".", out);
  });
}

// What may come to stand over the rules is held to the same members.
void check_overlays(const ClassRules& rules, const std::string& place) {
  const auto check = [&](const Json& more, const std::string& what) {
    ClassRules copy;
    if (!more.is_null()) over(copy, more, place + "." + what);
    if (copy.variants) check_overlays(copy, place + "." + what);
  };
  check(rules.decoder_is, "decoder_is");
  check(rules.own_decoder, "own_decoder");
  if (!rules.variants) return;
  check(rules.variants->otherwise, "variants.otherwise");
  for (const VariantCase& one : rules.variants->cases) check(one.is, "variants.cases.is");
  if (rules.variants->of.is_object())
    for (const auto& [value, more] : rules.variants->of.as_object()) check(more, "variants.of");
}

void keys_in(const Json& object, std::set<std::string>& keys) {
  if (object.is_object())
    for (const auto& [key, value] : object.as_object()) {
      keys.insert(key);
      if (value.is_string()) keys.insert(value.as_string());
    }
}
template <class T>
void texts_in(const std::optional<T>& rules, std::set<std::string>& keys) {
  if (rules)
    T::describe(*rules, [&](std::string_view, const auto& x, std::string_view) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(x)>, std::string>) keys.insert(x);
    });
}

}  // namespace

const std::string* NameMap::find(std::string_view name) const {
  for (const auto& pair : pairs)
    if (pair.first == name) return &pair.second;
  return nullptr;
}

void NameMap::set(std::string_view name, std::string value) {
  for (auto& pair : pairs)
    if (pair.first == name) {
      pair.second = std::move(value);
      return;
    }
  pairs.emplace_back(name, std::move(value));
}

Json as_json(const NameMap& map) {
  Json out = Json::object();
  for (const auto& [name, value] : map.pairs) out.set(name, value);
  return out;
}

bool contains(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

void read_over(ClassRules& rules, const Json& more, const std::string& place) {
  over(rules, more, place);
}

ClassRules with(ClassRules rules, const Json& more) {
  over(rules, more, rules.class_name);
  return rules;
}

std::vector<std::pair<std::string, ClassRules>> read_class_table(std::string_view text) {
  const Json table = parse_json(text, "hugging_face_models.json");
  std::vector<std::pair<std::string, ClassRules>> out;
  for (const auto& [type, entry] : table.at("model_types").as_object())
    over(out.emplace_back(type, ClassRules{}).second, entry, type);
  for (const auto& [type, rules] : out) check_overlays(rules, type);
  return out;
}

const std::vector<std::pair<std::string, ClassRules>>& all_class_rules() {
  static const auto table = read_class_table(data::hugging_face_models);
  return table;
}

const ClassRules* class_rules(std::string_view model_type) {
  static const auto by_type = [] {
    std::map<std::string_view, const ClassRules*> out;
    for (const auto& [type, rules] : all_class_rules()) out.emplace(type, &rules);
    return out;
  }();
  const auto it = by_type.find(model_type);
  return it == by_type.end() ? nullptr : it->second;
}

std::set<std::string> keys_of_classes() {
  std::set<std::string> keys;
  for (const auto& [type, rules] : all_class_rules()) {
    keys_in(rules.defaults, keys);
    for (const auto& [common, own] : rules.names.pairs) keys.insert({common, own});
    texts_in(rules.keys, keys);
    texts_in(rules.layers, keys);
    texts_in(rules.window, keys);
    texts_in(rules.layer_count, keys);
    texts_in(rules.rope, keys);
    texts_in(rules.rotary_if, keys);
  }
  keys.erase("");
  return keys;
}

bool names_key(const ClassRules& rules, std::string_view key) {
  return names(rules, key);
}

std::vector<std::pair<std::string, std::string>> class_legend() {
  Legend out;
  legend_of<ClassRules>("", out);
  return out;
}

}  // namespace posenc::hf
