// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>

#include "model/hugging_face/layer_rules.h"

namespace posenc::inline v0::hf {
namespace {

constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention";
constexpr const char *kLinear = "linear_attention", *kHybrid = "hybrid";
constexpr const char* kHybridSliding = "hybrid_sliding";

struct Rules {
  const ConfigView& view;
  const LayerRules& rule;
  std::vector<LayerPlan> plans;
  Index count = static_cast<Index>(plans.size());
  std::string why = view.class_name();
  Origin origin = Origin::derived;

  template <class TypeOf>
  bool fill(TypeOf type_of) {
    for (Index i = 0; i < count; ++i)
      plans[static_cast<std::size_t>(i)] = {type_of(i), origin, why};
    return true;
  }
  bool fill_hits(const std::function<bool(Index)>& hits) {
    return fill([&](Index i) { return hits(i) ? rule.hit : rule.other; });
  }
  bool slides() const { return view.value_or_none("sliding_window").has_value(); }

  bool every() {
    Index n = rule.n.value_or(1);
    why += ": every layer " + std::to_string(n);
    origin = Origin::class_default;
    if (const auto v = rule.key.empty() ? std::nullopt : view.stated(rule.key)) {
      if (v->value.is_null())
        return view.wrong_type({"{} is null, and {class} divides by it", rule.key}, *v,
                               "state a number, or remove the key");
      const auto stated = view.integer(rule.key, 1, kMostLayers);
      if (!stated) return false;
      n = stated->value;
      why = stated->where;
      origin = Origin::derived;
    }
    if (rule.zero_without_window)
      if (const auto w = view.stated("sliding_window"); w && w->value.is_null())
        return view.error(
            "missing_key",
            "sliding_window is null and there is no layer_types: {class} divides by zero", *w,
            "state layer_types");
    const std::optional<WindowRules>& window = view.rules().window;
    if (const std::string list = window ? window->listed : ""; !list.empty())
      if (const auto v = view.stated(list); v && v->value.is_array()) return by_windows(list, *v);
    return fill_hits([&](Index i) {
      const Index phase = rule.phase == "first"      ? i
                          : rule.phase == "from_end" ? count - 1 - i
                                                     : i + 1;
      if (i == 0 && (rule.also_first || rule.not_first)) return rule.also_first;
      return phase % n == 0 || (rule.one_at_least && count < n && i == count - 1);
    });
  }

  // UltraBERT's checkpoints: a window for each layer, 0 for none.
  bool by_windows(const std::string& key, const Value& v) {
    if (static_cast<Index>(v.value.as_array().size()) != count)
      return wrong_length(view, key, v, count);
    return by_entries(v, plans, [](const Json& window, const std::string&) {
      return std::optional<std::string>(truthy(window) ? kSliding : kFull);
    });
  }

  // qwen2: sliding from layer max_window_layers on; qwen2_moe: every other layer below it
  bool windows(bool from) {
    const std::optional<WindowRules>& about = view.rules().window;
    const bool used = !about || about->switch_key.empty() || view.flag("use_sliding_window", false);
    const bool sliding = slides() && used;
    const auto first = view.integer("max_window_layers", 0, kMostLayers);
    why += ": use_sliding_window, max_window_layers";
    return fill([&](Index i) {
      const bool here = !first || (from ? i >= first->value : i % 2 == 0 && i < first->value);
      return sliding && here ? kSliding : kFull;
    });
  }

  bool by_no_rope_layers(const std::vector<bool>& rope) {
    why += ": no_rope_layers";
    const bool sliding = slides() && view.flag("use_sliding_window", false);
    const std::string without = rule.other != "sliding_if_used" ? rule.other
                                : sliding                       ? kSliding
                                                                : kFull;
    return fill([&](Index i) { return rope[static_cast<std::size_t>(i)] ? rule.hit : without; });
  }

  bool period() {
    const auto n = view.integer("attn_layer_period", 1, kMostLayers, true);
    const auto offset = view.integer("attn_layer_offset", 0, kMostLayers, true);
    if (!n || !offset) return false;
    why = n->where;
    return fill_hits([&](Index i) { return i % n->value == offset->value; });
  }

  bool listed_numbers() {
    const auto v = view.value(rule.key);
    if (v) why = v->where;
    const bool none = !v || v->value.is_null();
    if (!none && !v->value.is_array())
      return view.must_be(rule.key, "a list", *v, "state a list of layer numbers");
    std::vector<bool> hits(plans.size(), none && rule.held.is_null() && rule.other == "conv");
    const Json& list = none ? rule.held : v->value;
    if (none && list.is_array()) origin = Origin::class_default, why = view.class_name();
    for (const Json& x : list.is_array() ? list.as_array() : Json::Array()) {
      const auto n = whole_number(x);
      const bool inside = n && *n >= 0 && *n < count;
      if (!inside && !(rule.always && x.is_integer()))
        return view.wrong_type({"{} must hold layer numbers below {}, got {}", rule.key, count, x},
                               *v, "state the layers of the model");
      if (inside) hits[static_cast<std::size_t>(*n)] = true;
    }
    return fill_hits([&](Index i) { return hits[static_cast<std::size_t>(i)]; });
  }

  bool letters() {
    const Value v = view.stated(rule.key).value_or(view.of_class(rule.held));
    if (!v.value.is_string())
      return view.must_be(rule.key, "letters that name layers", v, "state layers_block_type");
    if (v.origin == Origin::class_default) origin = v.origin;
    const std::string& pattern = v.value.as_string();
    count = static_cast<Index>(pattern.size());
    if (count > kMostLayers) return false;
    why = v.where;
    plans.assign(pattern.size(), {});
    for (const char letter : pattern)
      if (!rule.names.find({&letter, 1}))
        return view.wrong_type({"{} holds an unknown letter {}", rule.key, std::string(1, letter)},
                               v, "letters are those of nemotron_h: M, *, E, -");
    return fill([&](Index i) {
      return *rule.names.find({&pattern[static_cast<std::size_t>(i)], 1});
    });
  }

  const std::string* type_named(const Json& name) const {
    return name.is_string() ? rule.names.find(name.as_string()) : nullptr;
  }

  // GPT-Neo: [[["global", "local"], 12]], each list of names as often as its number says.
  bool repeated() {
    const auto v = view.stated_value(rule.key);
    const Json& list = v ? v->value : rule.held;
    if (v) why = v->where;
    const Json names(Json::Object(rule.names.pairs.begin(), rule.names.pairs.end()));
    const auto refuse_list = [&](const Json& got) {
      return view.wrong_type(
          {"{} must be a list of [[names], times] with the names {}, got {}", rule.key, names, got},
          why, "as GPT-Neo's own: [[[\"global\", \"local\"], 12]]");
    };
    if (!list.is_array()) return refuse_list(list);
    std::vector<std::string> types;
    for (const Json& part : list.as_array()) {
      const bool pair = part.is_array() && part.as_array().size() == 2 &&
                        part.as_array()[0].is_array() && !part.as_array()[0].as_array().empty();
      const auto times = pair ? whole_number(part.as_array()[1]) : std::nullopt;
      if (!times || *times < 0 || *times > kMostLayers) return refuse_list(part);
      for (Index n = 0; n < *times && static_cast<Index>(types.size()) <= count; ++n)
        for (const Json& name : part.as_array()[0].as_array()) {
          const std::string* type = type_named(name);
          if (!type) return refuse_list(name);
          types.push_back(*type);
        }
    }
    if (types.size() != plans.size())
      return view.error(
          "layer_types_length",
          {"{} must name each of the {} layers once: {class} refuses the file", rule.key, count},
          why, "make the times of its lists add up to the layers");
    if (!v) origin = Origin::class_default;
    return fill([&](Index i) { return types[static_cast<std::size_t>(i)]; });
  }

  bool cycle() {
    const auto v = view.stated(rule.key);
    const Json& list = v ? v->value : rule.held;
    if (v) why = v->where;
    const char* fix = "state the kinds of layers";
    if (!list.is_array() || list.as_array().empty())
      return view.wrong_type({"{} must be a list of names", rule.key}, why, fix);
    const std::size_t size = list.as_array().size();
    for (std::size_t i = 0; i < std::min(size, plans.size()); ++i)
      if (const Json& name = list.as_array()[i]; !type_named(name))
        return unknown_word(view, name, rule.names.names(), message("{}/{}", why, i));
    return fill(
        [&](Index i) { return *type_named(list.as_array()[static_cast<std::size_t>(i) % size]); });
  }

  bool zamba() {
    const auto period = view.integer("attn_layer_period", 1, kMostLayers);
    const auto offset = view.integer("attn_layer_offset", 0, kMostLayers);
    const Index n = period ? period->value : 1, first = offset ? offset->value : 0;
    return fill(
        [&](Index i) { return i == 2 || (i > 2 && (i - 3) % n == first) ? kHybrid : kLinear; });
  }

  // Hybrid layers: 5 after the first, then every 6th up to layer 47, then 51.
  bool zamba2() {
    if (count != 0 && count != 54)
      return view.error(
          "layer_types_length",
          {"without layers_block_type there are 54 layers, and num_hidden_layers says {}", count},
          view.where("num_hidden_layers"), "state layers_block_type", count);
    return fill([&](Index i) {
      return (i > 0 && i < 47 && i % 6 == 0) || i == 47 || i == 51 ? kHybrid : kLinear;
    });
  }

  // Layers of local_layer_ids, else all but every sixth.
  bool inkling() {
    const auto listed = view.stated_value("local_layer_ids");
    if (!listed) return fill([&](Index i) { return (i + 1) % 6 == 0 ? kHybrid : kHybridSliding; });
    if (!listed->value.is_array())
      return view.must_be("local_layer_ids", "a list or null", *listed,
                          "state the layers with a window by number, from 0");
    why = listed->where;
    origin = Origin::derived;
    return fill([&](Index i) {
      return contains(listed->value.as_array(), Json(i)) ? kHybridSliding : kHybrid;
    });
  }

  // Kimi-Linear's checkpoints number the layers of either kind from 1, else as `every` has it.
  bool kimi_linear() {
    const auto v = view.stated_value("linear_attn_config");
    const bool object = v && v->value.is_object();
    const Json* full = object ? v->value.find("full_attn_layers") : nullptr;
    const Json* linear = object ? v->value.find("kda_layers") : nullptr;
    if (!full || !linear) return every();
    why = v->where + "/full_attn_layers, kda_layers";
    origin = Origin::derived;
    std::vector<std::string> types(plans.size());
    for (const auto& [list, type] : {std::pair{full, kFull}, std::pair{linear, kLinear}})
      for (const Json& x : list->is_array() ? list->as_array() : Json::Array()) {
        const auto n = whole_number(x);
        if (!n || *n < 1 || *n > count)
          return view.wrong_type(
              {"linear_attn_config must hold layer numbers from 1 to {}, got {}", count, x}, *v,
              "state the layers of the model");
        types[static_cast<std::size_t>(*n - 1)] = type;
      }
    for (std::size_t i = 0; i < types.size(); ++i)
      if (types[i].empty())
        return view.error("layer_types_length",
                          {"full_attn_layers and kda_layers must name each of the {} layers, from "
                           "1; neither has {}",
                           count, i + 1},
                          *v, "state the layers of the model");
    return fill([&](Index i) { return types[static_cast<std::size_t>(i)]; });
  }

  bool of_class(const std::string& name) {
    origin = Origin::class_default;
    if (name == "kimi_linear") return kimi_linear();
    if (name == "inkling") return inkling();
    if (name == "zamba") return zamba();
    if (name == "zamba2") return zamba2();
    if (name == "flint")
      return fill(
          [&](Index i) { return i < 2 || i % 4 == 1 || i == count - 1 ? kFull : kSliding; });
    if (name == "lfm3")
      return fill([&](Index i) {
        return i % 4 == 2 ? kFull : i % 4 == 0 && i > 0 ? kSliding : "conv";
      });
    if (name == "deepseek_v4")
      return fill([&](Index i) {
        return i < 2 || i % 2 == 0 ? "heavily_compressed_attention" : "compressed_sparse_attention";
      });
    if (name == "dots3") {
      const bool used = view.flag("use_sliding_window", true);
      return fill([&](Index i) { return !used || i < 2 || i % 4 == 1 ? kFull : kSliding; });
    }
    const bool window = name == "sliding_if_window" && slides();
    const std::string type = window ? kSliding : rule.hit.empty() ? kFull : rule.hit;
    return fill([&](Index) { return type; });
  }

  bool apply(const std::optional<std::vector<bool>>& flags) {
    const std::string& name = rule.rule;
    if (name == "every") return every();
    if (name.starts_with("windows_")) return windows(name == "windows_from");
    if (name == "no_rope_layers") return flags && by_no_rope_layers(*flags);
    if (name == "period") return period();
    if (name == "listed") return listed_numbers();
    if (name == "letters") return letters();
    if (name == "coded" || name == "blocks") return types_by_list(view, rule, plans);
    if (name == "cycle") return cycle();
    if (name == "repeated") return repeated();
    return of_class(name);
  }
};

// dots3-note: full layers pick their keys by an index unless use_dsa is false.
void rename_types(const ConfigView& view, std::vector<LayerPlan>& plans) {
  const auto said = view.stated("use_dsa");
  if (!said && view.stated("per_layer_config")) return;
  const bool indexed = !said || truthy(said->value);
  for (LayerPlan& p : plans)
    if (p.type == (indexed ? kFull : "indexed_attention"))
      p.type = indexed ? "indexed_attention" : kFull;
}

}  // namespace

std::optional<std::vector<LayerPlan>> plan_layers(const ConfigView& view) {
  const std::optional<LayerRules>& rule = view.rules().layers;
  const auto layers = layer_count(view);
  const auto listed = view.stated("layer_types");
  const bool counts_itself = rule && rule->rule == "letters";
  if (!layers && !counts_itself && !listed) {
    (void)view.integer("num_hidden_layers", 0, kMostLayers, true);
    return std::nullopt;
  }
  Index count = layers ? layers->value : 0;
  if ((!layers || counts_itself) && listed && listed->value.is_array())
    count = std::min(static_cast<Index>(listed->value.as_array().size()), kMostLayers);
  const std::size_t before = view.report().errors();
  std::vector<LayerPlan> plans(static_cast<std::size_t>(count),
                               {kFull, Origin::class_default, view.class_name()});
  std::optional<std::vector<bool>> flags;
  if (view.rules().rotary_on == "no_rope_layers") {
    flags = rope_flags(view, count);
    if (!flags) return std::nullopt;
  }
  const bool stated = stated_types(view, count, plans);
  if (rule && (!stated || rule->always)) {
    Rules r{view, *rule, std::move(plans)};
    if (!r.apply(flags)) return std::nullopt;
    plans = std::move(r.plans);
  }
  const std::string force = rule ? rule->force_last : "";
  if (!force.empty() && (!stated || force == "true") && !plans.empty() &&
      plans.back().type != kFull)
    plans.back() = {kFull, Origin::class_default, view.class_name() + ": the last layer is full"};
  if (view.rules().indexed_full) rename_types(view, plans);
  if (flags)
    for (std::size_t i = 0; i < plans.size() && i < flags->size(); ++i)
      plans[i].turns = (*flags)[i];
  if (view.report().errors() > before) return std::nullopt;
  plan_attention(view, plans);
  return plans;
}

}  // namespace posenc::v0::hf
