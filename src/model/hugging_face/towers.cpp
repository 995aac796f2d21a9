// SPDX-License-Identifier: Apache-2.0
// Vision and audio parts. Axial layouts of vision towers: reference 8.1 and Radford et al.'s
// successors; positions (row, column) are the caller's.
#include <algorithm>
#include <functional>
#include <numbers>

#include "model/encoding_builder.h"
#include "model/hugging_face/layers.h"
#include "model/hugging_face/parts.h"
#include "model/hugging_face/rope_dictionary/rope_set.h"

namespace posenc::inline v0::hf {
namespace {

using Fields = std::vector<std::pair<const char*, Json>>;
const Json kColumnFirst = Json::array({1, 0});

struct Axes {
  std::string_view layout;
  Index axes;
  Fields options;
};
// What axial has beside head_dim, axes_dim and base: found by running transformers 5.23 (cases
// vision_ of the suite) and reading the rest.
const Axes kLayouts[] = {
    {"qwen2_vl", 2, {{"pairing", "half_split"}}},  // h then w, same frequencies
    {"pixtral", 2, {{"pairing", "half_split"}, {"spacing", "interlaced"}}},  // h even, w odd ones
    {"llama4", 2, {{"pairing", "interleaved"}}},                      // angles of coordinate + 1
    {"gemma4", 2, {{"pairing", "half_split"}, {"order", "blocks"}}},  // x block, y block
    {"dinov3", 2, {{"pairing", "half_split"}, {"scale", 6.283185307179586}}},  // in [-1, 1]
    {"step3p7", 2, {{"pairing", "half_split"}, {"stream", kColumnFirst}}},     // w then h
    {"inkling2", 2, {{"pairing", "interleaved"}, {"stream", kColumnFirst}}},
    {"kimi_k25",  // w, h in turn
     2,
     {{"pairing", "half_split"}, {"order", "alternate"}, {"stream", kColumnFirst}}},
    {"minimax_m3", 3, {{"pairing", "half_split"}}}  // t, h, w; the channels that are left stay
};

std::optional<Sourced<Index>> head_size(const ConfigView& view) {
  if (view.entry().find("head") == nullptr)
    if (const auto v = view.value("head_dim"); v && !v->value.is_null())
      return view.integer("head_dim", 1, 65536);
  auto hidden = view.value("embed_dim") ? view.integer("embed_dim", 1, 1'000'000'000)
                                        : view.integer("hidden_size", 1, 1'000'000'000, true);
  const auto heads = view.integer("num_attention_heads", 1, 1'000'000, true);
  if (!hidden || !heads) return std::nullopt;
  return Sourced<Index>{hidden->value / heads->value, Origin::derived,
                        "hidden_size // num_attention_heads"};
}

std::optional<Value> vision_theta(const ConfigView& view) {
  const RopeSet set = standardise_rope(view, {});
  if (set.parts.empty()) return std::nullopt;
  const Dict& d = set.parts.front().dict;
  const auto type = rope_type(d);
  if (!type || (*type != "default" && *type != "axial")) {
    view.report().error("unknown_rope_type",
                        "a vision tower has rope_type axial (or default), got " +
                            (type ? *type : std::string("none")),
                        view.where("rope_parameters"), "write axial");
    return std::nullopt;
  }
  const Value* theta = d.find("rope_theta");
  if (!theta || !theta->value.is_number() || !(theta->value.as_number() > 0)) {
    view.report().error("theta_not_positive", "rope_theta must be a positive number",
                        theta ? theta->where : view.where("rope_theta"), "state rope_theta");
    return std::nullopt;
  }
  return *theta;
}

// Windows of patches that attend among themselves, and the layers that do not have them.
struct ImageWindows {
  Sourced<Index> tokens;
  std::vector<Index> full;
  std::string full_where;
};
std::optional<ImageWindows> image_windows(const ConfigView& view) {
  if (!view.entry().find("vision_windows")) return std::nullopt;
  const auto pixels = view.integer("window_size", 1, 1'000'000);
  const auto patch = view.integer("patch_size", 1, 1'000'000);
  const auto full = view.value("fullatt_block_indexes");
  if (!pixels || !patch || !full || !full->value.is_array() || pixels->value < patch->value)
    return std::nullopt;
  ImageWindows out;
  const Index side = pixels->value / patch->value;
  out.tokens = {side * side, Origin::derived,
                "(" + pixels->where + " // patch_size)^2, fewer at the edges of an image"};
  for (const Json& n : full->value.as_array())
    if (n.is_integer()) out.full.push_back(n.as_integer());
  out.full_where = full->where;
  return out;
}

void attend(const ConfigView& view, const std::optional<ImageWindows>& windows, LayerSpec& layer) {
  const bool full = !windows || std::find(windows->full.begin(), windows->full.end(),
                                          layer.index) != windows->full.end();
  layer.attention.kind = full ? AttentionKind::full : AttentionKind::chunked;
  layer.fields.push_back({"attention", std::string(enum_text(layer.attention.kind)),
                          Origin::class_default,
                          windows ? windows->full_where : view.class_name()});
  if (full) return;
  layer.attention.chunk = windows->tokens.value;
  layer.fields.push_back(
      {"chunk", windows->tokens.value, windows->tokens.origin, windows->tokens.where});
}

bool is_tower(const Json* entry) {
  return entry && entry->find("scheme") &&
         (entry->at("scheme").as_string() != "rope" || entry->find("vision") ||
          entry->find("pairing"));
}

// Of a class whose mechanism has no scheme here: what it does.
std::string why_refused(const Json* entry) {
  const Json* why = entry ? entry->find("refused") : nullptr;
  return why ? ": " + why->as_string() : "";
}

std::string tower_name(const std::string& part) {
  const auto cut = part.rfind("_config");
  return cut != std::string::npos && cut + 7 == part.size() ? part.substr(0, cut) : part;
}

// A learned table that is added before the layers turn q and k.
void table_beside(const ConfigView& view, PartLayers& out) {
  if (const Json* kind = view.entry().find("input")) read_input(view, kind->as_string(), out);
  if (const Json* note = view.entry().find("input_note"))
    view.report().note("encoding_not_covered", note->as_string(), view.where("model_type"));
}

}  // namespace

PartLayers read_vision(const ConfigView& view) {
  PartLayers out;
  table_beside(view, out);
  const std::string layout = view.entry().at("vision").as_string();
  const auto size = head_size(view);
  const auto theta = vision_theta(view);
  const auto count = view.integer("num_hidden_layers", 0, 10'000, true);
  if (!size || !theta || !count) return out;
  const Axes* about = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                                   [&](const Axes& a) { return a.layout == layout; });
  if (about == std::end(kLayouts)) refuse("read", "no axial layout has the name", layout);
  if (about->axes == 2 && size->value % 4 != 0) {
    view.report().error(
        "wrong_type",
        "a head of " + std::to_string(size->value) + " channels cannot be shared by two axes",
        size->where, "state head_dim", static_cast<double>(size->value));
    return out;
  }
  const Axes& axes = *about;
  const Index width = 2 * (size->value / axes.axes / 2);  // of one axis
  EncodingBuilder made("axial");
  made.set("head_dim", size->value, size->origin, size->where);
  made.set("axes_dim", Json(Json::Array(static_cast<std::size_t>(axes.axes), Json(width))),
           Origin::derived, size->where);
  made.set("base", *theta);
  for (const auto& [name, value] : axes.options)
    made.set(name, value, Origin::class_default, view.class_name());
  LayerSpec layer;
  auto encoding = made.finish(view.report(), view.where(),
                              [&](const Encoding& e) { layer.rotary = resolve(e); });
  if (!encoding) return out;
  layer.encodings.push_back({std::move(*encoding), Origin::derived, view.class_name()});
  layer.scheme = "rope";
  const auto by_class = [&](const char* name, Json value) {
    layer.fields.push_back({name, std::move(value), Origin::class_default, view.class_name()});
  };
  layer.fields = {{"head_dim", size->value, size->origin, size->where},
                  {"base", theta->value, theta->origin, theta->where}};
  by_class("pairing", std::string(enum_text(layer.rotary->blocks.front().pairing)));
  by_class("layout", layout);
  by_class("direction", 1);
  by_class("output_order", "in_place");
  by_class("scheme", "rope");
  const auto windows = image_windows(view);
  for (Index i = 0; i < count->value; ++i) {
    LayerSpec one = layer;
    one.index = i;
    attend(view, windows, one);
    complete_fields(one);
    out.layers.push_back(std::move(one));
  }
  return out;
}

std::string text_key(const Json& parts) {
  for (const char* key : {"text_config", "decoder", "llm_config", "language_config",
                          "thinker_config", "decoder_config", "talker_config", "semantic_config",
                          "vlm_config", "generator", "encoder_config", "semantic_model_config"})
    if (parts.find(key)) return key;
  for (const auto& [key, about] : parts.as_object())  // models of images alone
    if (about.find("main")) return key;
  return "";
}

namespace {

// What is wrong with a tower does not make the text unreadable: its errors become warnings.
// `said`: which of them the model has said already.
void keep(const ConfigView& whole, const std::string& part, Report& own,
          const std::function<bool(const Finding&)>& said = {}) {
  for (Finding f : own.take()) {
    if (said && said(f)) continue;
    if (f.severity == Severity::error) f.severity = Severity::warning;
    f.message = "in " + part + ": " + f.message;
    whole.report().add(std::move(f));
  }
  whole.report().merge_visits(own);
}

std::optional<Tower> read_tower(const ConfigView& whole, const std::string& key, const Json& about,
                                Index context) {
  Report own = whole.report().another();
  const auto part = part_of(ConfigView(whole, own), key, about);
  if (!part) {
    keep(whole, key, own);
    return std::nullopt;
  }
  // A part that may be missing stays missing; which backbone stands in is code, and not read here.
  if (part->missing &&
      (about.find("optional") || key == "backbone_config" || !is_tower(part->entry)))
    return std::nullopt;
  if (!is_tower(part->entry)) {
    whole.report().note("tower_not_covered",
                        "positions of the part " + key + " (" + part->model_type +
                            ") are not covered" + why_refused(part->entry),
                        whole.where(key));
    return std::nullopt;
  }
  const PartLayers read = read_layers(
      ConfigView(*part->object, part->pointer, *part->entry, own, &part->held), context);
  keep(whole, key, own);
  return Tower{tower_name(key), read.layers, read.input};
}

// A decoder of patches in the same file, of its own sizes (ViT-MAE).
Tower own_decoder(const ConfigView& whole, const Json& about, Index context) {
  Json entry = whole.entry();
  for (const auto& [key, value] : about.as_object()) entry.set(key, value);
  Report own = whole.report().another();
  for (const auto& [name, key] : about.at("names").as_object()) {  // the model's are not its own
    own.assume.erase(name);
    whole.report().assumable.insert(key.as_string());
    const auto given = own.assume.find(key.as_string());
    if (given == own.assume.end()) continue;
    own.assume[name] = given->second;
    own.used.insert(key.as_string());
  }
  const PartLayers read = read_layers(ConfigView(whole.object(), "", entry, own), context);
  const auto said = [&](const Finding& f) {  // of the model, by the same key
    const std::vector<Finding>& all = whole.report().findings();
    return std::any_of(all.begin(), all.end(), [&](const Finding& other) {
      return other.code == f.code && other.where == f.where;
    });
  };
  keep(whole, "the decoder", own, said);
  return {"decoder", read.layers, read.input};
}

}  // namespace

std::vector<Tower> read_towers(const ConfigView& whole, const std::string& text_part,
                               Index context) {
  std::vector<Tower> towers;
  if (whole.entry().find("decoder")) {
    Report own = whole.report().another();
    const PartLayers part = read_layers(ConfigView(whole, own), context);
    whole.report().visited.insert(own.visited.begin(), own.visited.end());
    const std::vector<Finding> findings = own.take();
    for (const Finding& f : findings)  // the decoder is of the same class: neither is built
      if (f.severity == Severity::error &&
          !(f.code == "sinusoid_width" && whole.entry().find("decoder_input")))
        whole.report().add(f);
    for (const auto& e : part.input)
      if (whole.entry().find("decoder_input"))
        whole.report().note("no_rotary",
                            "the encoder adds positions of its own: " + to_text(e.value),
                            whole.where("model_type"));
    // What its sinusoid cannot be is said where the decoder has rows of another kind.
    for (Finding f : findings)
      if (f.code == "sinusoid_width" && whole.entry().find("decoder_input")) {
        f.severity = Severity::warning;
        f.message = "in the encoder: " + f.message;
        whole.report().add(std::move(f));
      }
    towers.push_back({"encoder", part.layers, part.input});
  }
  if (const Json* decoder = whole.entry().find("own_decoder"))
    towers.push_back(own_decoder(whole, *decoder, context));
  const Json* parts = whole.entry().find("parts");
  if (!parts) return towers;
  for (const auto& [part, about] : parts->as_object()) {
    if (part != text_part) {
      if (auto tower = read_tower(whole, part, about, context)) towers.push_back(std::move(*tower));
      continue;
    }
    // The thinker of an omni model has parts of its own.
    Report scratch(whole.report().file, {}, whole.report().used);
    const auto inner = part_of(ConfigView(whole, scratch), part, about);
    const Json* own = inner && inner->entry ? inner->entry->find("parts") : nullptr;
    if (!own) continue;
    for (Tower& t :
         read_towers(ConfigView(*inner->object, inner->pointer, *inner->entry, whole.report()),
                     text_key(*own), context))
      towers.push_back(std::move(t));
  }
  return towers;
}

}  // namespace posenc::v0::hf
