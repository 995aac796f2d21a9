// SPDX-License-Identifier: Apache-2.0
// Models without rotary: what stands at the input, and what acts in the score.
#include "model/layers.h"

#include <algorithm>

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

// T5: encoders split their buckets between past and future, decoders do not.
std::string score_text(const ConfigView& view, const std::string& scheme) {
  if (scheme != "t5") return scheme;
  const bool both = view.entry().find("bidirectional") && !view.flag("is_decoder", false);
  std::string text = std::string("t5 bidirectional=") + (both ? "true" : "false");
  const auto buckets = view.integer("relative_attention_num_buckets", 2, 65536);
  const auto distance = view.integer("relative_attention_max_distance", 2, 1'000'000'000);
  if (buckets) text += " num_buckets=" + std::to_string(buckets->value);
  if (distance) text += " max_distance=" + std::to_string(distance->value);
  return text;
}

// MPT: ALiBi if attn_config.alibi, else learned rows.
std::string mpt_scheme(const ConfigView& view, std::string& input) {
  const auto config = view.stated("attn_config");
  const Json* alibi = config ? config->value.find("alibi") : nullptr;
  if (!alibi || truthy(*alibi)) {
    const Json* most = config ? config->value.find("alibi_bias_max") : nullptr;
    if (most && most->is_number() && most->as_number() != 8)
      view.reading().warn("key_ignored",
                          "alibi_bias_max is " + shown(*most) +
                              ", and transformers 5.23 makes the slopes of 8 all the same; "
                              "llama.cpp and the authors' code obey it",
                          config->where + "/alibi_bias_max",
                          "check which program the model was trained with", most->as_number());
    return "alibi";
  }
  input = "learned";
  return "none";
}

// BEiT: a table of rows, a bias in the score, both or none, by three flags.
std::string beit_scheme(const ConfigView& view, std::string& input) {
  if (view.flag(view.entry().at("input_if").as_string(), false)) input = "learned";
  return view.flag("use_relative_position_bias", false) ||
                 view.flag("use_shared_relative_position_bias", false)
             ? "beit"
             : "none";
}

}  // namespace

void read_not_rotary(const ConfigView& view, const std::string& given, PartLayers& out) {
  std::string scheme = given, input;
  if (const Json* held = view.entry().find("input")) input = held->as_string();
  if (view.class_name() == "MptConfig") scheme = mpt_scheme(view, input);
  if (scheme == "learned") scheme = "none", input = "learned";
  if (scheme == "beit") scheme = beit_scheme(view, input);
  if (const Json* keys = view.entry().find("score_if");
      keys && std::none_of(keys->as_array().begin(), keys->as_array().end(),
                           [&](const Json& key) { return view.flag(key.as_string(), false); }))
    scheme = "none";
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"})
    if (const auto v = view.stated(key); v && truthy(v->value))
      view.reading().warn(
          "key_ignored",
          std::string(key) + " is in the file, but " + view.class_name() + " has no rotary",
          v->where, "the key does nothing");
  if (!input.empty()) {
    read_input(view, input, out);
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
  const auto encoding = scheme == "none" ? std::nullopt : written(score_text(view, scheme));
  std::vector<std::string> types;
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
    complete_fields(layer);
    types.push_back((*plans)[i].type);
    out.layers.push_back(std::move(layer));
  }
  count_cached_keys(view, types, out.layers);
}

}  // namespace posenc::hf
