// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/parts.h"

#include <algorithm>

namespace posenc::inline v0::hf {
namespace {

const Json& empty_object() {
  static const Json empty = Json::object();
  return empty;
}

// The member of an object, none where it is absent or null; false after a finding.
bool object_at(const ConfigView& whole, const std::string& key, const Json*& object) {
  object = whole.object().find(key);
  if (object && object->is_null()) object = nullptr;
  if (!object || object->is_object()) return true;
  whole.report().error("wrong_type", key + " must be an object, got " + shown(*object),
                       whole.where(key), "state the model of this part");
  return false;
}

Dict held_by(const ConfigView& whole, const Json* values) {
  Dict d;
  if (values)
    for (const auto& [key, value] : values->as_object())
      d.set(key, {value, Origin::class_default, whole.class_name()});
  return d;
}

// Keys of the part at the top level of the file, where the class around it takes them.
bool taken_flat(const ConfigView& whole, const Json& about, Part& part) {
  const Json* flat = about.find("flat");
  if (!flat) return false;
  Json own = Json::object();
  for (const auto& [key, value] : whole.object().as_object()) {
    const bool taken = flat->is_bool()
                           ? key != "model_type"
                           : std::any_of(flat->as_array().begin(), flat->as_array().end(),
                                         [&name = key](const Json& k) { return k == Json(name); });
    if (taken) own.set(key, value);
  }
  if (own.as_object().empty()) return false;
  part.made = std::make_shared<const Json>(std::move(own));
  part.object = part.made.get();
  part.pointer = whole.pointer({});
  part.held = held_by(whole, about.find("flat_held"));
  return true;
}

// Keys that two dictionaries of one part give different values.
void compare_dictionaries(const ConfigView& counts, const ConfigView& other, const std::string& key,
                          const std::string& instead) {
  const Json* defaults = counts.entry().find("defaults");
  std::string differ;
  for (const auto& [name, held] : (defaults ? *defaults : empty_object()).as_object()) {
    const auto loses = other.stated(name);
    const auto wins = counts.value(name);
    if (!loses || (wins ? wins->value : Json(nullptr)) == loses->value) continue;
    differ += (differ.empty() ? "" : ", ") + name + " (" +
              (wins ? shown(wins->value) : std::string("null")) + " and " + shown(loses->value) +
              ")";
  }
  const std::string both = "the file has " + key + " and " + instead + "; transformers takes " +
                           instead + " whole, with the class's defaults for what it leaves out";
  if (differ.empty())
    counts.report().note("both_spellings", both + ". Here they agree", counts.where(),
                         "keep one of them");
  else
    counts.report().warn("both_spellings", both + ". They differ in " + differ, counts.where());
}

// CLIP and its kin: a second dictionary of the part overrules the first.
bool overruled(const ConfigView& whole, const std::string& key, const Json& about, Part& part) {
  const Json* name = about.find("instead");
  const Json* other = nullptr;
  if (!name) {
    const Json* unread = whole.object().find(key + "_dict");  // BridgeTower drops it
    if (unread && truthy(*unread))
      whole.report().warn(
          "key_ignored",
          key + "_dict is not read by " + whole.class_name() + ": " + key + " counts",
          whole.where(key + "_dict"), "remove it, or move it into " + key);
    return true;
  }
  if (!object_at(whole, name->as_string(), other)) return false;
  if (!other) return true;
  const Json* entry = model_entry(about.at("type").as_string());
  if (entry && part.object)
    compare_dictionaries(
        ConfigView(*other, whole.pointer(name->as_string()), *entry, whole.report()),
        ConfigView(*part.object, part.pointer, *entry, whole.report()), key, name->as_string());
  part.object = other;
  part.pointer = whole.pointer(name->as_string());
  return true;
}

bool type_of_part(const ConfigView& whole, const std::string& key, const Json& about, Part& part) {
  part.model_type = about.at("type").as_string();
  const Json* stated = about.find("by_model_type") ? part.object->find("model_type") : nullptr;
  if (stated && !stated->is_string()) {
    whole.report().error(
        "unknown_model_type", "model_type of " + key + " must be a name, got " + shown(*stated),
        part.pointer.empty() ? whole.where("model_type")
                             : whole.report().file + "#" + part.pointer + "/model_type",
        "state it, or leave the key out");
    return false;
  }
  if (!stated && !part.missing && about.find("needs_model_type")) {
    whole.report().error(
        "missing_key",
        key + " states no model_type, and " + whole.class_name() + " refuses the file without one",
        whole.where(key) + "/model_type", "state model_type");
    return false;
  }
  if (stated) part.model_type = stated->as_string();
  if (const Json* names = about.find("renamed"))
    if (const Json* other = names->find(part.model_type)) part.model_type = other->as_string();
  part.entry = part.model_type.empty() ? nullptr : model_entry(part.model_type);
  return true;
}

}  // namespace

std::optional<Part> part_of(const ConfigView& whole, const std::string& key, const Json& about) {
  Part part;
  part.pointer = whole.pointer(key);
  if (!object_at(whole, key, part.object) || !overruled(whole, key, about, part))
    return std::nullopt;
  const Json* old = about.find("old_key");
  if (!part.object && old) {
    if (!object_at(whole, old->as_string(), part.object)) return std::nullopt;
    if (part.object) part.pointer = whole.pointer(old->as_string());
  }
  if (part.object) {
    if (about.find("merged")) part.held = held_by(whole, about.find("absent"));
  } else if (!taken_flat(whole, about, part)) {
    part.missing = true;
    part.object = &empty_object();
    part.held = held_by(whole, about.find("absent"));
  }
  if (!type_of_part(whole, key, about, part)) return std::nullopt;
  return part;
}

void text_keys_outside(const ConfigView& whole, const Part& part, const std::string& key) {
  static constexpr std::string_view kRope[] = {"rope_theta", "rope_scaling", "rope_parameters",
                                               "partial_rotary_factor"};
  static constexpr std::string_view kSizes[] = {"head_dim",
                                                "hidden_size",
                                                "num_attention_heads",
                                                "num_key_value_heads",
                                                "num_hidden_layers",
                                                "max_position_embeddings",
                                                "sliding_window",
                                                "layer_types",
                                                "original_max_position_embeddings"};
  Report& report = whole.report();
  const bool flat = part.made != nullptr;
  const auto unread = [&](std::string_view name) {
    const Json* v = whole.object().find(name);
    if (!v || v->is_null() || part.object->find(name)) return;
    report.warn("key_ignored",
                std::string(name) + " is " + shown(*v) + " at the top level, and " +
                    whole.class_name() + (flat ? " does not take it from there" : " looks into ") +
                    (flat ? "" : key) + (part.missing ? ", which the file does not have" : ""),
                whole.where(name), "move it into " + key);
  };
  // Beside a text part that speaks of rotary itself, copies at the top level are common and right.
  const bool said = std::any_of(std::begin(kRope), std::end(kRope), [&](std::string_view name) {
    return part.object->find(name) != nullptr;
  });
  if (!said || flat)
    for (const std::string_view name : kRope) unread(name);
  if (part.missing || flat)
    for (const std::string_view name : kSizes) unread(name);
  if (part.missing)
    report.note("missing_key",
                "the file has no " + key + ": " +
                    (part.held.items().empty()
                         ? "the defaults of " + part.entry->at("class").as_string() + " count"
                         : "what " + whole.class_name() + " holds for it counts, and the " +
                               "defaults of " + part.entry->at("class").as_string()),
                whole.where(key), "state " + key);
}

}  // namespace posenc::v0::hf
