// SPDX-License-Identifier: Apache-2.0
// Vision and audio parts. Axial layouts of vision towers: reference 8.1 and Radford et al.'s
// successors; positions (row, column) are the caller's.
#include <algorithm>
#include <functional>
#include <set>

#include "model/encoding_builder.h"
#include "model/hugging_face/image_rows.h"
#include "model/hugging_face/input_side.h"
#include "model/hugging_face/layer_rules.h"
#include "model/hugging_face/layers.h"
#include "model/hugging_face/parts.h"
#include "model/hugging_face/rope_dictionary/rope_set.h"
#include "model/hugging_face/towers.h"

namespace posenc::inline v0::hf {
namespace {

std::optional<Sourced<Index>> head_size(const ConfigView& view) {
  if (view.rules().head.empty() && view.value_or_none("head_dim"))
    return view.integer("head_dim", 1, 65536);
  const bool embed = view.value("embed_dim").has_value();
  const auto hidden = view.integer(embed ? "embed_dim" : "hidden_size", 1, 1'000'000'000, !embed);
  const auto heads = view.integer("num_attention_heads", 1, 1'000'000, true);
  if (!hidden || !heads) return std::nullopt;
  return counted(hidden->value / heads->value, "hidden_size // num_attention_heads");
}

std::optional<Value> vision_theta(const ConfigView& view) {
  const RopeSet set = standardise_rope(view, {});
  if (set.parts.empty()) return std::nullopt;
  const Dict& d = set.parts.front().dict;
  const auto type = rope_type(d);
  if (!type || (*type != "default" && *type != "axial"))
    return view.error(
        "unknown_rope_type",
        {"a vision tower has rope_type axial (or default), got {}", type.value_or("none")},
        view.where("rope_parameters"), "write axial");
  const Value* theta = d.find("rope_theta");
  if (!(number_of(theta) > 0))
    return view.error("theta_not_positive", "rope_theta must be a positive number",
                      theta ? theta->where : view.where("rope_theta"), "state rope_theta");
  return *theta;
}

// Windows of patches that attend among themselves, and the layers that do not have them.
struct ImageWindows {
  Sourced<Index> tokens;
  std::set<Index> full;
  std::string full_where;
};
std::optional<ImageWindows> image_windows(const ConfigView& view) {
  if (!view.rules().vision_windows) return std::nullopt;
  const auto pixels = view.integer("window_size", 1, 1'000'000);
  const auto patch = view.integer("patch_size", 1, 1'000'000);
  const auto full = view.value("fullatt_block_indexes");
  if (!pixels || !patch || !full || !full->value.is_array() || pixels->value < patch->value)
    return std::nullopt;
  const Index side = pixels->value / patch->value;
  ImageWindows out{counted(side * side, "(" + pixels->where +
                                            " // patch_size)^2, fewer at the edges of an image"),
                   {},
                   full->where};
  for (const Json& n : full->value.as_array())
    if (n.is_integer()) out.full.insert(n.as_integer());
  return out;
}

void attend(const ConfigView& view, const std::optional<ImageWindows>& windows, LayerSpec& layer) {
  const bool full = !windows || windows->full.count(layer.index) != 0;
  layer.attention.kind = full ? AttentionKind::full : AttentionKind::chunked;
  layer.fields.push_back({"attention", std::string(enum_text(layer.attention.kind)),
                          Origin::class_default,
                          windows ? windows->full_where : view.class_name()});
  if (full) return;
  layer.attention.chunk = windows->tokens.value;
  layer.fields.push_back(field_of("chunk", windows->tokens));
}

// A convolution between the layers that attend (LFM3-VL).
LayerSpec without_attention(const ConfigView& view, const LayerPlan& plan, Index index) {
  LayerSpec layer;
  layer.index = index;
  layer.attention = plan.attention;
  layer.fields = plan.fields;
  layer.fields.push_back(field_of("scheme", view.of_class(Json(std::string(kNoScheme)))));
  return layer;
}

bool is_tower(const ClassRules* rules) {
  return rules && !rules->scheme.empty() &&
         (!rules->rotates() || !rules->vision.empty() || !rules->pairing.empty());
}

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

std::optional<Tower> read_tower(const ConfigView& whole, const std::string& key,
                                const PartRules& about, Index context) {
  Report own = whole.report().another();
  auto part = part_of(ConfigView(whole, own), key, about);
  if (const Part around = part.value_or(Part{}); key == "encoder" && around.rules)
    if (const PartRules* text = around.rules->parts.find("text_config"))  // T5Gemma 2
      part = part_of(around.view(own), "text_config", *text);
  if (!part) {
    keep(whole, key, own);
    return std::nullopt;
  }
  const ClassRules* rules = part->rules;
  // A part that may be missing stays missing; which backbone stands in is code, and not read here.
  if (part->missing && (about.optional || key == "backbone_config" || !is_tower(rules)))
    return std::nullopt;
  if (!is_tower(rules)) {
    whole.note("tower_not_covered",
               {"positions of the part {} ({}) are not covered{}", key, part->model_type,
                rules && !rules->refused.empty() ? ": " + rules->refused : ""},
               whole.where(key));
    return std::nullopt;
  }
  const PartLayers read = read_layers(part->view(own), context);
  keep(whole, key, own);
  const bool config = key.ends_with("_config");
  return Tower{key.substr(0, key.size() - (config ? 7 : 0)), read.layers, read.input};
}

// A decoder of patches in the same file, of its own sizes (ViT-MAE).
Tower own_decoder(const ConfigView& whole, Index context) {
  const ClassRules rules = with(whole.rules(), whole.rules().own_decoder);
  Report own = whole.report().another();
  const ConfigView view(whole.object(), "", rules, own);
  for (const auto& [name, key] : rules.names.pairs) {  // the model's are not its own
    own.assume.erase(name);
    whole.report().assumable.insert(key);
    const auto given = own.assume.find(key);
    if (given == own.assume.end()) continue;
    own.assume[name] = given->second;
    own.used.insert(key);
  }
  const PartLayers read = read_layers(view, context);
  const auto said = [&](const Finding& f) {  // of the model, by the same key
    const std::vector<Finding>& all = whole.report().findings();
    return std::ranges::any_of(
        all, [&](const Finding& other) { return other.code == f.code && other.where == f.where; });
  };
  keep(whole, "the decoder", own, said);
  return {"decoder", read.layers, read.input};
}

// The encoder beside a decoder that is the text: of the same class, so that with an error neither
// is built. What its sinusoid cannot be is a warning where the decoder has rows of another kind.
Tower encoder(const ConfigView& whole, Index context) {
  const bool rows_apart = !whole.rules().decoder_input.empty();
  Report own = whole.report().another();
  const PartLayers part = read_layers(ConfigView(whole, own), context);
  whole.report().visited.insert(own.visited.begin(), own.visited.end());
  whole.report().asked.insert(own.asked.begin(), own.asked.end());
  const std::vector<Finding> findings = own.take();
  const auto is_width = [&](const Finding& f) { return rows_apart && f.code == "sinusoid_width"; };
  for (const Finding& f : findings)
    if (f.severity == Severity::error && !is_width(f)) whole.report().add(f);
  for (const auto& e : part.input)
    if (rows_apart)
      whole.note("no_rotary", {"the encoder adds positions of its own: {}", to_text(e.value)},
                 whole.where("model_type"));
  for (const Finding& f : findings)
    if (is_width(f)) whole.warn(f.code, {"in the encoder: {}", f.message}, f.where, f.fix, f.value);
  return {"encoder", part.layers, part.input};
}

}  // namespace

PartLayers read_vision(const ConfigView& view) {
  PartLayers out;
  read_input(view, view.rules().input, out);  // added before the layers rotate q and k
  if (const std::string& note = view.rules().input_note; !note.empty())
    view.note("encoding_not_covered", note, view.where("model_type"));
  const std::string& layout = view.rules().vision;
  const auto size = head_size(view);
  const auto theta = vision_theta(view);
  const auto count = view.integer("num_hidden_layers", 0, kMostLayers, true);
  if (!size || !theta || !count) return out;
  const Json& axial = table_member("axial_layouts").at(layout);
  const Index axes = axial.at("axes").as_integer();
  if (axes == 2 && size->value % 4 != 0) {
    view.wrong_type({"a head of {} channels cannot be shared by two axes", size->value}, *size,
                    "state head_dim", size->value);
    return out;
  }
  const Index width = 2 * (size->value / axes / 2);  // of one axis
  EncodingBuilder made("axial");
  made.set("head_dim", *size);
  made.set("axes_dim", Json(Json::Array(static_cast<std::size_t>(axes), Json(width))),
           Origin::derived, size->where);
  made.set("base", *theta);
  set_words(view, axial.at("fields").as_string(), made);
  LayerSpec layer;
  auto encoding = made.finish(view.report(), view.where(),
                              [&](const Encoding& e) { layer.rotary = resolve(e); });
  if (!encoding) return out;
  layer.encodings.push_back({{std::move(*encoding), Origin::derived, view.class_name()}, {}});
  layer.scheme = "rope";
  layer.fields = {field_of("head_dim", *size), field_of("base", *theta)};
  const std::string_view pairing = enum_text(layer.rotary->blocks.front().pairing);
  for (const auto& [name, value] : Json::Object{{"pairing", pairing},
                                                {"layout", layout},
                                                {"direction", 1},
                                                {"output_order", "in_place"},
                                                {"scheme", "rope"}})
    layer.fields.push_back(field_of(name, view.of_class(value)));
  const auto windows = image_windows(view);
  const auto plans = view.rules().layers ? plan_layers(view) : std::vector<LayerPlan>();
  if (!plans) return out;
  for (Index i = 0; i < count->value; ++i) {
    LayerSpec one = layer;
    one.index = i;
    const LayerPlan* plan = plans->empty() ? nullptr : &(*plans)[static_cast<std::size_t>(i)];
    if (plan && !plan->attention.attends())
      one = without_attention(view, *plan, i);
    else
      attend(view, windows, one);
    complete_fields(one);
    out.layers.push_back(std::move(one));
  }
  return out;
}

std::string text_key(const ClassRules& rules) {
  for (const std::string_view key : table_words("text_parts"))
    if (rules.parts.find(key)) return std::string(key);
  for (const auto& [key, about] : rules.parts.pairs)  // models of images alone
    if (about.main) return key;
  return "";
}

std::vector<Tower> read_towers(const ConfigView& whole, const std::string& text_part,
                               Index context) {
  std::vector<Tower> towers;
  if (!whole.rules().decoder.empty()) towers.push_back(encoder(whole, context));
  if (!whole.rules().own_decoder.is_null()) towers.push_back(own_decoder(whole, context));
  for (const auto& [key, about] : whole.rules().parts.pairs) {
    if (key != text_part) {
      if (auto tower = read_tower(whole, key, about, context)) towers.push_back(std::move(*tower));
      continue;
    }
    // The thinker of an omni model has parts of its own.
    Report scratch(whole.report().file, {}, whole.report().used);
    const auto inner = part_of(ConfigView(whole, scratch), key, about);
    if (!inner || !inner->rules || inner->rules->parts.empty()) continue;
    const ConfigView view(*inner->object, inner->pointer, *inner->rules, whole.report());
    for (Tower& t : read_towers(view, text_key(view.rules()), context))
      towers.push_back(std::move(t));
  }
  return towers;
}

}  // namespace posenc::v0::hf
