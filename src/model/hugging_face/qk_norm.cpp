// SPDX-License-Identifier: Apache-2.0
// The norm of q and k, by the class's rules and the file's keys.
#include <algorithm>

#include "model/hugging_face/layers.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::hf {
namespace {

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
    out.eps = v->value.is_number() ? std::optional(v->value.as_number()) : std::nullopt;
  return out;
}

}  // namespace

void normalise_q_and_k(const ConfigView& view, std::vector<LayerSpec>& layers) {
  const std::optional<QkNormRules>& rule = view.rules().qk_norm;
  if (!rule || layers.empty()) return;
  Source from = source_of(view, *rule);
  const QkNorm norm = norm_of(view, *rule);
  for (LayerSpec& layer : layers) {
    const AttentionKind kind = layer.attention.kind;
    if (kind == AttentionKind::linear || kind == AttentionKind::none) continue;
    const bool here = from.on && (!rule->rotated_only || layer.rotary);
    if (here) layer.qk_norm = norm;
    from.value.value = here ? enum_text(norm.kind) : "none";
    layer.fields.push_back(field_of("qk_norm", from.value));
  }
}

}  // namespace posenc::v0::hf
