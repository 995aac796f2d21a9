// SPDX-License-Identifier: Apache-2.0
// How many layers there are; what kind each one is, and which have rotary, where a list of the file
// says it.
#include "model/hugging_face/layer_rules.h"
#include "posenc/registry/fields.h"

namespace posenc::inline v0::hf {
namespace {

using Count = std::optional<Sourced<Index>>;

// LongCat-Flash has two attentions in each of num_layers; num_hidden_layers sets half of itself.
Count doubled(const ConfigView& view, const LayerCountRules& rule) {
  const auto own = view.stated(rule.key);
  if (const auto total = view.stated_value("num_hidden_layers")) {
    auto n = view.integer("num_hidden_layers", 0, kMostLayers, true);
    if (!n) return std::nullopt;
    if (own && whole_number(own->value) != std::optional<Index>(n->value / 2))
      view.warn("both_spellings",
                {"{} is {} and num_hidden_layers {}: num_hidden_layers counts, halved", rule.key,
                 own->value, total->value},
                *own);
    n->value -= n->value % 2;
    return n;
  }
  if (!own) return view.of_class<Index>(2 * rule.held.as_integer());
  auto n = view.integer(rule.key, 0, kMostLayers / 2, true);
  if (n) n->value *= 2, n->where += " * 2";
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
  const auto stages = static_cast<Index>(v->value.as_array().size());
  if (rule.shrinking && stages > *rule.shrinking + 1)
    return view.wrong_type({"{} must have at most {} stages: {class} knows no more, got {}",
                            rule.sum, *rule.shrinking + 1, stages},
                           *v);
  const Index more = std::min(rule.shrinking.value_or(0), stages);
  return counted(sum + more, "the sum of " + v->where +
                                 (more > 0 ? " and a layer more of all stages but the last" : ""));
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

constexpr const char* kEveryKind = "state the kind of every layer";

// A list may be longer by the layers of multi-token prediction, which are not layers of the model.
bool fits(const ConfigView& view, Index size, Index count) {
  if (size == count) return true;
  const std::string& padded = view.rules().types_padded;
  if (padded.empty() || size < count) return false;
  if (padded == "true") return true;  // cut at the count
  const auto more = view.integer(padded, 0, kMostLayers);
  return more && size == count + more->value;
}

// DeepSeek-V4's compress_ratios: a number a layer that names its type.
bool coded_types(const ConfigView& view, Index count, std::vector<LayerPlan>& plans) {
  const auto& lists = view.rules().types_from.pairs;
  const auto v = lists.empty() ? std::nullopt : view.stated_value(lists.front().first);
  if (!v) return false;
  const NameMap& types = lists.front().second;
  if (!v->value.is_array()) {
    view.wrong_type({"{} must be a list of numbers, got {}", lists.front().first, v->value}, *v,
                    "one number a layer");
  } else if (static_cast<Index>(v->value.as_array().size()) < count) {
    wrong_length(view, lists.front().first, *v, count);
  } else {
    by_entries(*v, plans, [&](const Json& code, auto& where) -> std::optional<std::string> {
      const std::string* type = code.is_integer() ? types.find(code.dump()) : nullptr;
      if (type) return *type;
      return view.wrong_type({"no layer type has the code {}", code}, where,
                             "codes are those of the class: 0, 4 or 128");
    });
  }
  return true;
}

// DeciLM: {"attention": {"no_op", "replace_with_linear", "window_length", ...}, ...} for each layer.
std::optional<std::string> type_of_block(const ConfigView& view, const Json& block,
                                         std::string& where) {
  const Json* attention = block.find("attention");
  if (!attention || !attention->is_object())
    return view.wrong_type({"a block must have an object attention, got {}", block}, where,
                           kEveryKind);
  where += "/attention";
  const auto is = [&](const char* key) {
    const Json* v = attention->find(key);
    return v && truthy(*v);
  };
  if (is("no_op") || is("replace_with_linear")) return "mlp";
  for (const char* key : {"window_length", "num_sink_tokens"})
    if (is(key))
      return view.error("layout_not_covered",
                        {"{} is {}: windows that keep the first tokens have no words here", key,
                         attention->at(key)},
                        where + "/" + key, "state null to read it as attention without a window");
  return "full_attention";
}

// Which entries of no_rope_layers are not 0; none after a finding.
std::optional<std::vector<bool>> stated_flags(const ConfigView& view, const Value& v, Index count) {
  if (!v.value.is_array())
    return view.wrong_type(
        {"no_rope_layers must be a list or null, got {}: {class} refuses the file", v.value}, v,
        "1 = this layer has rotary, 0 = it has none");
  if (static_cast<Index>(v.value.as_array().size()) < count)
    return view.error(
        "layer_types_length",
        {"no_rope_layers must have an entry for each of the {} layers, got {}", count, v.value}, v,
        "1 = this layer has rotary, 0 = it has none");
  std::vector<bool> flags;
  Index with = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const Json& one = v.value.as_array()[i];
    if (!one.is_integer())
      return view.wrong_type(
          {"no_rope_layers must hold 1 and 0, got {}: {class} refuses the file", one},
          v.where + "/" + std::to_string(i), "1 = this layer has rotary");
    flags.push_back(one.as_integer() != 0);
    with += flags.back();
  }
  const bool few = 2 * with < count;
  view.report().add(few ? Severity::warning : Severity::note, "nope_polarity",
                    few ? message("no_rope_layers gives rotary to {} of {} layers. The name is "
                                  "inverted: 1 means with rotary, 0 without",
                                  with, count)
                        : "in no_rope_layers, 1 means with rotary, 0 without; some ports read it "
                          "the other way round",
                    v.where,
                    few ? "swap 0 and 1 if most layers should have rotary"
                        : "nothing to do here; check that a port reads it so",
                    with);
  return flags;
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

Refused wrong_length(const ConfigView& view, const std::string& name, const Value& list,
                     Index count) {
  const std::size_t size = list.value.as_array().size();
  return view.error("layer_types_length", {"{} has {} entries for {} layers", name, size, count},
                    list, "", static_cast<double>(size));
}

Refused unknown_word(const ConfigView& view, const Json& word,
                     const std::vector<std::string_view>& words, const std::string& where) {
  const std::string_view meant =
      word.is_string() ? nearest_word(word.as_string(), words) : std::string_view();
  const std::string name = ConfigView::name_in_file({word, Origin::stated, where}, "");
  return view.wrong_type(
      {"{} holds {}, which is none of its words: {class} refuses the file", name, word}, where,
      {"{}There are: {}", meant.empty() ? "" : message("did you mean {}? ", meant), listed(words)});
}

std::optional<std::string> layer_type(const ConfigView& view, const Json& word,
                                      const std::string& where) {
  const std::vector<std::string_view> known = table_words("layer_types");
  const Json* renamed =
      word.is_string() ? table_member("old_layer_types").find(word.as_string()) : nullptr;
  const std::string type = renamed            ? renamed->as_string()
                           : word.is_string() ? word.as_string()
                                              : std::string();
  std::vector<std::string_view> words(view.rules().type_words.begin(),
                                      view.rules().type_words.end());
  if (words.empty()) words = known;
  if (contains(words, type)) return type;
  if (!contains(known, type)) return unknown_word(view, word, words, where);
  return view.wrong_type(
      {"{} holds {}, and {class} has no such layer: transformers fails on the first token",
       ConfigView::name_in_file({word, Origin::stated, where}, ""), word},
      where, {"There are: {}", listed(words)});
}

bool stated_types(const ConfigView& view, Index count, std::vector<LayerPlan>& plans) {
  const auto v = view.stated("layer_types");
  if (v && contains(view.rules().computed, "layer_types")) {
    view.wrong_type(
        {"{} computes its layer types, and transformers fails on a file that states them",
         view.class_name()},
        *v, "remove the key");
    return true;
  }
  if (!v || v->value.is_null()) return coded_types(view, count, plans);
  if (!view.rules().typed) {
    view.warn("key_ignored", "layer_types is not read by {class}", *v,
              "use the class that has layer types");
    return false;
  }
  if (!v->value.is_array())
    view.must_be("layer_types", "a list", *v, "one name a layer");
  else if (!fits(view, static_cast<Index>(v->value.as_array().size()), count))
    wrong_length(view, last_word(v->where), *v, count);
  else
    by_entries(*v, plans,
               [&](const Json& word, auto& where) { return layer_type(view, word, where); });
  return true;
}

bool types_by_list(const ConfigView& view, const LayerRules& rule, std::vector<LayerPlan>& plans) {
  const auto v = view.stated(rule.key);
  const bool list = v && v->value.is_array();
  const std::size_t size = list ? v->value.as_array().size() : 0;
  if (!list || size < plans.size())
    return view.error(
        !v     ? "missing_key"
        : list ? "layer_types_length"
               : "wrong_type",
        {"{} must have an entry for each of the {} layers: {class} fails without it{}", rule.key,
         plans.size(),
         list ? ", got " + std::to_string(size)
         : v  ? ", got " + shown(v->value)
              : ""},
        view.place(v, rule.key), kEveryKind);
  return by_entries(*v, plans, [&](const Json& one, auto& where) -> std::optional<std::string> {
    if (rule.rule == "blocks") return type_of_block(view, one, where);
    if (!one.is_number())  // MiniMax-Text-01: a number for each layer
      return view.wrong_type({"{} must hold numbers, got {}", rule.key, one}, where, kEveryKind);
    const std::string* type = rule.names.find(shown(one));
    return type ? *type : rule.other;
  });
}

std::optional<std::vector<bool>> rope_flags(const ConfigView& view, Index count) {
  const auto v = view.stated_value("no_rope_layers");
  const bool none = v && v->value == Json::array() && view.rules().layers->empty_is_none;
  if (v && !none) return stated_flags(view, *v, count);
  const auto interval = view.integer("no_rope_layer_interval", 1, kMostLayers);
  std::vector<bool> flags;
  for (Index i = 1; i <= count; ++i) flags.push_back(i % (interval ? interval->value : 4) != 0);
  return flags;
}

}  // namespace posenc::v0::hf
