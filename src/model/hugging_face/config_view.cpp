// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/config_view.h"

#include <algorithm>
#include <cmath>

namespace posenc::data {
extern const std::string_view hugging_face_keys;
}

namespace posenc::inline v0::hf {
namespace {

std::string escaped(std::string_view key) {  // RFC 6901
  std::string text;
  for (const char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

}  // namespace

void Report::merge_visits(const Report& other) {
  used.insert(other.used.begin(), other.used.end());
  visited.insert(other.visited.begin(), other.visited.end());
  asked.insert(other.asked.begin(), other.asked.end());
}

std::optional<Value> Report::assumed(std::string_view key) {
  if (assume.empty()) return std::nullopt;
  assumable.emplace(key);
  const auto it = assume.find(std::string(key));
  if (it == assume.end()) return std::nullopt;
  used.insert(it->first);
  Json json;
  try {
    json = parse_json(it->second, "--assume");
  } catch (const FormatError&) {
    json = it->second;
  }
  return Value{std::move(json), Origin::user, "--assume " + it->first};
}

bool truthy(const Json& j) {
  if (j.is_null()) return false;
  if (j.is_bool()) return j.as_bool();
  if (j.is_number()) return j.as_number() != 0;
  if (j.is_string()) return !j.as_string().empty();
  if (j.is_array()) return !j.as_array().empty();
  return !j.as_object().empty();
}

const Value* Dict::find(std::string_view key) const {
  const auto it = places_.find(key);
  return it == places_.end() ? nullptr : &items_[it->second].second;
}

void Dict::set(std::string_view key, Value v) {
  const auto [it, added] = places_.try_emplace(std::string(key), items_.size());
  if (added)
    items_.emplace_back(key, std::move(v));
  else
    items_[it->second].second = std::move(v);
}

bool Dict::set_default(std::string_view key, Value v) {
  if (find(key)) return false;
  set(key, std::move(v));
  return true;
}

std::string ConfigView::pointer(std::string_view key) const {
  return key.empty() ? path_ : path_ + "/" + escaped(key);
}

std::string ConfigView::where(std::string_view key) const {
  return report_->file + "#" + pointer(key);
}

std::string ConfigView::class_name() const {
  return rules_->class_name.empty() ? "transformers" : rules_->class_name;
}

std::string ConfigView::program() const {
  return !rules_->remote.empty() ? "its code" : "transformers";
}

std::string ConfigView::layout_source() const {
  return class_name() + (!rules_->remote.empty() ? " (its code)" : " (layouts.json)");
}

std::optional<Value> ConfigView::stated(std::string_view key) const {
  if (auto v = report_->assumed(key)) return v;
  const auto look = [&](std::string_view name) -> std::optional<Value> {
    const Json* found = object_->find(name);
    const std::string place = where(name);
    report_->asked.try_emplace(place, Asked{class_name(), ""});
    if (!found) return std::nullopt;
    report_->visited.insert(place);
    const bool user = report_->used.count("\n" + place) != 0;  // patched by --assume /path=value
    return Value{*found, user ? Origin::user : Origin::stated, user ? "--assume" : place};
  };
  const std::string* name = rules_->names.find(key);
  auto own = name ? look(*name) : std::nullopt;
  if (own && own->value.is_null() && contains(rules_->own_unless_null, key)) own.reset();
  auto common = name && contains(rules_->own_only, key) ? std::nullopt : look(key);
  if (own && common) {
    const bool first = contains(rules_->own_first, key);
    two_names(first ? *own : *common, first ? *common : *own);
    return first ? own : common;
  }
  if (own || common) return own ? own : common;
  if (!held_) return std::nullopt;
  const Value* held = name ? held_->find(*name) : nullptr;
  if (!held) held = held_->find(key);
  return held ? std::optional<Value>(*held) : std::nullopt;
}

const Json* ConfigView::held_by_class(std::string_view key) const {
  return rules_->defaults.find(key);
}

void ConfigView::two_names(const Value& counts, const Value& other) const {
  if (counts.value == other.value) return;
  const std::string name = last_word(counts.where);
  warn("both_spellings",
       {"{} is {} and {} {}, two names of one attribute: {class} uses {}", last_word(other.where),
        other.value, name, counts.value, name},
       other, "", number_of(counts.value));
}

void ConfigView::add(Severity severity, std::string code, const Sentence& text, const Place& at,
                     const Sentence& fix, std::optional<double> value) const {
  report_->add(severity, std::move(code), text.of(class_name()), at.where, fix.of(class_name()),
               value);
}

std::optional<Value> ConfigView::value(std::string_view key) const {
  if (auto v = stated(key)) return v;
  const Json* held = held_by_class(key);
  if (!held || held->is_null()) return std::nullopt;
  report_->of_class[std::string(key)] = shown(*held);
  const std::string* own = rules_->names.find(key);
  report_->asked[where(own ? std::string_view(*own) : key)].otherwise = shown(*held);
  return Value{*held, Origin::class_default, class_name()};
}

std::optional<Index> whole_number(const Json& j) {
  if (j.is_integer()) return j.as_integer();
  if (!j.is_number()) return std::nullopt;
  const double d = j.as_number();
  if (d != std::floor(d) || std::abs(d) > 9e15) return std::nullopt;
  return static_cast<Index>(d);
}

// The last word of its place: rope_local_base_freq, num_hidden_layers as n_layer.
std::string ConfigView::name_in_file(const Value& v, std::string_view key) {
  std::string_view path = v.where;
  const std::size_t entry = path.find_last_not_of("0123456789");
  if (entry != path.npos && path[entry] == '/') path = path.substr(0, entry);  // one of a list
  const std::size_t at = path.rfind('/');
  return std::string(v.origin == Origin::stated && at != path.npos ? path.substr(at + 1) : key);
}

std::optional<Sourced<Index>> ConfigView::integer(std::string_view key, Index low, Index high,
                                                  bool required) const {
  const auto v = value(key);
  if (v && v->value.is_null() && refuses_null(key))
    return wrong_type(
        {"{} is null, but {class} requires a number: {} rejects the file", key, program()}, *v,
        {"state {}, or remove the key", key});
  if (!v || v->value.is_null()) {
    if (required)
      error("missing_key",
            {"{} is {} and {class} has no default for it", key, v ? "null" : "missing"},
            place(v, key), {"state {}", key});
    return std::nullopt;
  }
  const auto whole = whole_number(v->value);
  if (!whole || *whole < low || *whole > high)
    return must_be(name_in_file(*v, key), message("a whole number from {} to {}", low, high), *v);
  if (!v->value.is_integer() && v->origin == Origin::stated && holds(key))
    return wrong_type({"{} must be written without a point, got {}: {class} refuses the file",
                       name_in_file(*v, key), v->value},
                      *v, {"write {}", *whole}, *whole);
  return Sourced<Index>{*whole, v->origin, v->where};
}

bool ConfigView::holds(std::string_view key) const {
  return held_by_class(key) != nullptr;
}

bool ConfigView::refuses_null(std::string_view key) const {
  const Json* held = held_by_class(key);
  return held && !held->is_null() && !contains(rules_->nullable, key);
}

void ConfigView::not_a_flag(std::string_view key, const Json& value,
                            const std::string& where) const {
  wrong_type({"{} must be true or false, got {}: {class} refuses the file", key, value}, where,
             "write true or false");
}

bool ConfigView::flag(std::string_view key, bool otherwise) const {
  const auto v = value(key);
  if (!v) return otherwise;
  const bool on = truthy(v->value);
  if (v->value.is_bool()) return on;
  if (v->value.is_null() ? refuses_null(key) : holds(key))
    not_a_flag(key, v->value, v->where);
  else if (!v->value.is_null())
    warn(
        "wrong_type",
        {"{} must be true or false, got {}: taken as Python takes it, {}", key, v->value, Json(on)},
        *v, "write true or false");
  return on;
}

bool is_decoder(const ConfigView& view) {
  // The encoder beside a decoder: transformers switches the key off for it, or never asks.
  if (!view.rules().decoder.empty()) return false;
  if (view.holds("is_decoder")) return view.flag("is_decoder", false);
  if (const auto v = view.stated("is_decoder"); v && truthy(v->value))
    view.warn("key_ignored", "is_decoder is not read by {class}: its attention sees both sides", *v,
              "the key does nothing");
  return false;
}

std::string plain(const Json& j) {
  const auto whole = whole_number(j);
  return whole ? std::to_string(*whole) : shown(j);
}

const RopeRules& rope_rules(const ConfigView& view) {
  static const RopeRules common;
  return view.rules().rope ? *view.rules().rope : common;
}

const Json& table_member(std::string_view name) {
  static const Json table = parse_json(data::hugging_face_keys, "hugging_face/keys.json");
  return table.at(name);
}

std::vector<std::string_view> table_words(std::string_view name) {
  std::vector<std::string_view> words;
  for (const Json& word : table_member(name).as_array()) words.push_back(word.as_string());
  return words;
}

}  // namespace posenc::v0::hf
