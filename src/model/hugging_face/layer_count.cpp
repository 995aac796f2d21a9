// SPDX-License-Identifier: Apache-2.0
// How many layers a model has.
#include "model/hugging_face/layer_rules.h"

namespace posenc::inline v0::hf {
namespace {

using Count = std::optional<Sourced<Index>>;

// LongCat-Flash has two attentions in each of num_layers; num_hidden_layers sets half of itself.
Count doubled(const ConfigView& view, const LayerCountRules& rule) {
  const Index times = rule.times.value_or(1);
  const auto own = view.stated(rule.key);
  if (const auto total = view.stated_value("num_hidden_layers")) {
    auto n = view.integer("num_hidden_layers", 0, kMostLayers, true);
    if (!n) return std::nullopt;
    if (own && whole_number(own->value) != std::optional<Index>(n->value / times))
      view.warn("both_spellings",
                {"{} is {} and num_hidden_layers {}: num_hidden_layers counts, halved", rule.key,
                 own->value, total->value},
                *own);
    n->value = times * (n->value / times);
    return n;
  }
  if (!own) return view.of_class<Index>(times * rule.held.as_integer());
  auto n = view.integer(rule.key, 0, kMostLayers / times, true);
  if (n) n->value *= times, n->where += " * " + std::to_string(times);
  return n;
}

// HRM: the same two stacks run H_cycles * (L_cycles + 1) times, each run with keys of its own.
// A file without num_layers_per_stack states the layers of one stack.
Count cycles(const ConfigView& view) {
  auto n = view.integer("num_hidden_layers", 0, kMostLayers, true);
  if (!n || view.value_or_none("num_layers_per_stack")) return n;
  const auto high = view.integer("H_cycles", 0, 1000, true);
  const auto low = view.integer("L_cycles", 0, 1000, true);
  if (!high || !low) return std::nullopt;
  n->value *= high->value * (low->value + 1);
  n->where += " * H_cycles * (L_cycles + 1)";
  if (n->origin != Origin::user) n->origin = Origin::derived;
  if (n->value <= kMostLayers) return n;
  return view.wrong_type("more than 10000 layers", *n, "state the model's sizes");
}

// Swin: layers by stage.
Count summed(const ConfigView& view, const LayerCountRules& rule) {
  auto v = view.stated(rule.sum);
  if (!rule.held.is_null() && !v) v = view.of_class(rule.held);
  if (!v || !v->value.is_array())
    return view.error(v ? "wrong_type" : "missing_key",
                      {"{} must be a list of the layers of each stage{}", rule.sum,
                       v ? ", got " + shown(v->value) : ""},
                      view.place(v, rule.sum), {"state {}", rule.sum});
  Index sum = 0;
  for (const Json& n : v->value.as_array()) {
    if (!n.is_integer() || n.as_integer() < 0 || n.as_integer() > kMostLayers - sum)
      return view.wrong_type({"{} must hold counts of layers, got {}", rule.sum, n}, *v,
                             {"state {}", rule.sum});
    sum += n.as_integer();
  }
  return counted(sum, "the sum of " + v->where);
}

// Stacks that the file counts one by one.
Count stacks(const ConfigView& view, const std::vector<std::string>& keys) {
  Sourced<Index> all{0, Origin::derived, ""};
  for (const std::string& key : keys) {
    const auto n = view.integer(key, 0, kMostLayers, true);
    if (!n) return std::nullopt;
    all.value += n->value;
    all.where += (all.where.empty() ? "" : " + ") + n->where;
  }
  return all;
}

}  // namespace

std::optional<Sourced<Index>> layer_count(const ConfigView& view) {
  const std::optional<LayerCountRules>& rule = view.rules().layer_count;
  if (!rule) return view.integer("num_hidden_layers", 0, kMostLayers);
  if (!rule->sum.empty()) return summed(view, *rule);
  if (!rule->keys.empty()) return stacks(view, rule->keys);
  if (rule->fixed) return view.of_class(*rule->fixed);
  return rule->cycles ? cycles(view) : doubled(view, *rule);
}

}  // namespace posenc::v0::hf
