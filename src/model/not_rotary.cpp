// SPDX-License-Identifier: Apache-2.0
// Models without rotary: what stands at the input, and what acts in the score.
#include "model/layers.h"

#include "model/layer_rules.h"

namespace posenc::hf {
namespace {

// The registry says whether a scheme can be written as an encoding; one it lacks is named only.
std::optional<Encoding> written(const std::string& text) {
  try {
    return parse_encoding(text);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

std::string table_text(const ConfigView& view, const std::string& kind) {
  const auto rows = view.integer("max_position_embeddings", 1, kUnbounded / 4);
  const auto width = view.integer("hidden_size", 1, 1'000'000'000);
  std::string text = kind;
  if (kind == "learned" && rows) text += " rows=" + std::to_string(rows->value);
  if (width) text += " width=" + std::to_string(width->value);
  return text;
}

// MPT: ALiBi if attn_config.alibi, else learned rows.
std::string mpt_scheme(const ConfigView& view, std::string& input) {
  const auto config = view.stated("attn_config");
  const Json* alibi = config ? config->value.find("alibi") : nullptr;
  if (!alibi || truthy(*alibi)) return "alibi";
  input = "learned";
  return "none";
}

}  // namespace

void read_not_rotary(const ConfigView& view, const std::string& given, PartLayers& out) {
  std::string scheme = given, input;
  if (const Json* held = view.entry().find("input")) input = held->as_string();
  if (view.class_name() == "MptConfig") scheme = mpt_scheme(view, input);
  if (scheme == "learned") scheme = "none", input = "learned";
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"})
    if (const auto v = view.stated(key); v && truthy(v->value))
      view.reading().warn(
          "key_ignored",
          std::string(key) + " is in the file, but " + view.class_name() + " has no rotary",
          v->where, "the key does nothing");
  if (!input.empty()) {
    if (auto encoding = written(table_text(view, input)))
      out.input.push_back({*encoding, Origin::class_default, view.class_name()});
    view.reading().note("no_rotary",
                        "positions are added at the input (" + input + "); q and k are not turned",
                        view.where("model_type"));
  } else if (scheme == "none") {
    view.reading().note("no_rotary", "no position encoding: order comes from the layers themselves",
                        view.where("model_type"));
  } else {
    view.reading().note("no_rotary", "positions act in the score (" + scheme + ")",
                        view.where("model_type"));
  }
  auto plans = plan_layers(view);
  if (!plans) return;
  const auto encoding = scheme == "none" ? std::nullopt : written(scheme);
  for (std::size_t i = 0; i < plans->size(); ++i) {
    LayerSpec layer;
    layer.index = static_cast<Index>(i);
    layer.attention = (*plans)[i].attention;
    layer.fields = (*plans)[i].fields;
    const bool acts = layer.attention.kind == AttentionKind::full ||
                      layer.attention.kind == AttentionKind::sliding ||
                      layer.attention.kind == AttentionKind::chunked;
    layer.scheme = acts ? scheme : "none";
    if (acts && encoding)
      layer.encodings.push_back({*encoding, Origin::class_default, view.class_name()});
    layer.fields.push_back({"scheme", layer.scheme, Origin::class_default, view.class_name()});
    out.layers.push_back(std::move(layer));
  }
}

}  // namespace posenc::hf
