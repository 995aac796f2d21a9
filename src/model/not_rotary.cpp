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

// Rows of learned positions of an image: its patches and the tokens before them.
std::optional<Index> patch_rows(const ConfigView& view, Index before) {
  const auto image = view.integer("image_size", 1, 1'000'000);
  const auto patch = view.integer("patch_size", 1, 1'000'000);
  if (!image || !patch) return std::nullopt;
  const Index side = image->value / patch->value;
  return side * side + before;
}

// "learned rows=514 width=768 offset=2", with the number of positions that have a row.
std::string learned_text(const ConfigView& view, std::optional<Index>& positions) {
  const Json& entry = view.entry();
  std::optional<Index> rows;
  Index offset = 0;
  if (const Json* before = entry.find("input_patches"))
    rows = patch_rows(view, before->as_integer());
  else if (const auto stated = view.integer("max_position_embeddings", 1, kUnbounded / 4))
    rows = stated->value;
  if (!rows) return "learned";
  positions = rows;
  if (const Json* more = entry.find("input_offset")) {  // OPT, BART
    offset = more->as_integer();
    *rows += offset;
  } else if (entry.find("input_padding")) {  // RoBERTa
    const auto padding = view.integer("pad_token_id", 0, 1'000'000'000);
    offset = padding ? padding->value + 1 : 0;
    *positions = std::max<Index>(0, *rows - offset);
  }
  return "learned rows=" + std::to_string(*rows) +
         (offset > 0 ? " offset=" + std::to_string(offset) : "");
}

std::string table_text(const ConfigView& view, const std::string& kind, PartLayers& out) {
  const Json& entry = view.entry();
  const Json* narrow = entry.find("input_width");
  const auto width = view.integer(narrow ? narrow->as_string() : "hidden_size", 1, 1'000'000'000);
  const Json* more = entry.find("input_text");
  std::string text = kind == "learned" ? learned_text(view, out.original_context)
                                       : kind + (more ? more->as_string() : std::string());
  if (width) text += " width=" + std::to_string(width->value);
  return text;
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
    if (auto encoding = written(table_text(view, input, out)))
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
