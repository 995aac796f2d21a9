// SPDX-License-Identifier: Apache-2.0
// What multiplies q.k, the soft cap, learned sinks and the norm of q and k of each layer, by the
// class's rules and the file's keys. Classes without a rule have head_dim^-1/2: read in the modeling files of transformers
// 5.23.0, one by one.
#include <cmath>

#include "model/hugging_face/score/numbers.h"
#include "model/hugging_face/score/side.h"

namespace posenc::inline v0::hf {
namespace {

double number_or(const Json& given, double otherwise) {
  return given.is_number() ? given.as_number() : otherwise;
}

// DeBERTa: every score is divided by sqrt((1 + terms) head_dim).
double terms_of(const ConfigView& view, const std::string& counted) {
  double n = 1;
  for (const char* term : {"c2p", "p2c", "p2p"})
    if (counted == "all" || term != std::string_view("p2p"))
      n += lists_word(view, "pos_att_type", term);
  return n;
}

// A key, or a member of an object as KEY/MEMBER.
std::optional<Value> value_at(const ConfigView& view, const std::string& key) {
  const std::size_t cut = key.find('/');
  auto v = view.value_or_none(key.substr(0, cut));
  if (cut == std::string::npos || !v) return v;
  const Json* member = v->value.is_object() ? v->value.find(key.substr(cut + 1)) : nullptr;
  if (member == nullptr || member->is_null()) return std::nullopt;
  return Value{*member, v->origin, v->where + key.substr(cut)};
}

struct Scale {
  ContentScale value{};
  FieldValue field{};  // without a name: the class has no rule
};

// None: not known, or a finding.
std::optional<Scale> scale_of(const ConfigView& view) {
  const std::optional<ScaleRules>& rule = view.rules().scale;
  if (!rule) return view.rules().remote.empty() ? std::optional(Scale{}) : std::nullopt;
  Scale out{{number_or(rule->factor, 1), number_or(rule->power, rule->key.empty() ? -0.5 : 0)}, {}};
  out.field = field_of("scale", view.of_class(Json(out.value.factor)));
  if (!rule->terms.empty()) {
    out.value.factor = 1 / std::sqrt(terms_of(view, rule->terms));
    out.field = field_of("scale", derived(out.value.factor, view.where("pos_att_type")));
  }
  if (!rule->switch_key.empty() && !view.flag(rule->switch_key, true)) {
    out.value = {1, 0};
    out.field = field_of("scale", derived(1, view.where(rule->switch_key)));
  }
  if (rule->key.empty()) return out;
  const auto v = value_at(view, rule->key);
  if (!v) return Scale{};
  if (!(number_of(v->value) > 0))
    return view.must_be(rule->key, "a positive number", *v, "state what multiplies the scores");
  out.value.factor *= std::pow(v->value.as_number(), number_or(rule->key_power, 1));
  const bool made = rule->key_power.is_number() || !rule->factor.is_null();
  const std::string where =
      v->origin == Origin::class_default ? v->where + ": " + rule->key : v->where;
  out.field = {"scale", out.value.factor, made ? Origin::derived : v->origin,
               made ? where + "^" + number_text(number_or(rule->key_power, 1)) : where};
  return out;
}

std::optional<Value> cap_of(const ConfigView& view) {
  const std::string& key = view.rules().softcap;
  auto v = key.empty() ? std::nullopt : view.value_or_none(key);
  if (!v || number_of(v->value) > 0) return v;
  return view.must_be(key, "a positive number", *v, "null: no soft cap");
}

template <class E>
E named(std::string_view name) {
  constexpr auto& all = EnumNames<E>::value;
  const auto it = std::ranges::find(all, name);
  if (it == all.end()) refuse("read", "no qk_norm has the word", std::string(name));
  return static_cast<E>(it - all.begin());
}

// Where the kind comes from: the switch or the class.
struct Source {
  bool on = true;
  Value value;
};
Source source_of(const ConfigView& view, const QkNormRules& rule) {
  Source out{true, view.of_class(Json())};
  if (rule.switch_key.empty()) return out;
  out.on = view.flag(rule.switch_key, false);
  if (const auto v = view.stated(rule.switch_key)) out.value = derived(Json(), v->where);
  return out;
}

QkNorm norm_of(const ConfigView& view, const QkNormRules& rule) {
  QkNorm out;
  out.kind = named<NormKind>(rule.norm);
  out.over = named<NormSpan>(rule.over);
  if (const auto v = rule.over_key.empty() ? std::nullopt : view.stated_value(rule.over_key)) {
    const std::string* over =
        v->value.is_string() ? rule.over_of.find(v->value.as_string()) : nullptr;
    if (over)
      out.over = named<NormSpan>(*over);
    else
      view.wrong_type({"{} names no norm of {class}, got {}", rule.over_key, v->value}, *v,
                      "write one of the names that the class knows");
  }
  if (!rule.weights.empty()) out.weights = named<NormWeights>(rule.weights);
  out.after_rotation = rule.after;
  out.keys_only = rule.keys_only;
  out.plus_one = rule.plus_one;
  out.eps_key = rule.eps;
  out.note = rule.note;
  if (rule.eps_default.is_number()) out.eps = rule.eps_default.as_number();
  if (const auto v = rule.eps.empty() ? std::nullopt : view.stated_value(rule.eps))
    out.eps = number_of(v->value);
  if (const auto v = rule.threshold.empty() ? std::nullopt : view.value_or_none(rule.threshold)) {
    out.threshold = number_of(v->value).value_or(0);
    if (!(out.threshold > 0)) (void)view.must_be(rule.threshold, "a positive number", *v);
  }
  return out;
}

// What must_honour says of it.
FieldValue convolution_of(const ConvolutionRules& rule, const Sourced<Index>& tokens,
                          const LayerSpec& layer) {
  const bool more = !rule.tokens_weigh_in.empty() && layer.attention.kind == AttentionKind::full;
  const Index terms = (more ? 2 : 1) * tokens.value + 1;
  const std::string modules = "layers." + std::to_string(layer.index) + ".self_attn.";
  Json value = Json::object({{"of", "k and v"},
                             {"tokens", tokens.value},
                             {"divisor", rule.averaged ? std::sqrt(static_cast<double>(terms)) : 1},
                             {"modules", Json::Array{modules + "k_sconv", modules + "v_sconv"}},
                             {"projection", more ? Json(rule.tokens_weigh_in) : Json(nullptr)}});
  return {"convolution", std::move(value), tokens.origin, tokens.where};
}

}  // namespace

void scale_and_cap(const ConfigView& view, std::vector<LayerSpec>& layers) {
  const ClassRules& rules = view.rules();
  const std::optional<Scale> scale = scale_of(view);
  const std::optional<Value> cap = cap_of(view);
  const std::optional<Sourced<Index>> convolved =
      rules.convolution ? view.integer(rules.convolution->key, 1, kUnbounded / 4) : std::nullopt;
  const bool by_layer =
      rules.scale && !rules.scale->by_layer.empty() && view.flag(rules.scale->by_layer, false);
  for (LayerSpec& layer : layers) {
    if (!layer.attention.attends()) continue;
    if (scale) {
      layer.scale = scale->value;
      if (by_layer) layer.scale->factor /= static_cast<double>(layer.index + 1);
      if (!scale->field.name.empty()) {
        layer.fields.push_back(scale->field);
        layer.fields.back().value = layer.scale->factor;
      }
    }
    if (cap) {
      layer.softcap = cap->value.as_number();
      layer.softcap_after_terms = rules.softcap_after_terms;
      layer.fields.push_back(field_of("softcap", *cap));
    }
    if (rules.sinks &&
        (!rules.sinks->sliding_only || layer.attention.kind == AttentionKind::sliding))
      fill((rules.sinks->by_query ? layer.query_sinks : layer.sinks) = rules.sinks->tensor,
           "{layer}", std::to_string(layer.index));
    if (convolved) layer.fields.push_back(convolution_of(*rules.convolution, *convolved, layer));
    if (rules.query_scale) {
      layer.query_scale = {rules.query_scale->tensor, number_or(rules.query_scale->factor, 1)};
      fill(layer.query_scale->tensor, "{layer}", std::to_string(layer.index));
    }
  }
}

void normalise_q_and_k(const ConfigView& view, std::vector<LayerSpec>& layers) {
  const std::optional<QkNormRules>& rule = view.rules().qk_norm;
  if (!rule || layers.empty()) return;
  Source from = source_of(view, *rule);
  const QkNorm norm = norm_of(view, *rule);
  for (LayerSpec& layer : layers) {
    if (!layer.attention.attends()) continue;
    const bool here = from.on && (!rule->rotated_only || layer.rotary);
    if (here) layer.qk_norm = norm;
    from.value.value = here ? enum_text(norm.kind) : "none";
    layer.fields.push_back(field_of("qk_norm", from.value));
  }
}

}  // namespace posenc::v0::hf
