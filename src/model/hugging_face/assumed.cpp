// SPDX-License-Identifier: Apache-2.0
// What a person assumed: what of it counted, and what a class that a person chose filled in.
#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "model/hugging_face/layers.h"
#include "posenc/core/fields.h"

namespace posenc::inline v0::hf {
namespace {

// SCHEME fields that --assume may give; other names are keys of the file.
bool is_scheme_field(std::string_view key) {
  static constexpr std::string_view kNames[] = {"pairing",   "base",         "rotary_dim", "offset",
                                                "direction", "output_order", "sections"};
  return key.find('.') != std::string_view::npos ||
         std::find(std::begin(kNames), std::end(kNames), key) != std::end(kNames);
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

// The nearest word, or else the shortest name in which the word stands.
std::string_view meant_by(std::string_view key, const std::vector<std::string_view>& known) {
  std::string_view meant = nearest_word(key, known);
  if (!meant.empty() || key.empty()) return meant;
  for (const std::string_view name : known)
    if (stands_in(key, name) && (meant.empty() || name.size() < meant.size())) meant = name;
  return meant;
}

// "did you mean base? ": the names that the reader asked for, a path's by its last word.
std::string guess(const Report& report, std::string_view key) {
  const bool path = is_path(key);
  const std::size_t cut = path ? key.rfind('/') + 1 : 0;
  std::vector<std::string_view> known;
  for (const std::string_view name : report.assumable)
    if (!is_path(name) && !(path && is_scheme_field(name)) && name != key.substr(cut))
      known.push_back(name);
  const std::string_view meant = meant_by(key.substr(cut), known);
  if (meant.empty()) return "";
  return "did you mean " + std::string(key.substr(0, cut)) + std::string(meant) + "? ";
}

// What can be assumed of this model: the fields of its SCHEME, and keys of the file.
std::string assumable(const Report& report, std::string_view key) {
  const std::string example = ", as --assume /num_hidden_layers=32";
  if (is_path(key)) return "name a key that the model's class reads" + example;
  std::string fields;
  for (const std::string& name : report.assumable)
    if (!is_path(name) && is_scheme_field(name))
      fields.append(fields.empty() ? "" : ", ").append(name);
  if (!fields.empty())
    fields = "fields of this model's SCHEME: " + fields + ", as --assume " +
             fields.substr(0, fields.find(',')) + "=VALUE; ";
  return fields + "a key of the file is named by its path" + example;
}

// Keys that say nothing of positions in any file.
bool speaks_of_others(std::string_view key) {
  static constexpr std::string_view kWhole[] = {
      "_name_or_path", "architectures", "auto_map", "dtype",     "hidden_act", "initializer_range",
      "model_type",    "torch_dtype",   "use_bias", "use_cache", "vocab_size"};
  static constexpr std::string_view kParts[] = {"_token_id", "2id",    "bias",  "dropout",
                                                "eps",       "id2",    "pdrop", "quantization",
                                                "_version",  "act_fn", "tie_",  "_activation"};
  if (std::find(std::begin(kWhole), std::end(kWhole), key) != std::end(kWhole)) return true;
  return std::any_of(std::begin(kParts), std::end(kParts), [&](std::string_view part) {
    return key.find(part) != std::string_view::npos;
  });
}

// Keys of an object that nothing looked at: "n_embd 512, n_layer 7".
class UnreadKeys {
 public:
  explicit UnreadKeys(const Report& report) : report_(report) {}

  void of(const Json& object, const std::string& pointer) {
    for (const auto& [key, value] : object.as_object()) {
      const bool part = value.is_object() && key.ends_with("_config");
      if (value.is_null() || part || speaks_of_others(key) ||
          report_.visited.count(report_.file + "#" + pointer + "/" + key))
        continue;
      if (++count_ <= kMost) text_ += (text_.empty() ? "" : ", ") + key + " " + shown(value);
    }
  }
  std::string text() const {
    return count_ > kMost ? text_ + " and " + std::to_string(count_ - kMost) + " more" : text_;
  }

 private:
  static constexpr int kMost = 12;
  const Report& report_;
  std::string text_;
  int count_ = 0;
};

// What the class held and the reading took: sizes of a head first, the others behind.
struct Filled {
  std::string text, first;
  bool head = false;  // the channels that turn, or rows at the input, are another model's

  void add(const std::string& key, const std::string& value) {
    text += (text.empty() ? "" : ", ") + key + " " + value;
    if (first.empty()) first = key;
  }
};

Filled filled(const ConfigView& view, const std::vector<LayerSpec>& layers) {
  constexpr std::string_view kHead[] = {"hidden_size",      "num_attention_heads", "head_dim",
                                        "qk_nope_head_dim", "qk_rope_head_dim",    "kv_channels"};
  Filled all;
  std::map<std::string, std::string> left = view.report().of_class;
  const auto take = [&](const std::string& key) {
    const auto held = left.find(key);
    if (held == left.end()) return;
    all.add(key, held->second);
    left.erase(held);
  };
  for (const std::string_view key : kHead)
    view.stated("head_dim") ? void(left.erase(std::string(key))) : take(std::string(key));
  all.head = !all.text.empty();
  take("num_hidden_layers");
  const FieldValue* base = layers.empty() ? nullptr : layers.front().field("base");
  if (base && base->origin == Origin::class_default) all.add("base", shown(base->value));
  while (!left.empty()) take(std::string(left.begin()->first));
  return all;
}

}  // namespace

void filled_by_class(const ConfigView& view, const Json& file,
                     const std::vector<LayerSpec>& layers) {
  Report& report = view.report();
  const Filled all = filled(view, layers);
  if (all.text.empty()) return;
  UnreadKeys unread(report);
  if (!view.pointer("").empty()) unread.of(view.object(), view.pointer(""));
  unread.of(file, "");
  report.add(all.head ? Severity::error : Severity::warning, "assumed_defaults",
             all.text + " come from " + view.class_name() + ": the file does not state them" +
                 (unread.text().empty() ? "" : "; nothing read its " + unread.text()),
             view.where(), "say what the model has: --assume " + all.first + "=N");
}

void unused_assumptions(Report& report) {
  for (const auto& [key, text] : report.assume)
    if (!report.used.count(key) || (is_path(key) && !looked_at(report, key)))
      report.error("assume_unused", "--assume " + key + "=" + text + " names nothing that was read",
                   "--assume " + key, guess(report, key) + assumable(report, key));
    else
      report.note("assumed", key + " = " + text + " is a person's decision, not the file's",
                  "--assume " + key);
}

}  // namespace posenc::v0::hf
