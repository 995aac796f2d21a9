// SPDX-License-Identifier: Apache-2.0
// Vision and audio parts. Axial layouts of vision towers: reference 8.1 and Radford et al.'s
// successors; positions (row, column) are the caller's.
#include <numbers>

#include "model/layers.h"
#include "model/rope_parameters.h"

namespace posenc::hf {
namespace {

struct Axes {
  std::string_view layout, options;
};
// What follows "axial head_dim=D axes_dim=[D/2,D/2] base=B".
const Axes kLayouts[] = {
    {"qwen2_vl", " pairing=half_split"},                       // h then w, same frequencies
    {"pixtral", " pairing=half_split spacing=interlaced"},     // h even, w odd frequencies
    {"llama4", " pairing=interleaved"},                        // angles of coordinate + 1
    {"gemma4", " pairing=half_split order=blocks"},            // x block, y block
    {"dinov3", " pairing=half_split scale=6.283185307179586"}  // centres in [-1, 1]
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
    view.reading().error("unknown_rope_type",
                         "a vision tower has rope_type axial (or default), got " +
                             (type ? *type : std::string("none")),
                         view.where("rope_parameters"), "write axial");
    return std::nullopt;
  }
  const Value* theta = d.find("rope_theta");
  if (!theta || !theta->value.is_number() || !(theta->value.as_number() > 0)) {
    view.reading().error("theta_not_positive", "rope_theta must be a positive number",
                         theta ? theta->where : view.where("rope_theta"), "state rope_theta");
    return std::nullopt;
  }
  return *theta;
}

bool is_tower(const Json* entry) {
  return entry && entry->find("scheme") &&
         (entry->at("scheme").as_string() != "rope" || entry->find("vision") ||
          entry->find("pairing"));
}

std::string tower_name(const std::string& part) {
  const auto cut = part.rfind("_config");
  return cut != std::string::npos && cut + 7 == part.size() ? part.substr(0, cut) : part;
}

}  // namespace

PartLayers read_vision(const ConfigView& view) {
  PartLayers out;
  const std::string layout = view.entry().at("vision").as_string();
  const auto size = head_size(view);
  const auto theta = vision_theta(view);
  const auto count = view.integer("num_hidden_layers", 0, 10'000, true);
  if (!size || !theta || !count) return out;
  if (size->value % 4 != 0) {
    view.reading().error(
        "wrong_type",
        "a head of " + std::to_string(size->value) + " channels cannot be shared by two axes",
        size->where, "state head_dim", static_cast<double>(size->value));
    return out;
  }
  const std::string half = std::to_string(size->value / 2);
  std::string text = "axial head_dim=" + std::to_string(size->value) + " axes_dim=[" + half + "," +
                     half + "] base=" + number_text(theta->value.as_number());
  for (const Axes& a : kLayouts)
    if (a.layout == layout) text += a.options;
  LayerSpec layer;
  try {
    const Encoding encoding = parse_encoding(text);
    layer.rotary = resolve(encoding);
    layer.encodings.push_back({encoding, Origin::derived, view.class_name()});
  } catch (const std::invalid_argument& problem) {
    view.reading().error("refused", problem.what(), view.where(), text);
    return out;
  }
  layer.scheme = "rope";
  const Value by_class{nullptr, Origin::class_default, view.class_name()};
  layer.fields = {{"head_dim", size->value, size->origin, size->where},
                  {"base", theta->value, theta->origin, theta->where},
                  {"pairing", layout == "llama4" ? "interleaved" : "half_split", by_class.origin,
                   by_class.where},
                  {"layout", layout, by_class.origin, by_class.where},
                  {"scheme", "rope", by_class.origin, by_class.where},
                  {"attention", "full", by_class.origin, by_class.where}};
  for (Index i = 0; i < count->value; ++i) {
    layer.index = i;
    out.layers.push_back(layer);
  }
  return out;
}

// Every other part that is stated. What is wrong with a tower does not make the text unreadable:
// its errors become warnings.
std::vector<Tower> read_towers(const ConfigView& whole, const std::string& text_part,
                               Index context) {
  std::vector<Tower> towers;
  const Json* parts = whole.entry().find("parts");
  if (!parts) return towers;
  for (const auto& [part, about] : parts->as_object()) {
    if (part == text_part) continue;
    const Json* object = whole.object().find(part);
    if (!object || !object->is_object()) continue;
    std::string type = about.at("type").as_string();
    if (about.find("by_model_type"))
      if (const Json* stated = object->find("model_type"); stated && stated->is_string())
        type = stated->as_string();
    const Json* entry = model_entry(type);
    if (!is_tower(entry)) {
      whole.reading().note("tower_not_covered",
                           "positions of the part " + part + " (" + type + ") are not covered",
                           whole.where(part));
      continue;
    }
    Reading own{whole.reading().file, whole.reading().assume, whole.reading().used, {}};
    const ConfigView view(*object, whole.pointer(part), *entry, own);
    Tower tower{tower_name(part), read_layers(view, context).layers};
    for (Finding f : own.findings) {
      if (f.severity == Severity::error) f.severity = Severity::warning;
      f.message = "in " + part + ": " + f.message;
      whole.reading().findings.push_back(std::move(f));
    }
    whole.reading().used.insert(own.used.begin(), own.used.end());
    towers.push_back(std::move(tower));
  }
  return towers;
}

}  // namespace posenc::hf
