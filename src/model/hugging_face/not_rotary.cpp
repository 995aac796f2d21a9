// SPDX-License-Identifier: Apache-2.0
// Models without rotary: what stands at the input, and what acts in the score.
#include "model/encoding_builder.h"
#include "model/hugging_face/layers.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include "model/hugging_face/layer_rules.h"

namespace posenc::inline v0::hf {
namespace {

// T5's buckets under the names of the class: encoders split them between past and future.
EncodingBuilder buckets(const ConfigView& view, bool both, const char* count, const char* distance,
                        bool required = false) {
  EncodingBuilder made("t5");
  made.set("bidirectional", view.of_class<Json>(both));
  if (const auto n = view.integer(count, 2, 65536, required)) made.set("num_buckets", *n);
  if (const auto n = view.integer(distance, 2, 1'000'000'000, required))
    made.set("max_distance", *n);
  return made;
}

// Divides the bias by sqrt(head_dim), with q.k.
void scale_bias(const ConfigView& view, EncodingBuilder& made) {
  const auto hidden = view.integer("hidden_size", 1, 1'000'000'000, true);
  const auto heads = view.integer("num_attention_heads", 1, 1'000'000, true);
  if (!hidden || !heads || hidden->value < heads->value) return;
  const auto head_dim = static_cast<double>(hidden->value / heads->value);
  made.set("bias_scale",
           derived(1 / std::sqrt(head_dim), "1 / sqrt(hidden_size // num_attention_heads)"));
}

// MPT as transformers runs it always has ALiBi with 8 as the last exponent.
void mpt_keys(const ConfigView& view) {
  const auto config = view.stated("attn_config");
  if (!config) return;
  if (const Json* alibi = config->value.find("alibi")) {
    const std::string where = config->where + "/alibi";
    if (!alibi->is_bool())
      view.not_a_flag("alibi", *alibi, where);
    else if (!alibi->as_bool())
      view.warn("key_ignored",
                message("attn_config.alibi is false, and {}'s model has ALiBi all the same: "
                        "transformers 5.23 has no learned positions for MPT",
                        view.class_name()),
                where, "use the authors' code for such weights");
  }
  const Json* most = config->value.find("alibi_bias_max");
  if (most && most->is_number() && most->as_number() != 8)
    view.warn("key_ignored",
              message("alibi_bias_max is {}, and transformers 5.23 makes the slopes of 8 all the "
                      "same; llama.cpp and the authors' code obey it",
                      *most),
              config->where + "/alibi_bias_max", "check which program the model was trained with",
              most->as_number());
}

// LayoutLMv2 and 3: T5 buckets of the distance, and of boxes, which have no scheme here. Version 3
// (whose bias is scaled) reads the latter only beside the former.
std::string layoutlm(const ConfigView& view) {
  const bool one = view.flag("has_relative_attention_bias", true);
  const bool two = view.flag("has_spatial_attention_bias", true);
  if (two && (one || !view.rules().bias_scaled)) return "layoutlm";
  return one ? "t5" : "none";
}

// The terms of DeBERTa's attention: a list, or names joined by |.
bool has_term(const ConfigView& view, const ScoreTerms& rule) {
  const auto v = view.value(rule.key);
  if (!v) return false;
  const auto known = [&](std::string name) {
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const auto from = name.find_first_not_of(' '), to = name.find_last_not_of(' ');
    return from != std::string::npos && contains(rule.any, name.substr(from, to - from + 1));
  };
  if (v->value.is_array()) {
    const Json::Array& list = v->value.as_array();
    return std::any_of(list.begin(), list.end(),
                       [&](const Json& one) { return one.is_string() && known(one.as_string()); });
  }
  std::istringstream names(v->value.is_string() ? v->value.as_string() : "");
  for (std::string name; std::getline(names, name, '|');)
    if (known(name)) return true;
  return false;
}

// What acts in the score.
std::string score(const ConfigView& view, const std::string& given) {
  const ClassRules& rules = view.rules();
  if (given == "learned") return "none";  // in the place of a rotary: ESM
  if (rules.alibi_always) mpt_keys(view);
  if (given == "layoutlm") return layoutlm(view);
  bool on = rules.score_if.empty();
  for (const std::string& key : rules.score_if) on = view.flag(key, false) || on;
  if (!on) return "none";
  if (!rules.score_terms || has_term(view, *rules.score_terms)) return given;
  view.warn("key_ignored",
            "relative_attention is true, but pos_att_type names neither c2p nor p2c: nothing acts "
            "in the score",
            view.where("pos_att_type"), "state pos_att_type");
  return "none";
}

// Its definition, where the registry has the scheme.
std::optional<EncodingBuilder> definition(const ConfigView& view, const std::string& given,
                                          const std::string& scheme) {
  std::optional<EncodingBuilder> made;
  if (scheme == "t5" && given == "layoutlm")
    made = buckets(view, true, "rel_pos_bins", "max_rel_pos", true);
  else if (scheme == "t5")
    made = buckets(view, view.rules().bidirectional && !is_decoder(view),
                   "relative_attention_num_buckets", "relative_attention_max_distance");
  else if (scheme == "alibi")
    made.emplace("alibi");
  if (!made) return made;
  if (const std::string& note = view.rules().score_note; !note.empty())
    view.note("encoding_not_covered", note, view.where("model_type"));
  if (view.rules().bias_scaled) scale_bias(view, *made);
  return made;
}

// Keys of a rotary encoding that a class without one does not read.
void warn_of_rotary_keys(const ConfigView& view) {
  for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"})
    if (const auto v = view.stated(key); v && truthy(v->value))
      view.warn("key_ignored",
                message("{} is in the file, but {} has no rotary", key, view.class_name()), *v,
                "the key does nothing");
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
    view.note("no_rotary", text, view.where("model_type"));
  };
  if (!rules.input_note.empty())
    view.note("encoding_not_covered", rules.input_note, view.where("model_type"));
  if (!input.empty())
    note("positions are added " +
         (rules.input_at.empty()
              ? std::string("at the input (")
              : "to " + rules.input_at + " of the layers, before their projections (") +
         input + "); q and k are not rotated");
  if (scheme != "none")
    note("positions act in the score (" + scheme + ")");
  else if (input.empty())
    note(rules.no_transformer.empty()
             ? "no position encoding: order comes from the layers themselves"
             : "no Transformer and no position encoding: order comes from " + rules.no_transformer);
}

}  // namespace

void read_not_rotary(const ConfigView& view, const std::string& given, PartLayers& out) {
  const std::string scheme = score(view, given);
  auto made = definition(view, given, scheme);
  warn_of_rotary_keys(view);
  const std::string input = input_kind(view, given);
  read_input(view, input, out);
  note_no_rotary(view, input, scheme);
  if (!view.rules().no_transformer.empty()) return;
  auto plans = plan_layers(view);
  if (!plans) return;
  const auto encoding =
      made ? made->finish(view.report(), view.where(), check_parameters) : std::nullopt;
  std::vector<std::string> types;
  for (LayerPlan& plan : *plans) {
    LayerSpec layer;
    layer.index = static_cast<Index>(out.layers.size());
    layer.attention = plan.attention;
    layer.fields = std::move(plan.fields);
    const AttentionKind kind = plan.attention.kind;
    if (kind != AttentionKind::linear && kind != AttentionKind::none) {
      layer.scheme = scheme;
      if (encoding) layer.encodings.push_back(view.of_class(*encoding));
    }
    layer.fields.push_back(field_of("scheme", view.of_class(Json(layer.scheme))));
    complete_fields(layer);
    types.push_back(plan.type);
    out.layers.push_back(std::move(layer));
  }
  count_cached_keys(view, types, out.layers);
}

}  // namespace posenc::v0::hf
