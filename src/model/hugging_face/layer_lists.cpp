// SPDX-License-Identifier: Apache-2.0
// What kind of layer each one is, where a class states it in a list of its own.
#include "model/hugging_face/layer_rules.h"

namespace posenc::inline v0::hf {
namespace {

// The list, with an entry for each layer at least: further ones are read by nobody.
std::optional<Value> list_of(const ConfigView& view, const std::string& key, Index count) {
  const auto v = view.stated(key);
  if (v && v->value.is_array() && static_cast<Index>(v->value.as_array().size()) >= count) return v;
  const bool short_list = v && v->value.is_array();
  view.report().error(!v           ? "missing_key"
                      : short_list ? "layer_types_length"
                                   : "wrong_type",
                      key + " must have an entry for each of the " + std::to_string(count) +
                          " layers: " + view.class_name() + " fails without it" +
                          (short_list ? ", got " + std::to_string(v->value.as_array().size())
                           : v        ? ", got " + shown(v->value)
                                      : ""),
                      v ? v->where : view.where(key), "state the kind of every layer");
  return std::nullopt;
}

bool wrong(const ConfigView& view, const std::string& rule, const Json& got,
           const std::string& where) {
  view.report().error("wrong_type", rule + ", got " + shown(got), where,
                      "state the kind of every layer");
  return false;
}

// MiniMax-Text-01: a number for each layer.
bool coded(const ConfigView& view, const LayerRules& rule, const Json& code, LayerPlan& plan) {
  if (!code.is_number()) return wrong(view, rule.key + " must hold numbers", code, plan.where);
  const std::string* type = rule.codes.find(shown(code));
  plan.type = type ? *type : rule.other;
  return true;
}

// DeciLM: {"attention": {"no_op", "replace_with_linear", "window_length", ...}, ...} for each
// layer.
bool block(const ConfigView& view, const Json& block, LayerPlan& plan) {
  const Json* attention = block.is_object() ? block.find("attention") : nullptr;
  if (!attention || !attention->is_object())
    return wrong(view, "a block must have an object attention", block, plan.where);
  plan.where += "/attention";
  const auto is = [&](const char* key) {
    const Json* v = attention->find(key);
    return v && truthy(*v);
  };
  plan.type = is("no_op") || is("replace_with_linear") ? "mlp" : "full_attention";
  for (const char* key : {"window_length", "num_sink_tokens"})
    if (plan.type != "mlp" && is(key)) {
      view.report().error("layout_not_covered",
                          std::string(key) + " is " + shown(attention->at(key)) +
                              ": windows that keep the first tokens have no words here",
                          plan.where + "/" + key,
                          "state null to read it as attention without a window");
      return false;
    }
  return true;
}

}  // namespace

bool types_by_list(const ConfigView& view, const LayerRules& rule, Index count,
                   std::vector<LayerPlan>& plans) {
  const auto list = list_of(view, rule.key, count);
  if (!list) return false;
  const bool blocks = rule.rule == "blocks";
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    plans[i].origin = list->origin;
    plans[i].where = list->where + "/" + std::to_string(i);
    const Json& entry = list->value.as_array()[i];
    if (!(blocks ? block(view, entry, plans[i]) : coded(view, rule, entry, plans[i]))) return false;
  }
  return true;
}

}  // namespace posenc::v0::hf
