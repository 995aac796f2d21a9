// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/parts.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace posenc::inline v0::hf {
namespace {

// The member of an object, none where it is absent or null; false after a finding.
bool object_at(const ConfigView& whole, const std::string& key, const Json*& object) {
  whole.report().asked.try_emplace(whole.where(key), Asked{whole.class_name(), ""});
  object = whole.object().find(key);
  if (object && object->is_null()) object = nullptr;
  return !object || object->is_object() ||
         whole.wrong_type({"{} must be an object, got {}", key, *object}, whole.where(key),
                          "state the model of this part");
}

Dict held_by(const ConfigView& whole, const Json& values) {
  Dict d;
  if (values.is_object())
    for (const auto& [key, value] : values.as_object()) d.set(key, whole.of_class(value));
  return d;
}

// Keys of the part at the top level of the file, where the class around it takes them.
bool taken_flat(const ConfigView& whole, const PartRules& about, Part& part) {
  if (about.flat.is_null()) return false;
  std::set<std::string> names;
  if (about.flat.is_array())
    for (const Json& name : about.flat.as_array()) names.insert(name.as_string());
  Json::Object own;
  for (const auto& [key, value] : whole.object().as_object())
    if (about.flat.is_bool() ? key != "model_type" : names.count(key) != 0)
      own.emplace_back(key, value);
  if (own.empty()) return false;
  part.made = std::make_shared<const Json>(std::move(own));
  part.object = part.made.get();
  part.pointer = whole.pointer({});
  part.held = held_by(whole, about.flat_held);
  return true;
}

// Keys that two dictionaries of one part give different values.
void compare_dictionaries(const ConfigView& counts, const ConfigView& other, const std::string& key,
                          const std::string& instead) {
  std::vector<std::string> differ;
  for (const auto& [name, held] : counts.rules().defaults.as_object()) {
    const auto loses = other.stated(name);
    const Json wins = counts.value(name).value_or(Value{}).value;
    if (loses && wins != loses->value)
      differ.push_back(message("{} ({} and {})", name, wins, loses->value));
  }
  const std::string both = "the file has " + key + " and " + instead + "; transformers takes " +
                           instead + " whole, with the class's defaults for what it leaves out";
  if (differ.empty())
    counts.note("both_spellings", {"{}. Here they agree", both}, counts.where(),
                "keep one of them");
  else
    counts.warn("both_spellings", {"{}. They differ in {}", both, listed(differ)}, counts.where());
}

// CLIP and similar models: a second dictionary of the part overrides the first.
bool overridden(const ConfigView& whole, const std::string& key, const PartRules& about,
                Part& part) {
  const std::string& name = about.instead;
  const std::string dict = key + "_dict";
  if (name.empty()) {
    if (const Json* unread = whole.object().find(dict); unread && truthy(*unread))  // BridgeTower
      whole.warn("key_ignored", {"{class} does not read {} and uses {}", dict, key},
                 whole.where(dict), {"remove it, or move it into {}", key});
    return true;
  }
  const Json* other = nullptr;
  if (!object_at(whole, name, other)) return false;
  if (!other) return true;
  const std::string pointer = whole.pointer(name);
  if (const ClassRules* rules = class_rules(about.type); rules && part.object)
    compare_dictionaries(ConfigView(*other, pointer, *rules, whole.report()),
                         ConfigView(*part.object, part.pointer, *rules, whole.report()), key, name);
  part.object = other;
  part.pointer = pointer;
  return true;
}

bool type_of_part(const ConfigView& whole, const std::string& key, const PartRules& about,
                  Part& part) {
  const Json* stated = about.by_model_type ? part.object->find("model_type") : nullptr;
  if (stated && !stated->is_string())
    return whole.error(
        "unknown_model_type", {"model_type of {} must be a name, got {}", key, *stated},
        whole.report().file + "#" + part.pointer + "/model_type", "state it, or remove the key");
  if (!stated && !part.missing && about.needs_model_type)
    return whole.error("missing_key",
                       {"{} states no model_type, and {class} refuses the file without one", key},
                       whole.where(key) + "/model_type", "state model_type");
  part.model_type = stated ? stated->as_string() : about.type;
  if (const std::string* other = about.renamed.find(part.model_type)) part.model_type = *other;
  part.rules = class_rules(part.model_type);
  if (part.rules && !about.is.is_null()) {
    part.own_rules = std::make_shared<const ClassRules>(with(*part.rules, about.is));
    part.rules = part.own_rules.get();
  }
  return true;
}

}  // namespace

std::optional<Part> part_of(const ConfigView& whole, const std::string& key,
                            const PartRules& about) {
  Part part;
  part.pointer = whole.pointer(key);
  if (!object_at(whole, key, part.object) || !overridden(whole, key, about, part))
    return std::nullopt;
  if (!part.object && !about.old_key.empty()) {
    if (!object_at(whole, about.old_key, part.object)) return std::nullopt;
    if (part.object) part.pointer = whole.pointer(about.old_key);
  }
  part.missing = !part.object && !taken_flat(whole, about, part);
  static const Json empty = Json::object();
  if (part.missing) part.object = &empty;
  if (part.missing || (!part.made && about.merged)) part.held = held_by(whole, about.absent);
  if (!type_of_part(whole, key, about, part)) return std::nullopt;
  for (const std::string& passed : about.passes)
    if (const Json* v = whole.object().find(passed)) {
      part.held.set(passed, {*v, Origin::stated, whole.where(passed)});
      whole.report().visited.insert(whole.where(passed));
      whole.report().asked.try_emplace(whole.where(passed), Asked{whole.class_name(), ""});
    }
  return part;
}

void text_keys_outside(const ConfigView& whole, const Part& part, const std::string& key) {
  const bool flat = part.made != nullptr;
  const auto unread = [&](std::string_view name) {
    const Json* v = whole.object().find(name);
    if (!v || v->is_null() || part.object->find(name)) return;
    whole.warn("key_ignored",
               {"{} is {} at the top level, and {class}{}{}", name, *v,
                flat ? " does not take it from there" : " looks into " + key,
                part.missing ? ", which the file does not have" : ""},
               whole.where(name), {"move it into {}", key});
  };
  // Beside a text part that speaks of rotary itself, copies at the top level are common and right.
  const bool said = std::ranges::any_of(
      kRotaryKeys, [&](std::string_view name) { return part.object->find(name) != nullptr; });
  if (!said || flat) std::ranges::for_each(kRotaryKeys, unread);
  const Json* causal = whole.object().find("is_causal");
  if (causal && !causal->is_null() && !contains(whole.rules().parts.find(key)->passes, "is_causal"))
    whole.warn("one_kernel",
               {"is_causal is {} at the top level, but {class} makes its masks by {}: some kernels "
                "use it in layers without a window, others do not",
                *causal, key},
               whole.where("is_causal"), {"move it into {}", key});
  if (part.missing || flat)
    for (const std::string_view size : table_words("text_sizes")) unread(size);
  if (!part.missing) return;
  const std::string defaults = "defaults of " + part.rules->class_name;
  whole.note("missing_key",
             {"the file has no {}: {}", key,
              part.held.items().empty()
                  ? "the " + defaults + " count"
                  : "what " + whole.class_name() + " holds for it counts, and the " + defaults},
             whole.where(key), {"state {}", key});
}

}  // namespace posenc::v0::hf
