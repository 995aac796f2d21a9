// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/score/side.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>
#include <utility>

#include "model/hugging_face/head_size.h"
#include "model/hugging_face/image_rows.h"
#include "posenc/relative/any_scheme.h"

namespace posenc::inline v0::hf {
namespace {

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
                "attn_config.alibi is false, but the model of {class} has ALiBi anyway: "
                "transformers 5.23 has no learned positions for MPT",
                where, "use the authors' code for such weights");
  }
  const Json* most = config->value.find("alibi_bias_max");
  if (most && most->is_number() && most->as_number() != 8)
    view.warn("key_ignored",
              {"alibi_bias_max is {}, but transformers 5.23 always computes the slopes of 8; "
               "llama.cpp and the authors' code use it",
               *most},
              config->where + "/alibi_bias_max", "check which program the model was trained with",
              most->as_number());
}

// Divides the bias by sqrt(head_dim), with q.k.
void scale_bias(const ConfigView& view, EncodingBuilder& made) {
  const auto size = width_over_heads(view, true);
  if (!size || size->value < 1) return;
  made.set("bias_scale", derived(1 / std::sqrt(static_cast<double>(size->value)),
                                 "1 / sqrt(hidden_size // num_attention_heads)"));
}

// LayoutLMv2 and 3: buckets of the order, and of boxes. Version 3 (whose bias is scaled) reads the
// latter only beside the former.
std::string with_boxes(const ConfigView& view, const std::string& given) {
  const bool one = view.flag("has_relative_attention_bias", true);
  const bool two = view.flag("has_spatial_attention_bias", true);
  if (two && (one || !view.rules().bias_scaled)) return given;
  return one ? view.rules().score_also_alone : std::string(kNoScheme);
}

// What acts in the score.
std::string scheme_of(const ConfigView& view, const std::string& given) {
  const ClassRules& rules = view.rules();
  const std::string none(kNoScheme);
  if (acts_at_input(given)) return none;  // instead of a rotary: ESM
  if (rules.alibi_always) mpt_keys(view);
  if (!rules.score_also_alone.empty()) return with_boxes(view, given);
  bool on = rules.score_if.empty();
  for (const std::string& key : rules.score_if) on = view.flag(key, false) || on;
  if (!on) return none;
  if (rules.score && !rules.score->needs.empty()) {
    const auto v = view.value(rules.score->needs);
    if (!v || !truthy(v->value)) return none;
  }
  if (!rules.score_terms || lists_word(view, "pos_att_type", "c2p") ||
      lists_word(view, "pos_att_type", "p2c"))
    return given;
  view.warn("key_ignored",
            "relative_attention is true, but pos_att_type names neither c2p nor p2c: nothing is "
            "added to the score",
            view.where("pos_att_type"), "state pos_att_type");
  return none;
}

}  // namespace

bool acts_at_input(std::string_view scheme) {
  bool found = false;
  for_each(AbsoluteSchemes{}, [&]<class T>() { found |= T::card.name == scheme; });
  return found;
}

void fill(std::string& pattern, std::string_view name, const std::string& value) {
  for (std::size_t at; (at = pattern.find(name)) != std::string::npos;)
    pattern.replace(at, name.size(), value);
}

bool lists_word(const ConfigView& view, const std::string& key, std::string_view word) {
  const auto v = view.value(key);
  if (!v) return false;
  const auto is = [&](std::string name) {
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const auto from = name.find_first_not_of(' '), to = name.find_last_not_of(' ');
    return from != std::string::npos && name.substr(from, to - from + 1) == word;
  };
  if (v->value.is_array()) {
    const Json::Array& list = v->value.as_array();
    return std::ranges::any_of(
        list, [&](const Json& one) { return one.is_string() && is(one.as_string()); });
  }
  std::istringstream names(v->value.is_string() ? v->value.as_string() : "");
  for (std::string name; std::getline(names, name, '|');)
    if (is(name)) return true;
  return false;
}

ScoreSide::ScoreSide(const ConfigView& view, const std::string& given)
    : view_(view), scheme_(scheme_of(view, given)) {
  const ClassRules& rules = view.rules();
  if (scheme_ != kNoScheme && !rules.score_note.empty())
    view.note("encoding_not_covered", rules.score_note, view.where("model_type"));
  if (!rules.layer_count || rules.layer_count->sum.empty()) return;
  auto list = view.stated(rules.layer_count->sum);
  if (!list) list = view.of_class(rules.layer_count->held);
  if (!list->value.is_array()) return;  // a finding of layer_count
  const auto shrinking = static_cast<std::size_t>(rules.layer_count->shrinking.value_or(0));
  for (const Json& n : list->value.as_array())
    stages_.push_back((n.is_integer() ? n.as_integer() : 0) + (stages_.size() < shrinking ? 1 : 0));
}

ScorePlace ScoreSide::place_of(Index layer) const {
  ScorePlace out{.block = layer, .layer = layer};
  const std::optional<LayerCountRules>& count = view_.rules().layer_count;
  for (const Index n : stages_) {
    if (out.block < n) {
      out.shrinks = out.stage < count->shrinking.value_or(0) && out.block == n - 1;
      break;
    }
    out.block -= n, ++out.stage;
  }
  return out;
}

std::string ScoreSide::tensor_name(std::string pattern, Index layer) const {
  const ScorePlace at = place_of(layer);
  if (pattern.find("{module}") != std::string::npos)
    fill(pattern, "{module}", levit_module(view_, at));
  fill(pattern, "{layer}", std::to_string(layer));
  fill(pattern, "{stage}", std::to_string(at.stage));
  fill(pattern, "{block}", std::to_string(at.block));
  fill(pattern, "{stack}", view_.rules().side.empty() ? "encoder" : view_.rules().side);
  return pattern;
}

void ScoreSide::add_tensors(LayerEncoding& e, const ScoreRules& rule, Index layer) const {
  for (const Parameter& p : parameters_of(e.value))
    if (const std::string* pattern = rule.tensors.find(p.name))
      e.tensors.emplace_back(p.name, tensor_name(*pattern, layer));
}

// Keys that a class holds and does not obey, where their values are other ones.
void ScoreSide::note_unread(const ScoreRules& rule, const EncodingBuilder& made) const {
  for (const auto& [key, field] : rule.unread.pairs) {
    const auto v = view_.stated_value(key);
    const auto is = std::ranges::find_if(
        made.fields(), [&, name = &field](const FieldValue& f) { return f.name == *name; });
    if (!v || is == made.fields().end() || v->value.dump() == is->value.dump()) continue;
    view_.warn("key_ignored", {"{} is {}, and {class}'s code has {}", key, v->value, is->value}, *v,
               "the key does nothing", number_of(v->value));
  }
}

bool ScoreSide::give(const ScoreRules& rule, LayerSpec& layer) {
  if (!rule.only_if.empty() && !view_.flag(rule.only_if, false)) return true;
  EncodingBuilder made(scheme_);
  set_words(view_, rule.text, made);
  for (const auto& [field, key] : rule.keys.pairs) {
    // Buckets and distances of T5 have logarithms.
    const bool t5 = field.find("num_buckets") == 0 || field.find("max_distance") == 0;
    const auto v = view_.integer(key, t5 ? 2 : 0, 1'000'000'000);
    if (v)
      made.set(field, *v);
    else if (view_.value_or_none(key))
      return false;  // a finding
  }
  ScorePlace place = place_of(layer.index);
  place.sliding = layer.attention.kind == AttentionKind::sliding;
  if (!score_fields(view_, rule.rule, place, made)) return false;
  // Of LayoutLM both biases are scaled, by a field of the scheme.
  if (view_.rules().bias_scaled && (view_.rules().score_also_alone.empty() || also_alone()))
    scale_bias(view_, made);
  note_unread(rule, made);
  LayerEncoding out;
  auto encoding = made.finish(view_.report(), view_.where(), check_parameters);
  if (!encoding) return false;
  static_cast<Sourced<Encoding>&>(out) = view_.of_class(std::move(*encoding));
  add_tensors(out, rule, layer.index);
  layer.encodings.push_back(std::move(out));
  layer.fields.insert(layer.fields.end(), made.fields().begin(), made.fields().end());
  if (place.shrinks) {
    layer.query_step = 2;
    layer.fields.push_back(field_of("query_step", view_.of_class(Json(layer.query_step))));
  }
  return true;
}

void ScoreSide::give(LayerSpec& layer) {
  layer.scheme = scheme_;
  if (!layer.has_scheme()) return;
  const ClassRules& rules = view_.rules();
  const auto& rule = also_alone() ? rules.score_also : rules.score;
  if (!rule || !give(*rule, layer)) return;
  if (rules.score_also && rules.score_also_alone.empty()) (void)give(*rules.score_also, layer);
}

}  // namespace posenc::v0::hf
