// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/layers.h"
#include "model/hugging_face/checks.h"
#include "model/hugging_face/key_cache.h"
#include "model/hugging_face/own_code.h"
#include "model/hugging_face/score/numbers.h"
#include "model/hugging_face/towers.h"
#include "model/hugging_face/variants.h"

#include <algorithm>
#include <set>

#include "model/hugging_face/layer_rules.h"
#include "model/hugging_face/rope_dictionary/rope_set.h"
#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::inline v0::hf {
namespace {

// Resolved once for each different dictionary and head.
struct Resolved {
  std::string key;
  RotaryDefinition definition;
  Encoding encoding;
  SharedRotary spec;
};

class LayerReader {
 public:
  LayerReader(const ConfigView& view, Index context)
      : view_(view), rules_(view.rules()), context_(context) {}

  PartLayers read() {
    PartLayers out;
    if (rules_.rope && rules_.rope->rule == "refused") {
      (void)standardise_rope(view_, {});
      return out;
    }
    const auto plans = plan_layers(view_);
    if (!plans) {  // the rest of the file is still looked at, so that all findings are listed
      const RopeSet set = standardise_rope(view_, {"full_attention", "sliding_attention"});
      for (const auto& part : set.parts)
        if (part.turns) (void)resolve_part(part, set.nested, part.label, nullptr);
      return out;
    }
    const RopeSet set = standardise_rope(view_, kinds(*plans));
    if (set.parts.empty() && any_turn(*plans)) return out;
    if (!layer_thetas(set, plans->size())) return out;
    if (any_turn(*plans)) find_scaled();
    std::vector<std::string> types;
    for (std::size_t i = 0; i < plans->size(); ++i) {
      auto layer = one(set, (*plans)[i], i);
      if (!layer) continue;
      types.push_back((*plans)[i].type);
      out.layers.push_back(std::move(*layer));
    }
    count_cached_keys(view_, types, out.layers);
    for (const auto& r : resolved_)
      if (!out.original_context) out.original_context = r.definition.original_context;
    return out;
  }

 private:
  static bool any_turn(const std::vector<LayerPlan>& plans) {
    return std::ranges::any_of(plans, &LayerPlan::turns);
  }
  static std::vector<std::string> kinds(const std::vector<LayerPlan>& plans) {
    std::vector<std::string> types;
    std::set<std::string_view> seen;
    for (const auto& p : plans)
      if (seen.insert(p.type).second) types.push_back(p.type);
    return types;
  }

  // Granite-SWA, Muse: one theta a layer, 0 = no rotary.
  bool layer_thetas(const RopeSet& set, std::size_t layers) {
    const std::string key = rules_.rope ? rules_.rope->theta_list : "";
    if (key.empty()) return true;
    if (const auto v = view_.stated_value(key)) {
      if (!v->value.is_array() || v->value.as_array().size() < layers)
        return view_.error("layer_types_length",
                           {"{} must have one theta a layer, got {}", key, v->value}, *v,
                           "one number a layer, 0 for none");
      for (std::size_t i = 0; i < layers; ++i)
        thetas_.push_back({v->value.as_array()[i], v->origin, v->where + "/" + std::to_string(i)});
    } else if (!set.parts.empty()) {
      const Value* theta = set.parts.front().dict.find("rope_theta");
      thetas_.assign(layers, theta ? *theta : Value{});
      if (!rules_.rope->theta_zero.empty())
        for (std::size_t i = layers; i > 0; i -= std::min<std::size_t>(i, 4))
          thetas_[i - 1] = view_.of_class<Json>(0);
    }
    return true;
  }

  // Molmo-2: layers that rope_scaling_layers does not name keep the theta without the scaling.
  void find_scaled() {
    const std::string key = rules_.rope ? rules_.rope->scaled_layers : "";
    const auto listed = key.empty() ? std::nullopt : view_.stated_value(key);
    if (!listed) return;
    if (!listed->value.is_array()) {
      view_.wrong_type({"{} must be a list of layers, got {}", key, listed->value}, *listed,
                       "state the layers that are scaled");
      return;
    }
    scaled_.emplace();
    scaled_where_ = listed->where;
    for (const Json& n : listed->value.as_array())
      if (n.is_integer()) scaled_->insert(n.as_integer());
  }

  std::optional<RopeSet::Part> unscaled(const RopeSet::Part& part, Index index) const {
    if (!scaled_ || scaled_->count(index) != 0) return std::nullopt;
    RopeSet::Part plain{"unscaled", true, {}, part.theta_beside};
    if (const Value* theta = part.dict.find("rope_theta")) plain.dict.set("rope_theta", *theta);
    plain.dict.set("rope_type", derived("default", "not in " + scaled_where_));
    return plain;
  }

  std::optional<LayerSpec> one(const RopeSet& set, const LayerPlan& plan, std::size_t index) {
    LayerSpec layer;
    layer.index = static_cast<Index>(index);
    layer.attention = plan.attention;
    layer.fields = plan.fields;
    const RopeSet::Part* part = plan.turns ? set.find(plan.type) : nullptr;
    if (plan.turns && !part)
      return view_.error("missing_key", {"rope_parameters has no entry for {}", plan.type},
                         view_.where("rope_parameters") + "/" + plan.type,
                         "state one, or null for no rotary");
    bool turns = part && part->turns;
    const auto plain = turns ? unscaled(*part, layer.index) : std::nullopt;
    if (plain) part = &*plain;
    const Value* theta = thetas_.empty() ? nullptr : &thetas_[index];
    if (theta && number_of(theta->value) == 0) turns = false;
    if (turns) {
      const Resolved* r = resolve_part(*part, set.nested, plan.type, theta);
      if (!r) return std::nullopt;
      layer.scheme = "rope";
      layer.encodings.push_back({{r->encoding, Origin::derived, r->definition.where}, {}});
      layer.rotary = r->spec;
      const auto& fields = r->definition.encoding.fields();
      layer.fields.insert(layer.fields.end(), fields.begin(), fields.end());
      value_and_output(layer);
    }
    if (!part && !set.parts.empty()) part = &set.parts.front();
    temperature(part ? &part->dict : nullptr, turns, layer);
    layer.fields.push_back({"scheme", layer.scheme, plan.origin, plan.where});
    complete_fields(layer);
    return layer;
  }

  void value_and_output(LayerSpec& layer) const {
    if (const std::string& key = rules_.rotates_value; !key.empty()) {
      const auto said = key == "true" ? std::nullopt : view_.value(key);
      layer.rotates_value = key == "true" || view_.flag(key, false);
      Value field = said.value_or(view_.of_class(Json()));
      field.value = layer.rotates_value;
      layer.fields.push_back(field_of("rotates_value", field));
    }
    layer.unrotates_output = rules_.unrotates_output;
  }

  const Resolved* resolve_part(const RopeSet::Part& part, bool nested, const std::string& type,
                               const Value* theta) {
    std::string key = part.label + "\n" + (rules_.head == "global" ? type : "");
    if (theta) key += "\n" + theta->value.dump();
    for (const auto& r : resolved_)
      if (r.key == key) return &r;
    Dict dict = part.dict;
    if (theta) dict.set("rope_theta", *theta);
    const auto head = head_of(view_, type);
    auto made = RotaryWriter(view_, dict, nested, part.theta_beside).write(head ? &*head : nullptr);
    if (!made) return nullptr;
    RotarySpec spec;
    auto encoding = made->encoding.finish(view_.report(), made->where, [&](const Encoding& e) {
      spec = resolve(e, Context{context_});
    });
    if (!encoding) return nullptr;
    spec.bfloat16_rounds_once = rules_.bfloat16_once;
    resolved_.push_back({key, std::move(*made), std::move(*encoding), std::move(spec)});
    return &resolved_.back();
  }

  // Llama-4-Maverick's own file has the number 4 here, which transformers 5.23 refuses.
  bool tempered() const {
    const auto on = view_.stated("attn_temperature_tuning");
    if (!on || !on->value.is_number()) return view_.flag("attn_temperature_tuning", true);
    view_.warn("wrong_type",
               {"attn_temperature_tuning must be true or false, got {}: read as Python does, true "
                "unless 0; transformers 5.23 refuses the file",
                on->value},
               *on, "write true");
    return truthy(on->value);
  }

  void temperature(const Dict* dict, bool turns, LayerSpec& layer) const {
    const std::string& rule = rules_.temperature;
    if (rule.empty() || layer.attention.kind == AttentionKind::none) return;
    if (rule == "log_n") return log_n(layer);
    QueryTemperature t;
    Value beta, period;
    if (rule == "llama4") {
      if (!tempered() || turns) return;
      beta = view_.value("attn_scale").value_or(Value{});
      period = view_.value("floor_scale").value_or(Value{});
      t.by = TemperatureIndex::order;
    } else {
      t.form = TemperatureForm::ministral;
      const Value* b = dict ? dict->find("llama_4_scaling_beta") : nullptr;
      const Value* l = dict ? dict->find("original_max_position_embeddings") : nullptr;
      if (b) beta = *b;
      if (l) period = *l;
    }
    const auto length = whole_number(period.value);
    if (!beta.value.is_number() || !length || *length < 1) {
      view_.error("missing_key",
                  {"the query temperature needs a factor and a length, got {} and {}", beta.value,
                   period.value},
                  beta.where.empty() ? view_.where("llama_4_scaling_beta") : beta.where,
                  "state llama_4_scaling_beta and original_max_position_embeddings (or attn_scale "
                  "and floor_scale)");
      return;
    }
    t.beta = beta.value.as_number();
    t.period = *length;
    give_temperature(view_, t, beta, period, layer);
  }

  // Qwen-1: query p of the row is multiplied by the logarithm of p + 1 to the base seq_length.
  void log_n(LayerSpec& layer) const {
    if (!view_.flag("use_logn_attn", true)) return;
    const auto length = view_.integer("seq_length", 2, kUnbounded / 4, true);
    if (!length) return;
    QueryTemperature t;
    t.form = TemperatureForm::log_n;
    t.by = TemperatureIndex::order;
    t.period = length->value;
    give_temperature(view_, t,
                     {0, Origin::class_default, view_.class_name() + ": log-n has no factor"},
                     {length->value, length->origin, length->where}, layer);
  }

  const ConfigView& view_;
  const ClassRules& rules_;
  Index context_;
  std::vector<Value> thetas_;
  std::optional<std::set<Index>> scaled_;
  std::string scaled_where_;
  std::vector<Resolved> resolved_;
};

// Rotary only if a key has a value (Falcon's alibi, ESM's position_embedding_type).
std::optional<std::string> instead_of_rotary(const ConfigView& view) {
  const std::optional<RotaryIf>& rule = view.rules().rotary_if;
  if (!rule) return std::nullopt;
  if (rule->equals.is_bool()) {
    const bool wanted = rule->equals.as_bool();
    return view.flag(rule->key, !wanted) == wanted ? std::nullopt : std::optional(rule->otherwise);
  }
  const auto v = view.value(rule->key);
  if (v && v->value == rule->equals) return std::nullopt;
  // a third value stands for nothing at all
  const bool other = rule->other_equals.empty() || (v && v->value == Json(rule->other_equals));
  return other ? rule->otherwise : std::string(kNoScheme);
}

PartLayers layers_of_part(const ConfigView& view, Index context) {
  PartLayers out;
  const ClassRules& rules = view.rules();
  if (rules.variants) {
    const auto own = variant_rules(view);
    return own ? read_layers(ConfigView(view, *own), context) : out;
  }
  if (refused_by_name(view)) return out;
  remote_code(view);
  if (rules.rotates() && !rules.vision.empty()) return read_vision(view);
  if (const auto other = rules.rotates() ? instead_of_rotary(view) : std::optional(rules.scheme)) {
    read_not_rotary(view, *other, out);
    return out;
  }
  if (!rules.not_a_rotation.empty())
    view.warn("not_a_rotation",
              {"{class} does not compute a rotation: {}. The definition below is the intended "
               "rotation, not these numbers",
               rules.not_a_rotation},
              view.where("model_type"), "use the program's own cos and sin to reproduce it");
  return LayerReader(view, context).read();
}

}  // namespace

void give_temperature(const ConfigView& view, const QueryTemperature& t, const Value& beta,
                      Value period, LayerSpec& layer) {
  layer.query_temperature = t;
  period.value = t.period;
  for (const auto& [name, value] : {std::pair{"form", view.of_class(Json(enum_text(t.form)))},
                                    {"by", view.of_class(Json(enum_text(t.by)))},
                                    {"beta", beta},
                                    {"period", period}})
    layer.fields.push_back(field_of(std::string("query_temperature.") + name, value));
}

PartLayers read_layers(const ConfigView& view, Index context) {
  if (const auto v = view.rules().is_causal == "fails" ? view.stated("is_causal") : std::nullopt)
    view.wrong_type("{class} fails on the first token if the file states is_causal", *v,
                    "remove the key");
  PartLayers out = layers_of_part(view, context);
  if (!view.rules().variants) {  // else done with the rules of the variant
    normalise_q_and_k(view, out.layers);
    scale_and_cap(view, out.layers);
  }
  implausible_sizes(view);
  return out;
}

}  // namespace posenc::v0::hf
