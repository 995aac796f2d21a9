// SPDX-License-Identifier: Apache-2.0
// A config.json as transformers 5.23 understands it.
#include <algorithm>
#include <filesystem>

#include "io/json_tokens.h"
#include "model/gguf/convert.h"
#include "model/hugging_face/checks.h"
#include "model/hugging_face/diffusers.h"
#include "model/hugging_face/key_cache.h"
#include "model/hugging_face/layer_rules.h"
#include "model/hugging_face/layers.h"
#include "model/hugging_face/near_keys.h"
#include "model/hugging_face/own_code.h"
#include "model/hugging_face/parts.h"
#include "model/hugging_face/towers.h"
#include "model/hugging_face/unknown_type.h"
#include "model/hugging_face/variants.h"
#include "posenc/registry/fields.h"

namespace posenc::inline v0 {
namespace {

using namespace hf;

// --assume /rope_scaling/factor=8: written into a copy of the file, and remembered as the person's.
void patch(Json& config, const std::string& pointer, const Json& value) {
  Json* at = &config;
  for (std::size_t from = pointer[0] == '#' ? 2 : 1, cut = 0; cut != std::string::npos;
       from = cut + 1) {
    cut = pointer.find('/', from);
    const std::string key = pointer.substr(from, cut == std::string::npos ? cut : cut - from);
    if (!at->is_object())
      refuse("assume", "the path must lead through objects of the file", pointer);
    if (cut == std::string::npos || !at->find(key))
      at->set(key, cut == std::string::npos ? value : Json::object());
    for (auto& member : at->as_object())
      if (member.first == key) at = &member.second;
  }
}

void apply_paths(Json& config, Report& report) {
  for (const auto& [key, text] : report.assume) {
    if (!key.starts_with("/") && !key.starts_with("#/")) continue;
    patch(config, key, report.assumed(key)->value);
    report.used.insert("\n" + report.file + "#" + key.substr(key[0] == '#' ? 1 : 0));
  }
}

// The part that holds the text model, and its key; `release`: rules of a composite file whose release
// a key or its code tells, else null.
struct TextPart : Part {
  std::string key;
  std::shared_ptr<const ClassRules> release;
};

void take_release(TextPart& at, Report& report) {
  if (!at.rules->scheme.empty() || !at.rules->variants) return;
  at.release = std::make_shared<const ClassRules>(
      variant_rules({*at.object, "", *at.rules, report}).value_or(*at.rules));
  at.rules = at.release.get();
}

bool descend(TextPart& at, Report& report, bool first) {
  const ConfigView whole(*at.object, at.pointer, *at.rules, report);
  if (refused_by_name(whole)) return false;
  const ClassRules& rules = whole.rules();
  const std::string key = text_key(rules);
  if (key.empty())
    return whole.error(
        "unknown_model_type",
        {"{} is known, but the source of its positions is not", at.model_type},
        whole.where("model_type"),
        "read the model's code; --assume model_type=... uses the rules of another class");
  remote_code(whole);
  if (!rules.input_note.empty())
    whole.note("encoding_not_covered", rules.input_note, whole.where("model_type"));
  auto inner = part_of(whole, key, *rules.parts.find(key));
  if (!inner) return false;
  const std::string& type = inner->model_type;
  if (!inner->rules)
    return whole.error(
        "unknown_model_type",
        type.empty() ? key + " has no model_type" : "model_type " + type + " is not known",
        whole.where(key) + "/model_type",
        {"--assume /{}/model_type=... uses the rules of a known class", key});
  text_keys_outside(whole, *inner, key);
  static_cast<Part&>(at) = std::move(*inner);
  if (first) at.key = key;
  return true;
}

// DPT: the backbone of the file replaces its own ViT, unless the model is hybrid.
bool replaced(const TextPart& at) {
  for (const auto& [key, about] : at.rules->parts.pairs) {
    const Json* part = about.replaces_unless.empty() ? nullptr : at.object->find(key);
    if (!part || !part->is_object()) continue;
    const Json* flag = at.object->find(about.replaces_unless);
    return !flag || !truthy(*flag);
  }
  return false;
}

// A Llama-like class for a type nobody knows, when a person says which channels pair.
const ClassRules& generic_rules() {
  static const ClassRules rules = with(
      *class_rules("llama"), Json::object({{"class", "a Llama-like class (--assume pairing)"}}));
  return rules;
}

// Keys of the file that say so: " (the file has qk_norm true)".
std::string left_out(const Json& config) {
  std::vector<std::string> found;
  for (const std::string_view key : table_words("keys_of_the_score"))
    if (const Json* v = config.find(key); v && truthy(*v))
      found.push_back(message("{} {}", key, *v));
  return found.empty() ? "" : message(" (the file has {})", listed(found));
}

std::optional<TextPart> find_text(const Json& config, Report& report) {
  TextPart at;
  at.object = &config;
  const std::string where = report.file + "#/model_type";
  std::optional<Value> type = report.assumed("model_type");
  if (const Json* stated = config.find("model_type"); stated && !type)
    type = Value{*stated, Origin::stated, where};
  if (type && type->value.is_string()) {
    at.model_type = type->value.as_string();
    at.rules = class_rules(at.model_type);
  }
  if (!at.rules && report.assume.count("pairing")) {
    report.warn("unknown_model_type",
                message("model_type {}: read like Llama because of --assume pairing: its own norm "
                        "of q and k, scale, soft cap and windows are ignored{}",
                        type ? shown(type->value) : "is missing", left_out(config)),
                where, "check it against the model's code");
    at.rules = &generic_rules();
    return at;
  }
  if (!at.rules) {
    report.error(
        "unknown_model_type",
        type ? message("model_type {} is not known", type->value) : "the file has no model_type",
        where, advice_on_type(at.model_type, config));
    return std::nullopt;
  }
  take_release(at, report);
  for (int depth = 0; depth < 4 && (at.rules->scheme.empty() || replaced(at)); ++depth)
    if (!descend(at, report, depth == 0)) return std::nullopt;
  return at;
}

// Whether a person chose the class, and another than the file's own.
bool another_class(const TextPart& text, const Json& config, Report& report) {
  if (text.rules == &generic_rules()) return true;
  const auto chosen = report.assumed("model_type");
  const Json* own = config.find("model_type");
  return chosen && !(own && *own == chosen->value);
}

// A count of layers that is 0: nothing turns. transformers makes such a model: no error.
void no_layers(const ConfigView& view) {
  if (view.report().errors() > 0) return;
  const auto count = layer_count(view);
  // Classes of convolutions count none.
  if (!count || count->value != 0 || count->origin == Origin::class_default) return;
  view.warn("no_layers",
            {"{} must be positive, got 0: the model has 0 layers", last_word(count->where)}, *count,
            "", 0.0);
}

// The rules that replace those of the table: of the decoder, or of the release.
std::optional<ClassRules> own_rules(const ConfigView& view) {
  const ClassRules& rules = view.rules();
  if (!rules.decoder.empty()) return decoder_rules(view);
  return rules.variants && !rules.variants->cases.empty() ? variant_rules(view) : std::nullopt;
}

void read_text(const TextPart& text, const Json& config, const ReadOptions& options, Report& report,
               ModelSpec& spec) {
  const ConfigView read = text.view(report);
  const std::optional<ClassRules> own = own_rules(read);
  const ConfigView view(read, own ? *own : *text.rules);
  const auto longest = view.integer("max_position_embeddings", 1, kUnbounded / 4);
  spec.context = longest.value_or(Sourced<Index>{0, Origin::derived, "no length is stated"});
  if (longest) spec.stated_context = longest->value;
  if (options.context) spec.context = {*options.context, Origin::user, "--context"};
  const ClassRules* whole = text.release ? text.release.get() : class_rules(spec.model_type);
  const ConfigView all(config, "", whole ? *whole : view.rules(), report);
  code_of_known_type(all, view);
  PartLayers part = read_layers(view, spec.context.value);
  unread_positions(view, part.layers);
  held_keys(read);
  refused_on_loading(read.rules().decoder.empty() ? view : read, part.layers.size());
  spec.layers = std::move(part.layers);
  spec.input = std::move(part.input);
  spec.trained_context = part.original_context;
  if (!spec.trained_context && longest) spec.trained_context = longest->value;
  if (whole) {
    spec.towers = read_towers(all, text.key, spec.context.value);
    spec.cache_element_bytes = cache_element_bytes(view, all);
  }
  if (another_class(text, config, report)) filled_by_class(view, config, spec.layers);
  // Of an encoder and decoder either may be left out.
  if (spec.layers.empty() && (spec.towers.empty() || spec.towers.front().name != "encoder"))
    no_layers(view);
}

bool of_positions(const std::string& key) {
  // Every key that a class of the table holds or reads under another name.
  static const std::set<std::string> known = keys_of_classes();
  if (known.count(key)) return true;
  return std::ranges::any_of(table_words("words_of_positions"), [&](std::string_view word) {
    return key.find(word) != std::string::npos;
  });
}

}  // namespace

// JSON, and Python's NaN and Infinity where nobody reads a position.
Json parse_config(std::string_view text, const std::string& file) {
  std::vector<NonFinite> found;
  Json config = parse_json(text, file, found);
  for (const NonFinite& n : found) {
    bool known = n.path.empty();  // of a list, which is no config
    for (const std::string& key : n.path) known = known || of_positions(key);
    if (known)
      throw FormatError(file, n.place,
                        "must be finite, got " + n.token + " (JSON has no NaN or Infinity)");
  }
  return config;
}

ModelSpec read_hugging_face(const Json& config, const std::string& file,
                            const ReadOptions& options) {
  if (!options.reader.empty() && options.reader != "transformers" && options.reader != "llama_cpp")
    refuse_field("read", "reader", "must be transformers or llama_cpp", options.reader);
  if (options.context && (*options.context < 1 || *options.context > kUnbounded / 4))
    refuse_field("read", "context", "must be positive", *options.context);
  ModelSpec spec;
  spec.file = file;
  spec.reader = "transformers";
  std::string name = std::filesystem::path(file).filename().string();
  if (name.empty()) name = "config.json";
  if (options.reader == "llama_cpp" && config.is_object())
    return read_as_llama_cpp(config, file, name, options);
  Report report(name, options.assume);
  if (!config.is_object()) {
    report.error("wrong_type", {"a config.json must be an object, got {}", shown(config)},
                 report.file + "#", "this is not a model's config");
  } else {
    Json copy = config;
    apply_paths(copy, report);
    if (const Json* type = copy.find("model_type"); type && type->is_string())
      spec.model_type = type->as_string();
    if (is_diffusers(copy) && !report.assume.count("model_type"))
      read_diffusers(copy, report, spec);
    else if (const auto text = find_text(copy, report))
      read_text(*text, copy, options, report, spec);
    if (!name.ends_with(".gguf")) near_keys(copy, spec, report);  // else nobody spelt the keys
  }
  note_switches(spec.layers, report);
  unused_assumptions(report);
  spec.findings = report.take();
  return spec;
}

}  // namespace posenc::v0
