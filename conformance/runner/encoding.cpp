// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/encoding.h"

#include "conformance/runner/axes.h"
#include "posenc/core/array_lookup.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

ReadOptions options_of(const Check& check) {
  ReadOptions options;
  if (const Json* context = check.find("context")) options.context = context->as_integer();
  options.reader = check.text("reader");
  if (const Json* assume = check.find("assume"))
    for (const auto& [key, value] : assume->as_object()) options.assume[key] = value.as_string();
  return options;
}

Context context_of(const Check& check) {
  Context context;
  if (const Json* length = check.find("context")) context.length = length->as_integer();
  return context;
}

std::vector<const LayerSpec*> layers_of(const Check& check, const ModelSpec& model) {
  std::vector<const LayerSpec*> layers;
  const std::string tower = check.text("tower");
  if (tower.empty())
    for (const LayerSpec& layer : model.layers) layers.push_back(&layer);
  for (const Tower& t : model.towers)
    if (t.name == tower)
      for (const LayerSpec& layer : t.layers) layers.push_back(&layer);
  // A vision tower's own configuration has no language layers: its tower is what it is about.
  if (layers.empty() && tower.empty() && model.towers.size() == 1)
    for (const LayerSpec& layer : model.towers[0].layers) layers.push_back(&layer);
  return layers;
}

AttentionKind kind_from(const std::string& layer_type) {
  if (layer_type == "full_attention") return AttentionKind::full;
  if (layer_type == "sliding_attention") return AttentionKind::sliding;
  if (layer_type == "chunked_attention") return AttentionKind::chunked;
  if (layer_type == "linear_attention") return AttentionKind::linear;
  refuse_field("case", "layer_type", "is not one of transformers' words", layer_type);
}

template <class E>
E from_name(std::string_view text, std::string_view what) {
  for (std::size_t i = 0; i < EnumNames<E>::value.size(); ++i)
    if (EnumNames<E>::value[i] == text) return static_cast<E>(i);
  refuse("case", std::string(what) + " has no such value", text);
}

// The turned window alone, as models hand it to the function that turns (sliced before).
RotarySpec window_of(RotarySpec spec) {
  if (spec.blocks.size() != 1)
    refuse("case", "part rotary needs one block", static_cast<Index>(spec.blocks.size()));
  spec.head_dim = spec.blocks[0].width();
  spec.blocks[0].offset = 0;
  return spec;
}

// An array behind @name; with letters h, a, d in `axes`, in that order.
std::vector<double> listed(const Check& check, std::string_view name) {
  const Slice s = slice(check.in_case, name);
  const std::vector<double> values = s.values();
  const Json* letters = check.member("axes", name);
  if (letters == nullptr) return values;
  std::vector<double> ordered;
  for (const Index i : Axes(s.shape, letters->as_string(), {}).walk("had"))
    ordered.push_back(values[static_cast<std::size_t>(i)]);
  return ordered;
}

// One value a pair goes to the axis that turns it; or all of them as the spectrum holds them.
void put_frequencies(RotarySpec& spec, const Slice& given) {
  if (spec.blocks.empty()) refuse("case", "frequencies need a scheme that turns");
  Spectrum& s = spec.blocks[0].spectrum;
  const std::vector<double> values = given.values();
  const auto pairs = static_cast<std::size_t>(s.pairs());
  if (values.size() == s.frequency.size()) {
    s.frequency = values;
  } else if (pairs > 0 && values.size() == pairs) {
    for (std::size_t i = 0; i < s.frequency.size(); ++i)
      if (s.frequency[i] != 0) s.frequency[i] = values[i % pairs];
  } else {
    refuse_field("case", "frequencies", "must be as many as the pairs", given.count());
  }
  s.geometric.reset();
  s.ggml.reset();
}

}  // namespace

std::filesystem::path model_path(const Check& check) {
  const Json named = check.in_case.parameter(check.text("model"));
  if (!named.is_string()) refuse("case", "the model must be a file here");
  return check.in_case.suite.dir / named.as_string();
}

ModelSpec read_case_model(const Check& check) {
  const Json* given = check.find("model");
  if (given == nullptr) refuse("case", "the check needs a model");
  Json model = given->is_string() ? check.in_case.parameter(given->as_string()) : *given;
  if (model.is_string())
    return read_model(check.in_case.suite.dir / model.as_string(), options_of(check));
  if (model.find("model_type") == nullptr)
    if (const Json* params = check.in_case.json.find("params"))
      if (const Json* type = params->find("model_type")) model.set("model_type", *type);
  return read_hugging_face(model, check.in_case.name + "/config.json", options_of(check));
}

const LayerSpec& layer_of(const Check& check, const ModelSpec& model) {
  const std::vector<const LayerSpec*> layers = layers_of(check, model);
  if (const Json* layer = check.find("layer")) {
    const std::int64_t i = layer->as_integer();
    if (layers.empty())
      refuse("case", "the model or its tower must have layers; it has none, layer", i);
    if (i < 0 || i >= static_cast<std::int64_t>(layers.size()))
      refuse_field("case", "layer", "must be 0 to " + std::to_string(layers.size() - 1), i);
    return *layers[static_cast<std::size_t>(i)];
  }
  const std::string type = check.text("layer_type");
  for (const LayerSpec* layer : layers)
    if (layer->rotary && (type.empty() || layer->attention.kind == kind_from(type))) return *layer;
  refuse("case", "the model has no layer with a rotation and that attention", type);
}

Encoding encoding_of(const Check& check, std::string_view key) {
  const std::string text = check.text(key);
  if (text.empty()) refuse("case", "the check needs a scheme or a model");
  return parse_encoding(text, [&](std::string_view name) { return listed(check, name); });
}

Spectrum spectrum_of(const Check& check) {
  return resolve_spectrum(encoding_of(check), context_of(check));
}

RotarySpec rotary_of(const Check& check) {
  RotarySpec spec;
  if (check.find("scheme") != nullptr) {
    spec = resolve(encoding_of(check), context_of(check));
  } else {
    const ModelSpec model = read_case_model(check);
    require_readable(model);
    const LayerSpec& layer = layer_of(check, model);
    if (!layer.rotary) refuse("case", "the layer has no rotation", layer.index);
    spec = *layer.rotary;
  }
  if (const std::string* name = check.array_name("in", "frequencies"))
    put_frequencies(spec, slice(check.in_case, *name));
  if (check.text("part") == "rotary") spec = window_of(std::move(spec));
  spec.precision = from_name<Precision>(check.text("precision", "exact"), "precision");
  if (check.find("rounds_once") != nullptr) spec.bfloat16_rounds_once = check.flag("rounds_once");
  return spec;
}

}  // namespace posenc::conformance
