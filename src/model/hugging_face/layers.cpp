// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/layers.h"

#include <algorithm>

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
  LayerReader(const ConfigView& view, Index context) : view_(view), context_(context) {}

  PartLayers read() {
    PartLayers out;
    std::vector<std::string> layer_types;
    if (const Json* rule = view_.entry().find("rope");
        rule && rule->at("rule") == Json("refused")) {
      (void)standardise_rope(view_, {});
      return out;
    }
    auto plans = plan_layers(view_);
    if (!plans) {  // the rest of the file is still looked at, so that all findings are listed
      const RopeSet set = standardise_rope(view_, {"full_attention", "sliding_attention"});
      for (const auto& part : set.parts)
        if (part.turns) (void)resolve_part(part, set.nested, part.label, nullptr);
      return out;
    }
    const auto types = kinds(*plans);
    const RopeSet set = standardise_rope(view_, types);
    if (set.parts.empty() && any_turn(*plans)) return out;
    if (!layer_thetas(set, *plans)) return out;
    for (std::size_t i = 0; i < plans->size(); ++i) {
      LayerSpec layer;
      layer.index = static_cast<Index>(i);
      if (!one(set, (*plans)[i], i, layer)) continue;
      layer_types.push_back((*plans)[i].type);
      out.layers.push_back(std::move(layer));
    }
    count_cached_keys(view_, layer_types, out.layers);
    for (const auto& r : resolved_)
      if (r.definition.original_context && !out.original_context)
        out.original_context = r.definition.original_context;
    return out;
  }

 private:
  static bool any_turn(const std::vector<LayerPlan>& plans) {
    return std::any_of(plans.begin(), plans.end(), [](const LayerPlan& p) { return p.turns; });
  }
  static std::vector<std::string> kinds(const std::vector<LayerPlan>& plans) {
    std::vector<std::string> types;
    for (const auto& p : plans)
      if (std::find(types.begin(), types.end(), p.type) == types.end()) types.push_back(p.type);
    return types;
  }

  // Granite-SWA, Muse: one theta a layer, 0 = no rotary.
  bool layer_thetas(const RopeSet& set, const std::vector<LayerPlan>& plans) {
    const Json* rule = view_.entry().find("rope");
    const Json* key = rule ? rule->find("theta_list") : nullptr;
    if (!key) return true;
    const auto v = view_.stated(key->as_string());
    if (v && !v->value.is_null()) {
      if (!v->value.is_array() || v->value.as_array().size() < plans.size()) {
        view_.report().error(
            "layer_types_length",
            key->as_string() + " must have one theta a layer, got " + shown(v->value), v->where,
            "one number a layer, 0 for none");
        return false;
      }
      for (std::size_t i = 0; i < plans.size(); ++i)
        thetas_.push_back({v->value.as_array()[i], v->origin, v->where + "/" + std::to_string(i)});
    } else if (!set.parts.empty()) {
      const Value* theta = set.parts.front().dict.find("rope_theta");
      const bool some_zero = rule->find("theta_zero") != nullptr;
      for (std::size_t i = 0; i < plans.size(); ++i)
        thetas_.push_back(some_zero && (plans.size() - 1 - i) % 4 == 0
                              ? Value{0, Origin::class_default, view_.class_name()}
                          : theta ? *theta
                                  : Value{});
    }
    return true;
  }

  // Molmo-2: layers that rope_scaling_layers does not name keep the theta without the scaling.
  std::optional<RopeSet::Part> unscaled(const RopeSet::Part& part, std::size_t index) const {
    const Json* rule = view_.entry().find("rope");
    const Json* key = rule ? rule->find("scaled_layers") : nullptr;
    const auto listed = key ? view_.stated(key->as_string()) : std::nullopt;
    if (!listed || listed->value.is_null()) return std::nullopt;
    if (!listed->value.is_array()) {
      view_.report().error("wrong_type", "must be a list of layers, got " + shown(listed->value),
                           listed->where, "state the layers that are scaled");
      return std::nullopt;
    }
    for (const Json& n : listed->value.as_array())
      if (n == Json(static_cast<std::int64_t>(index))) return std::nullopt;
    RopeSet::Part plain{"unscaled", true, {}, part.theta_beside};
    if (const Value* theta = part.dict.find("rope_theta")) plain.dict.set("rope_theta", *theta);
    plain.dict.set("rope_type", {"default", Origin::derived, "not in " + listed->where});
    return plain;
  }

  bool one(const RopeSet& set, LayerPlan& plan, std::size_t index, LayerSpec& layer) {
    layer.attention = plan.attention;
    layer.fields = plan.fields;
    bool turns = plan.turns;
    const RopeSet::Part* part = turns ? set.find(plan.type) : nullptr;
    if (turns && !part) {
      view_.report().error("missing_key", "rope_parameters has no entry for " + plan.type,
                           view_.where("rope_parameters") + "/" + plan.type,
                           "state one, or null for no rotary");
      return false;
    }
    if (part && !part->turns) turns = false;
    std::optional<RopeSet::Part> plain;
    if (part && turns && (plain = unscaled(*part, index))) part = &*plain;
    const Value* theta = thetas_.empty() ? nullptr : &thetas_[index];
    if (theta && theta->value.is_number() && theta->value.as_number() == 0) turns = false;
    if (turns) {
      const Resolved* r = resolve_part(*part, set.nested, plan.type, theta);
      if (!r) return false;
      layer.scheme = "rope";
      layer.encodings.push_back({r->encoding, Origin::derived, r->definition.where});
      layer.rotary = r->spec;
      const auto& fields = r->definition.encoding.fields();
      layer.fields.insert(layer.fields.end(), fields.begin(), fields.end());
      value_and_output(layer);
    }
    temperature(part                ? &part->dict
                : set.parts.empty() ? nullptr
                                    : &set.parts.front().dict,
                turns, layer);
    layer.fields.push_back({"scheme", layer.scheme, plan.origin, plan.where});
    complete_fields(layer);
    return true;
  }

  void value_and_output(LayerSpec& layer) const {
    const Json& entry = view_.entry();
    if (const Json* v = entry.find("rotates_value")) {
      const auto said = v->is_bool() ? std::nullopt : view_.value(v->as_string());
      layer.rotates_value = v->is_bool() ? v->as_bool() : view_.flag(v->as_string(), false);
      layer.fields.push_back({"rotates_value", layer.rotates_value,
                              said ? said->origin : Origin::class_default,
                              said ? said->where : view_.class_name()});
    }
    layer.unrotates_output = entry.find("unrotates_output") != nullptr;
  }

  const Resolved* resolve_part(const RopeSet::Part& part, bool nested, const std::string& type,
                               const Value* theta) {
    const bool by_type =
        view_.entry().find("head") && view_.entry().at("head").as_string() == "global";
    std::string key = part.label + "\n" + (by_type ? type : "");
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
    spec.bfloat16_rounds_once = view_.entry().find("bfloat16_once") != nullptr;
    resolved_.push_back({key, std::move(*made), std::move(*encoding), std::move(spec)});
    return &resolved_.back();
  }
  // Llama-4-Maverick's own file has the number 4 here, which transformers 5.23 refuses.
  bool tempered() const {
    const auto on = view_.stated("attn_temperature_tuning");
    if (!on || !on->value.is_number()) return view_.flag("attn_temperature_tuning", true);
    view_.report().warn("wrong_type",
                        "attn_temperature_tuning must be true or false, got " + shown(on->value) +
                            ": read as Python does, true unless 0; transformers 5.23 refuses the "
                            "file",
                        on->where, "write true");
    return truthy(on->value);
  }

  void temperature(const Dict* dict, bool turns, LayerSpec& layer) {
    const Json* rule = view_.entry().find("temperature");
    if (!rule || layer.attention.kind == AttentionKind::none) return;
    QueryTemperature t;
    Value beta, period;
    if (rule->as_string() == "log_n") return log_n(layer);
    if (rule->as_string() == "llama4") {
      if (!tempered() || turns) return;
      beta = view_.value("attn_scale").value_or(Value{});
      period = view_.value("floor_scale").value_or(Value{});
    } else {
      t.form = TemperatureForm::ministral;
      const Value* b = dict ? dict->find("llama_4_scaling_beta") : nullptr;
      const Value* l = dict ? dict->find("original_max_position_embeddings") : nullptr;
      if (b) beta = *b;
      if (l) period = *l;
    }
    const auto length = whole_number(period.value);
    if (!beta.value.is_number() || !length || *length < 1) {
      view_.report().error("missing_key",
                           "the query temperature needs a factor and a length, got " +
                               shown(beta.value) + " and " + shown(period.value),
                           beta.where.empty() ? view_.where("llama_4_scaling_beta") : beta.where,
                           "state llama_4_scaling_beta and original_max_position_embeddings (or "
                           "attn_scale and floor_scale)");
      return;
    }
    t.beta = beta.value.as_number();
    t.period = *length;
    give(t, beta, period, layer);
  }

  // Qwen-1: a query at position p is multiplied by the logarithm of p + 1 to the base seq_length.
  void log_n(LayerSpec& layer) const {
    if (!view_.flag("use_logn_attn", true)) return;
    const auto length = view_.integer("seq_length", 2, kUnbounded / 4, true);
    if (!length) return;
    QueryTemperature t;
    t.form = TemperatureForm::log_n;
    t.period = length->value;
    give(t, {0, Origin::class_default, view_.class_name() + ": log-n has no factor"},
         {length->value, length->origin, length->where}, layer);
  }

  void give(const QueryTemperature& t, const Value& beta, const Value& period,
            LayerSpec& layer) const {
    layer.query_temperature = t;
    layer.fields.push_back({"query_temperature.form", std::string(enum_text(t.form)),
                            Origin::class_default, view_.class_name()});
    layer.fields.push_back({"query_temperature.beta", beta.value, beta.origin, beta.where});
    layer.fields.push_back({"query_temperature.period", t.period, period.origin, period.where});
  }

  const ConfigView& view_;
  Index context_;
  std::vector<Value> thetas_;
  std::vector<Resolved> resolved_;
};

// Rotary only if a key has a value (Falcon's alibi, ESM's position_embedding_type).
std::optional<std::string> instead_of_rotary(const ConfigView& view) {
  const Json* rule = view.entry().find("rotary_if");
  if (!rule) return std::nullopt;
  const std::string key = rule->at("key").as_string();
  const Json& wanted = rule->at("equals");
  if (wanted.is_bool()) {
    if (view.flag(key, !wanted.as_bool()) == wanted.as_bool()) return std::nullopt;
    return rule->at("otherwise").as_string();
  }
  const auto v = view.value(key);
  if (v && v->value == wanted) return std::nullopt;
  // a third value stands for nothing at all
  const Json* other = rule->find("other_equals");
  if (other && !(v && v->value == *other)) return "none";
  return rule->at("otherwise").as_string();
}

}  // namespace

void remote_code(const ConfigView& view) {
  const Json* code = view.entry().find("remote");
  if (!code) return;
  view.report().note("remote_code",
                     view.class_name() +
                         " is no class of transformers but of the model's own repository "
                         "(auto_map); meant is " +
                         code->as_string(),
                     view.where("model_type"),
                     "compare it with the code beside the weights, if that was changed");
  if (const Json* note = view.entry().find("remote_note"))
    view.report().note("encoding_not_covered", note->as_string(), view.where("model_type"));
}

PartLayers read_layers(const ConfigView& view, Index context) {
  PartLayers out;
  if (view.entry().find("variants")) {
    const auto entry = variant_entry(view);
    return entry ? read_layers(ConfigView(view, *entry), context) : out;
  }
  if (refused_by_name(view)) return out;
  remote_code(view);
  const std::string scheme = view.entry().at("scheme").as_string();
  if (scheme != "rope") {
    read_not_rotary(view, scheme, out);
    return out;
  }
  if (view.entry().find("vision")) return read_vision(view);
  if (const auto other = instead_of_rotary(view)) {
    read_not_rotary(view, *other, out);
    return out;
  }
  if (const Json* why = view.entry().find("not_a_rotation"))
    view.report().warn(
        "not_a_rotation",
        "what " + view.class_name() + " computes is no rotation: " + why->as_string() +
            ". The definition below is the rotation that is "
            "meant, not those numbers",
        view.where("model_type"), "use the program's own cos and sin to reproduce it");
  return LayerReader(view, context).read();
}

}  // namespace posenc::v0::hf
