// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/class_rules/class_rules.h"

#include <algorithm>
#include <map>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "posenc/rotary/rope.h"

namespace posenc::data {
extern const std::span<const std::string_view> hugging_face_models;
}

namespace posenc::inline v0::hf {
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
void read(Overlay& x, const Json& j, const std::string& place) {
  ClassRules checked;
  over(checked, j, place);
  static_cast<Json&>(x) = j;
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
void read(ByName<T>& x, const Json& j, const std::string& place) {
  if (!j.is_object())
    wrong(place, std::is_same_v<T, std::string> ? "an object of texts" : "an object", j);
  for (const auto& [name, value] : j.as_object())
    read(x.pairs.emplace_back(name, T{}).second, value, place + "." + name);
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
    if (!contains(known, name))
      throw std::logic_error("[class table] " + place + " has no member " + name);
}

// Every text that the rules hold, at whatever depth.
template <class T, class F>
void each_text(const T& x, const F& f) {
  if constexpr (std::is_same_v<T, std::string>) {
    f(x);
  } else if constexpr (std::is_base_of_v<Json, T>) {
    if (x.is_string()) f(x.as_string());
    if (x.is_array()) each_text(x.as_array(), f);
    if (x.is_object()) each_text(x.as_object(), f);
  } else if constexpr (Rules<T>) {
    T::describe(
        x, [&](std::string_view, const auto& member, std::string_view) { each_text(member, f); });
  } else if constexpr (requires { x.pairs; }) {
    each_text(x.pairs, f);
  } else if constexpr (requires { x.second; }) {
    each_text(x.second, f);
  } else if constexpr (requires { x.has_value(); }) {
    if (x) each_text(*x, f);
  } else if constexpr (requires { x.begin(); }) {
    for (const auto& item : x) each_text(item, f);
  }
}

}  // namespace

bool ClassRules::rotates() const {
  return scheme == Rope::card.name;
}

ClassRules with(ClassRules rules, const Json& more) {
  over(rules, more, rules.class_name);
  return rules;
}

ClassTable read_class_table(std::span<const std::string_view> texts) {
  ClassTable out;
  for (const std::string_view text : texts) {
    const Json table = parse_json(text, "hugging_face/models");
    for (const auto& [type, entry] : table.as_object())
      over(out.emplace_back(type, ClassRules{}).second, entry, type);
  }
  const auto before = [](const auto& x, const auto& y) { return x.first < y.first; };
  std::sort(out.begin(), out.end(), before);
  for (std::size_t n = 1; n < out.size(); ++n)
    if (out[n].first == out[n - 1].first)
      throw std::logic_error("[class table] " + out[n].first + " must have one entry, got two");
  return out;
}

const ClassTable& all_class_rules() {
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
  const auto add = [&](const std::string& text) { keys.insert(text); };
  for (const auto& [type, rules] : all_class_rules()) {
    for (const auto& [key, value] : rules.defaults.as_object()) keys.insert(key);
    for (const auto& [common, own] : rules.names.pairs) keys.insert({common, own});
    each_text(rules.keys, add), each_text(rules.layers, add), each_text(rules.window, add);
    each_text(rules.layer_count, add), each_text(rules.rope, add), each_text(rules.rotary_if, add);
  }
  keys.erase("");
  return keys;
}

bool names_key(const ClassRules& rules, std::string_view key) {
  bool found = false;
  each_text(rules, [&](const std::string& text) { found = found || text == key; });
  return found;
}

}  // namespace posenc::v0::hf
