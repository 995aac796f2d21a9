// SPDX-License-Identifier: Apache-2.0
// What a person assumed: what of it counted, and what a class that a person chose filled in.
#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "model/hugging_face/checks.h"
#include "posenc/registry/fields.h"

namespace posenc::inline v0::hf {
namespace {

// SCHEME fields that --assume may give; other names are keys of the file.
bool is_scheme_field(std::string_view key) {
  static constexpr std::string_view kNames[] = {"pairing",   "base",         "rotary_dim", "offset",
                                                "direction", "output_order", "sections"};
  return contains(key, '.') || contains(kNames, key);
}

bool is_path(std::string_view key) {
  return key.starts_with("/") || key.starts_with("#/");
}

// Whether something looked at the place, above it or below it.
bool looked_at(const Report& report, std::string_view key) {
  const std::string path(key.substr(key[0] == '#' ? 1 : 0));
  if (path.ends_with("/model_type")) return true;
  const std::string place = report.file + "#" + path;
  for (const std::string& read : report.visited)
    if (read == place || place.starts_with(read + "/") || read.starts_with(place + "/"))
      return true;
  return false;
}

// Whole words of the other: window of sliding_window, factor of yarn.factor.
bool stands_in(std::string_view word, std::string_view name) {
  for (auto at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const auto ends = [](char c) { return c == '_' || c == '.'; };
    if ((at == 0 || ends(name[at - 1])) && (end == name.size() || ends(name[end]))) return true;
  }
  return false;
}

// "did you mean base? ": the nearest of the names that the reader asked for, or else the shortest in
// which the word stands; of a path its last word counts.
std::string guess(const Report& report, std::string_view key) {
  const bool path = is_path(key);
  const std::string_view front = key.substr(0, path ? key.rfind('/') + 1 : 0);
  const std::string_view last = key.substr(front.size());
  std::vector<std::string_view> known;
  for (const std::string_view name : report.assumable)
    if (!is_path(name) && !(path && is_scheme_field(name)) && name != last) known.push_back(name);
  std::string_view meant = nearest_word(last, known);
  if (meant.empty() && !last.empty())
    for (const std::string_view name : known)
      if (stands_in(last, name) && (meant.empty() || name.size() < meant.size())) meant = name;
  return meant.empty() ? "" : message("did you mean {}{}? ", front, meant);
}

// What can be assumed of this model: the fields of its SCHEME, and keys of the file.
std::string assumable(const Report& report, std::string_view key) {
  const std::string example = ", as --assume /num_hidden_layers=32";
  if (is_path(key)) return "name a key that the model's class reads" + example;
  std::vector<std::string> fields;
  for (const std::string& name : report.assumable)
    if (!is_path(name) && is_scheme_field(name)) fields.push_back(name);
  return (fields.empty() ? ""
                         : message("fields of this model's SCHEME: {}, as --assume {}=VALUE; ",
                                   listed(fields), fields.front())) +
         "a key of the file is named by its path" + example;
}

// Keys that say nothing of positions in any file.
bool speaks_of_others(std::string_view key) {
  static const auto whole = table_words("other_keys"), parts = table_words("other_keys_with");
  return contains(whole, key) || std::ranges::any_of(parts, [&](std::string_view part) {
           return key.find(part) != std::string_view::npos;
         });
}

// Adds the keys of an object that nothing looked at: "n_embd 512".
void add_unread(const Report& report, const Json& object, const std::string& pointer,
                std::vector<std::string>& out) {
  for (const auto& [key, value] : object.as_object()) {
    const bool part = value.is_object() && key.ends_with("_config");
    if (!value.is_null() && !part && !speaks_of_others(key) &&
        !report.visited.count(report.file + "#" + pointer + "/" + key))
      out.push_back(message("{} {}", key, value));
  }
}

// What the class held and the reading took, "key value" each: sizes of a head first, whether they
// count or not, the others behind.
struct Filled {
  std::vector<std::string> all;
  std::string first;  // key
  bool head = false;  // the channels that turn, or rows at the input, are another model's

  void add(const std::string& key, const std::string& value) {
    if (all.empty()) first = key;
    all.push_back(key + " " + value);
  }
};

Filled filled(const ConfigView& view, const std::vector<LayerSpec>& layers) {
  Filled out;
  std::map<std::string, std::string> left = view.report().of_class;
  const auto take = [&](const std::string& key, bool counts = true) {
    const auto held = left.find(key);
    if (held == left.end()) return;
    if (counts) out.add(key, held->second);
    left.erase(held);
  };
  const bool stated = view.stated("head_dim").has_value();
  for (const char* key : {"hidden_size", "num_attention_heads", "head_dim", "qk_nope_head_dim",
                          "qk_rope_head_dim", "kv_channels"})
    take(key, !stated);
  out.head = !out.all.empty();
  take("num_hidden_layers");
  const FieldValue* base = layers.empty() ? nullptr : layers.front().field("base");
  if (base && base->origin == Origin::class_default) out.add("base", shown(base->value));
  while (!left.empty()) take(std::string(left.begin()->first));
  return out;
}

}  // namespace

void filled_by_class(const ConfigView& view, const Json& file,
                     const std::vector<LayerSpec>& layers) {
  constexpr std::size_t kMost = 12;
  Report& report = view.report();
  const Filled filled_in = filled(view, layers);
  if (filled_in.all.empty()) return;
  std::vector<std::string> unread;
  if (!view.pointer("").empty()) add_unread(report, view.object(), view.pointer(""), unread);
  add_unread(report, file, "", unread);
  const std::size_t more = unread.size() - std::min(unread.size(), kMost);
  unread.resize(unread.size() - more);
  report.add(
      filled_in.head ? Severity::error : Severity::warning, "assumed_defaults",
      message("{} come from {}: the file does not state them{}{}", listed(filled_in.all),
              view.class_name(), unread.empty() ? "" : "; nothing read its " + listed(unread),
              more > 0 ? " and " + std::to_string(more) + " more" : ""),
      view.where(), {"say what the model has: --assume {}=N", filled_in.first});
}

void unused_assumptions(Report& report) {
  for (const auto& [key, text] : report.assume)
    if (!report.used.count(key) || (is_path(key) && !looked_at(report, key)))
      report.error("assume_unused", {"--assume {}={} names nothing that was read", key, text},
                   "--assume " + key, guess(report, key) + assumable(report, key));
    else
      report.note("assumed", {"{} = {} was set by --assume, not by the file", key, text},
                  "--assume " + key);
}

}  // namespace posenc::v0::hf
