// SPDX-License-Identifier: Apache-2.0
// How many layers a model has, and which types its file states.
#include "model/hugging_face/layer_rules.h"

namespace posenc::inline v0::hf {
namespace {

// transformers 5.23 renames old layer types on loading.
std::string renamed(const std::string& type) {
  if (type == "mamba") return "linear_attention";
  if (type == "attention") return "full_attention";
  if (type == "deepseek_sparse_attention" || type == "qwen_sparse_attention")
    return "indexed_attention";
  return type;
}

// LongCat-Flash has two attentions in each of num_layers; num_hidden_layers sets half of itself.
std::optional<Sourced<Index>> doubled(const ConfigView& view, const LayerCountRules& rule) {
  const std::string& key = rule.key;
  const Index times = rule.times.value_or(1);
  const auto total = view.stated("num_hidden_layers");
  if (total && !total->value.is_null()) {
    auto n = view.integer("num_hidden_layers", 0, kMostLayers, true);
    if (!n) return std::nullopt;
    if (const auto own = view.stated(key);
        own && whole_number(own->value) != std::optional<Index>(n->value / times))
      view.report().warn("both_spellings",
                         key + " is " + shown(own->value) + " and num_hidden_layers " +
                             shown(total->value) + ": num_hidden_layers counts, halved",
                         own->where);
    n->value = times * (n->value / times);
    return n;
  }
  if (!view.stated(key))
    return Sourced<Index>{times * rule.held.as_integer(), Origin::class_default, view.class_name()};
  auto n = view.integer(key, 0, kMostLayers / times, true);
  if (n) n->value *= times, n->where += " * " + std::to_string(times);
  return n;
}

// HRM: the same two stacks run H_cycles * (L_cycles + 1) times, each run with keys of its own.
// A file without num_layers_per_stack states the layers of one stack.
std::optional<Sourced<Index>> cycles(const ConfigView& view) {
  auto n = view.integer("num_hidden_layers", 0, kMostLayers, true);
  const auto stack = view.value("num_layers_per_stack");
  if (!n || (stack && !stack->value.is_null())) return n;
  const auto high = view.integer("H_cycles", 0, 1000, true);
  const auto low = view.integer("L_cycles", 0, 1000, true);
  if (!high || !low) return std::nullopt;
  n->value *= high->value * (low->value + 1);
  n->where += " * H_cycles * (L_cycles + 1)";
  if (n->origin != Origin::user) n->origin = Origin::derived;
  if (n->value <= kMostLayers) return n;
  view.report().error("wrong_type", "more than 10000 layers", n->where, "state the model's sizes");
  return std::nullopt;
}

// Swin: layers by stage.
std::optional<Sourced<Index>> summed(const ConfigView& view, const LayerCountRules& rule) {
  const std::string& key = rule.sum;
  auto v = view.stated(key);
  if (!rule.held.is_null() && !v) v = Value{rule.held, Origin::class_default, view.class_name()};
  if (!v || !v->value.is_array()) {
    view.report().error(
        v ? "wrong_type" : "missing_key",
        key + " must be a list of the layers of each stage" + (v ? ", got " + shown(v->value) : ""),
        v ? v->where : view.where(key), "state " + key);
    return std::nullopt;
  }
  Index sum = 0;
  for (const Json& n : v->value.as_array()) {
    if (!n.is_integer() || n.as_integer() < 0 || (sum += n.as_integer()) > kMostLayers) {
      view.report().error("wrong_type", key + " must hold counts of layers, got " + shown(n),
                          v->where, "state " + key);
      return std::nullopt;
    }
  }
  return Sourced<Index>{sum, Origin::derived, "the sum of " + v->where};
}

// Stacks that the file counts one by one.
std::optional<Sourced<Index>> stacks(const ConfigView& view, const std::vector<std::string>& keys) {
  Sourced<Index> all{0, Origin::derived, ""};
  for (const std::string& key : keys) {
    const auto n = view.integer(key, 0, kMostLayers, true);
    if (!n) return std::nullopt;
    all.value += n->value;
    all.where += (all.where.empty() ? "" : " + ") + n->where;
  }
  return all;
}

void wrong_length(const ConfigView& view, const Value& v, std::size_t got, Index count) {
  view.report().error("layer_types_length",
                      v.where.substr(v.where.rfind('/') + 1) + " has " + std::to_string(got) +
                          " entries for " + std::to_string(count) + " layers",
                      v.where, static_cast<double>(got));
}

// DeepSeek-V4's compress_ratios: a number a layer that names its type.
bool coded_types(const ConfigView& view, Index count, std::vector<LayerPlan>& plans) {
  const std::optional<CodedTypes>& rule = view.rules().types_from;
  const auto v = rule ? view.stated(rule->key) : std::nullopt;
  if (!v || v->value.is_null()) return false;
  if (!v->value.is_array()) {
    view.report().error("wrong_type", "must be a list, got " + shown(v->value), v->where,
                        "one number a layer");
    return true;
  }
  const auto& list = v->value.as_array();
  if (static_cast<Index>(list.size()) < count) {
    wrong_length(view, *v, list.size(), count);
    return true;
  }
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const std::string place = v->where + "/" + std::to_string(i);
    const std::string* type = list[i].is_integer() ? rule->names.find(list[i].dump()) : nullptr;
    if (!type) {
      view.report().error("wrong_type", "no layer type has the code " + shown(list[i]), place,
                          "codes are those of the class: 0, 4 or 128");
      return true;
    }
    plans[i].type = *type;
    plans[i].origin = v->origin;
    plans[i].where = place;
  }
  return true;
}

// A list may be longer by the layers of multi-token prediction, which are not layers of the model.
bool fits(const ConfigView& view, const Json::Array& list, Index count) {
  const auto size = static_cast<Index>(list.size());
  if (size == count) return true;
  const std::string& padded = view.rules().types_padded;
  if (padded.empty() || size < count) return false;
  if (padded == "true") return true;  // cut at the count
  const auto more = view.integer(padded, 0, kMostLayers);
  return more && size == count + more->value;
}

}  // namespace

std::optional<Sourced<Index>> layer_count(const ConfigView& view) {
  const std::optional<LayerCountRules>& rule = view.rules().layer_count;
  if (!rule) return view.integer("num_hidden_layers", 0, kMostLayers, false);
  if (!rule->sum.empty()) return summed(view, *rule);
  if (!rule->keys.empty()) return stacks(view, rule->keys);
  if (rule->fixed) return Sourced<Index>{*rule->fixed, Origin::class_default, view.class_name()};
  return rule->cycles ? cycles(view) : doubled(view, *rule);
}

bool stated_types(const ConfigView& view, Index count, std::vector<LayerPlan>& plans) {
  const auto v = view.stated("layer_types");
  if (v && contains(view.rules().computed, "layer_types")) {
    view.report().error("wrong_type",
                        view.class_name() +
                            " computes its layer types, and transformers fails on a file that "
                            "states them",
                        v->where, "remove the key");
    return true;
  }
  if (!v || v->value.is_null()) return coded_types(view, count, plans);
  if (!view.rules().typed) {
    view.report().warn("key_ignored", "layer_types is not read by " + view.class_name(), v->where,
                       "use the class that has layer types");
    return false;
  }
  if (!v->value.is_array()) {
    view.report().wrong_type("layer_types", "a list", *v, "one name a layer");
    return true;
  }
  const auto& list = v->value.as_array();
  if (!fits(view, list, count)) {
    wrong_length(view, *v, list.size(), count);
    return true;
  }
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (!list[i].is_string()) {
      view.report().error("wrong_type", "layer_types must hold names, got " + shown(list[i]),
                          v->where + "/" + std::to_string(i), "one name a layer");
      return true;
    }
    plans[i].type = renamed(list[i].as_string());
    plans[i].origin = v->origin;
    plans[i].where = v->where + "/" + std::to_string(i);
  }
  return true;
}

std::optional<std::vector<bool>> rope_flags(const ConfigView& view, Index count) {
  std::vector<bool> flags(static_cast<std::size_t>(count));
  const auto v = view.stated("no_rope_layers");
  if (v && truthy(v->value)) {
    if (!v->value.is_array() || static_cast<Index>(v->value.as_array().size()) < count) {
      view.report().error("layer_types_length",
                          "no_rope_layers must have an entry for each of the " +
                              std::to_string(count) + " layers, got " + shown(v->value),
                          v->where, "1 = this layer has rotary, 0 = it has none");
      return std::nullopt;
    }
    Index with = 0;
    for (Index i = 0; i < count; ++i) {
      const Json& one = v->value.as_array()[static_cast<std::size_t>(i)];
      if (!one.is_integer()) {
        view.report().error("wrong_type",
                            "no_rope_layers must hold 1 and 0, got " + shown(one) + ": " +
                                view.class_name() + " refuses the file",
                            v->where + "/" + std::to_string(i), "1 = this layer has rotary");
        return std::nullopt;
      }
      flags[static_cast<std::size_t>(i)] = one.as_integer() != 0;
      with += flags[static_cast<std::size_t>(i)];
    }
    if (2 * with < count)
      view.report().warn("nope_polarity",
                         "no_rope_layers gives rotary to " + std::to_string(with) + " of " +
                             std::to_string(count) +
                             " layers. The name is inverted: 1 means with rotary, 0 without",
                         v->where, "swap 0 and 1 if most layers should have rotary",
                         static_cast<double>(with));
    else
      view.report().note("nope_polarity",
                         "in no_rope_layers 1 means with rotary, 0 without; ports have read it "
                         "the other way round",
                         v->where, "nothing to do here; check that a port reads it so",
                         static_cast<double>(with));
    return flags;
  }
  const auto interval = view.integer("no_rope_layer_interval", 1, kMostLayers);
  const Index n = interval ? interval->value : 4;
  for (Index i = 0; i < count; ++i) flags[static_cast<std::size_t>(i)] = (i + 1) % n != 0;
  return flags;
}

// dots3-note: full layers pick their keys by an index unless use_dsa is false.
void rename_types(const ConfigView& view, std::vector<LayerPlan>& plans) {
  if (!view.rules().indexed_full) return;
  const auto said = view.stated("use_dsa");
  if (!said && view.stated("per_layer_config")) return;
  const bool indexed = !said || truthy(said->value);
  for (LayerPlan& p : plans)
    if (p.type == (indexed ? "full_attention" : "indexed_attention"))
      p.type = indexed ? "indexed_attention" : "full_attention";
}

}  // namespace posenc::v0::hf
