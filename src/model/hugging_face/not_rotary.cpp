// SPDX-License-Identifier: Apache-2.0
// Models without rotary: what stands at the input, and what acts in the score.
#include "model/encoding_builder.h"
#include "model/hugging_face/layers.h"

#include <cctype>
#include <cmath>

#include "model/hugging_face/layer_rules.h"
#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::inline v0::hf {
namespace {

void set(EncodingBuilder& made, const char* field, const std::optional<Sourced<Index>>& v) {
  if (v) made.set(field, *v);
}

// T5: encoders split their buckets between past and future, decoders do not.
EncodingBuilder t5(const ConfigView& view) {
  EncodingBuilder made("t5");
  made.set("bidirectional", view.entry().find("bidirectional") && !is_decoder(view),
           Origin::class_default, view.class_name());
  set(made, "num_buckets", view.integer("relative_attention_num_buckets", 2, 65536));
  set(made, "max_distance", view.integer("relative_attention_max_distance", 2, 1'000'000'000));
  return made;
}

// Divides the bias by sqrt(head_dim), with q.k.
void scale_bias(const ConfigView& view, EncodingBuilder& made) {
  const auto hidden = view.integer("hidden_size", 1, 1'000'000'000, true);
  const auto heads = view.integer("num_attention_heads", 1, 1'000'000, true);
  if (!hidden || !heads || hidden->value < heads->value) return;
  const auto head_dim = static_cast<double>(hidden->value / heads->value);
  made.set("bias_scale", 1 / std::sqrt(head_dim), Origin::derived,
           "1 / sqrt(hidden_size // num_attention_heads)");
}

// Falcon scales q.k and the bias together, with slopes rounded to bfloat16.
EncodingBuilder alibi(const ConfigView& view) {
  EncodingBuilder made("alibi");
  if (view.class_name() != "FalconConfig") return made;
  view.report().note("encoding_not_covered",
                     "the program rounds its slopes and biases to bfloat16; the definition does "
                     "not",
                     view.where("model_type"));
  scale_bias(view, made);
  return made;
}

// MPT as transformers runs it always has ALiBi with 8 as the last exponent.
void mpt_keys(const ConfigView& view) {
  const auto config = view.stated("attn_config");
  if (!config || !config->value.is_object()) return;
  if (const Json* alibi = config->value.find("alibi")) {
    if (!alibi->is_bool())
      view.not_a_flag("alibi", *alibi, config->where + "/alibi");
    else if (!alibi->as_bool())
      view.report().warn("key_ignored",
                         "attn_config.alibi is false, and MptConfig's model has ALiBi all the "
                         "same: transformers 5.23 has no learned positions for MPT",
                         config->where + "/alibi", "use the authors' code for such weights");
  }
  const Json* most = config->value.find("alibi_bias_max");
  if (most && most->is_number() && most->as_number() != 8)
    view.report().warn("key_ignored",
                       "alibi_bias_max is " + shown(*most) +
                           ", and transformers 5.23 makes the slopes of 8 all the same; "
                           "llama.cpp and the authors' code obey it",
                       config->where + "/alibi_bias_max",
                       "check which program the model was trained with", most->as_number());
}

// LayoutLMv2 and 3: T5 buckets of the distance, and of boxes, which have no scheme here. Version 3
// reads the latter only beside the former, and divides both by sqrt(head_dim).
std::string layoutlm(const ConfigView& view, std::optional<EncodingBuilder>& made) {
  const bool third = view.class_name() == "LayoutLMv3Config";
  const bool one = view.flag("has_relative_attention_bias", true);
  const bool two = view.flag("has_spatial_attention_bias", true) && (one || !third);
  if (two) return "layoutlm";
  if (!one) return "none";
  const auto buckets = view.integer("rel_pos_bins", 2, 65536, true);
  const auto distance = view.integer("max_rel_pos", 2, 1'000'000'000, true);
  made.emplace("t5");
  made->set("bidirectional", true, Origin::class_default, view.class_name());
  set(*made, "num_buckets", buckets);
  set(*made, "max_distance", distance);
  if (third) scale_bias(view, *made);
  return "t5";
}

// The terms of DeBERTa's attention: a list, or names joined by |.
bool has_term(const ConfigView& view, const Json& rule) {
  const auto v = view.value(rule.at("key").as_string());
  if (!v) return false;
  const auto known = [&](std::string name) {
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const auto from = name.find_first_not_of(" "), to = name.find_last_not_of(" ");
    if (from == std::string::npos) return false;
    name = name.substr(from, to - from + 1);
    for (const Json& one : rule.at("any").as_array())
      if (one.as_string() == name) return true;
    return false;
  };
  if (v->value.is_array()) {
    for (const Json& one : v->value.as_array())
      if (one.is_string() && known(one.as_string())) return true;
    return false;
  }
  if (!v->value.is_string()) return false;
  std::string rest = v->value.as_string() + "|";
  for (auto cut = rest.find('|'); cut != std::string::npos; cut = rest.find('|')) {
    if (known(rest.substr(0, cut))) return true;
    rest = rest.substr(cut + 1);
  }
  return false;
}

// What acts in the score, and its definition where the registry has the scheme.
std::string score(const ConfigView& view, const std::string& given,
                  std::optional<EncodingBuilder>& made) {
  if (given == "learned") return "none";  // in the place of a rotary: ESM
  if (view.class_name() == "MptConfig") mpt_keys(view);
  if (given == "layoutlm") return layoutlm(view, made);
  if (const Json* switches = view.entry().find("score_if")) {
    bool on = false;
    for (const Json& key : switches->as_array()) on = view.flag(key.as_string(), false) || on;
    if (!on) return "none";
  }
  if (const Json* terms = view.entry().find("score_terms"); terms && !has_term(view, *terms)) {
    view.report().warn("key_ignored",
                       "relative_attention is true, but pos_att_type names neither c2p nor p2c: "
                       "nothing acts in the score",
                       view.where("pos_att_type"), "state pos_att_type");
    return "none";
  }
  if (given == "t5") made = t5(view);
  if (given == "alibi") made = alibi(view);
  return given;
}

// Keys of a rotary encoding that a class without one does not read.
void warn_of_rotary_keys(const ConfigView& view) {
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"})
    if (const auto v = view.stated(key); v && truthy(v->value))
      view.report().warn(
          "key_ignored",
          std::string(key) + " is in the file, but " + view.class_name() + " has no rotary",
          v->where, "the key does nothing");
}

// What stands at the input of the class: empty for nothing.
std::string input_kind(const ConfigView& view, const std::string& given) {
  const ClassRules& rules = view.rules();
  std::string input = given == "learned" ? "learned" : "";  // in the place of a rotary: ESM
  if (!rules.input.empty()) input = rules.input;
  if (!rules.input_if.empty() && !view.flag(rules.input_if, false)) input.clear();
  if (rules.input_instead)
    if (const auto v = view.value(rules.input_instead->key);
        v && v->value == rules.input_instead->equals)
      input = rules.input_instead->kind;
  return input;
}

void note_no_rotary(const ConfigView& view, const std::string& input, const std::string& scheme) {
  const ClassRules& rules = view.rules();
  const auto note = [&](const std::string& text) {
    view.report().note("no_rotary", text, view.where("model_type"));
  };
  if (!rules.input_note.empty())
    view.report().note("encoding_not_covered", rules.input_note, view.where("model_type"));
  if (!input.empty())
    note("positions are added " +
         (rules.input_at.empty()
              ? std::string("at the input (")
              : "to " + rules.input_at + " of the layers, before their projections (") +
         input + "); q and k are not turned");
  if (scheme != "none")
    note("positions act in the score (" + scheme + ")");
  else if (input.empty())
    note(rules.no_transformer.empty()
             ? "no position encoding: order comes from the layers themselves"
             : "no Transformer and no position encoding: order comes from " + rules.no_transformer);
}

}  // namespace

void read_not_rotary(const ConfigView& view, const std::string& given, PartLayers& out) {
  std::optional<EncodingBuilder> made;
  const std::string scheme = score(view, given, made);
  warn_of_rotary_keys(view);
  const std::string input = input_kind(view, given);
  if (!input.empty()) read_input(view, input, out);
  note_no_rotary(view, input, scheme);
  if (!view.rules().no_transformer.empty()) return;
  auto plans = plan_layers(view);
  if (!plans) return;
  const auto encoding =
      made ? made->finish(view.report(), view.where(), check_parameters) : std::nullopt;
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

}  // namespace posenc::v0::hf
