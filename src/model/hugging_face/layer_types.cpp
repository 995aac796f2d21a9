// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "model/hugging_face/layer_rules.h"

namespace posenc::inline v0::hf {
namespace {

struct Rules {
  const ConfigView& view;
  const LayerRules& rule;
  Index count;
  std::vector<LayerPlan> plans;
  std::string why;
  Origin origin = Origin::derived;

  void set(Index i, std::string type) {
    LayerPlan& p = plans[static_cast<std::size_t>(i)];
    p.type = std::move(type);
    p.origin = origin;
    p.where = why;
  }

  bool every() {
    Index n = rule.n.value_or(1);
    why = view.class_name() + ": every layer " + std::to_string(n);
    origin = Origin::class_default;
    if (const std::string& key = rule.key; !key.empty()) {
      const auto v = view.stated(key);
      if (v && v->value.is_null()) {
        view.report().error("wrong_type",
                            key + " is null, and " + view.class_name() + " divides by it", v->where,
                            "state a number, or leave the key out");
        return false;
      }
      if (v) {
        const auto stated = view.integer(key, 1, kMostLayers);
        if (!stated) return false;
        n = stated->value;
        why = stated->where;
        origin = Origin::derived;
      }
    }
    if (rule.zero_without_window)
      if (const auto w = view.stated("sliding_window"); w && w->value.is_null()) {
        view.report().error("missing_key",
                            "sliding_window is null and there is no layer_types: " +
                                view.class_name() + " divides by zero",
                            w->where, "state layer_types");
        return false;
      }
    if (!rule.windows.empty())
      if (const auto v = view.stated(rule.windows); v && v->value.is_array()) return by_windows(*v);
    const std::string phase = rule.phase.empty() ? "last" : rule.phase;
    const std::string &hit = rule.hit, &other = rule.other;
    for (Index i = 0; i < count; ++i) {
      bool is_hit = phase == "last"    ? (i + 1) % n == 0
                    : phase == "first" ? i % n == 0
                                       : (count - 1 - i) % n == 0;
      if (rule.also_first && i == 0) is_hit = true;
      if (rule.not_first && i == 0) is_hit = false;
      set(i, is_hit ? hit : other);
    }
    if (rule.one_at_least && count > 0 && count < n) set(count - 1, hit);
    return true;
  }

  // UltraBERT's checkpoints: a window for each layer, 0 for none.
  bool by_windows(const Value& v) {
    const auto& list = v.value.as_array();
    if (static_cast<Index>(list.size()) != count) {
      view.report().error("layer_types_length",
                          "attention_windows has " + std::to_string(list.size()) + " entries for " +
                              std::to_string(count) + " layers",
                          v.where, static_cast<double>(list.size()));
      return false;
    }
    origin = v.origin;
    for (Index i = 0; i < count; ++i) {
      why = v.where + "/" + std::to_string(i);
      set(i, truthy(list[static_cast<std::size_t>(i)]) ? "sliding_attention" : "full_attention");
    }
    return true;
  }

  // qwen2: sliding from layer max_window_layers on; qwen2_moe: every other layer below it
  bool windows(bool from) {
    const bool used = view.rules().window && !view.rules().window->switch_key.empty()
                          ? view.flag("use_sliding_window", false)
                          : true;
    const auto window = view.value("sliding_window");
    const auto first = view.integer("max_window_layers", 0, kMostLayers);
    why = view.class_name() + ": use_sliding_window, max_window_layers";
    for (Index i = 0; i < count; ++i) {
      bool sliding = used && window && !window->value.is_null();
      if (sliding && first) sliding = from ? i >= first->value : i % 2 == 0 && i < first->value;
      set(i, sliding ? "sliding_attention" : "full_attention");
    }
    return true;
  }

  bool by_no_rope_layers(const std::vector<bool>& rope) {
    why = view.class_name() + ": no_rope_layers";
    const std::string &with = rule.with, &without = rule.without;
    const auto window = view.value("sliding_window");
    const bool slides =
        view.flag("use_sliding_window", false) && window && !window->value.is_null();
    for (Index i = 0; i < count; ++i) {
      if (rope[static_cast<std::size_t>(i)])
        set(i, with);
      else if (without == "sliding_if_used")
        set(i, slides ? "sliding_attention" : "full_attention");
      else
        set(i, without);
    }
    return true;
  }

  bool period() {
    const auto every_n = view.integer(rule.period, 1, kMostLayers, true);
    const auto offset = view.integer(rule.offset, 0, kMostLayers, true);
    if (!every_n || !offset) return false;
    why = every_n->where;
    for (Index i = 0; i < count; ++i)
      set(i, i % every_n->value == offset->value ? rule.hit : rule.other);
    return true;
  }

  bool listed() {
    const auto v = view.value(rule.key);
    why = v ? v->where : view.class_name();
    std::vector<Index> hits;
    if (v && v->value.is_array()) {
      for (const Json& x : v->value.as_array()) {
        const auto n = whole_number(x);
        if (!n || *n < 0 || *n >= count) {
          view.report().error("wrong_type",
                              rule.key + " must hold layer numbers below " + std::to_string(count) +
                                  ", got " + shown(x),
                              v->where, "state the layers of the model");
          return false;
        }
        hits.push_back(*n);
      }
    } else if (v && !v->value.is_null()) {
      view.report().wrong_type(rule.key, "a list", *v, "state a list of layer numbers");
      return false;
    }
    const bool none_stated = !v || v->value.is_null();
    for (Index i = 0; i < count; ++i) {
      const bool hit = std::find(hits.begin(), hits.end(), i) != hits.end() ||
                       (none_stated && !rule.always && rule.other == "conv");
      set(i, hit ? rule.hit : rule.other);
    }
    return true;
  }

  bool letters() {
    const std::string& key = rule.key;
    const auto v =
        view.stated(key).value_or(Value{rule.held, Origin::class_default, view.class_name()});
    if (!v.value.is_string()) {
      view.report().wrong_type(key, "letters that name layers", v, "state layers_block_type");
      return false;
    }
    if (v.origin == Origin::class_default) origin = v.origin;
    const std::string& pattern = v.value.as_string();
    if (static_cast<Index>(pattern.size()) > kMostLayers) return false;
    why = v.where;
    count = static_cast<Index>(pattern.size());
    plans.assign(pattern.size(), {});
    for (Index i = 0; i < count; ++i) {
      const std::string* type = rule.letters.find(pattern.substr(static_cast<std::size_t>(i), 1));
      if (!type) {
        view.report().error(
            "wrong_type",
            key + " holds an unknown letter " + pattern.substr(static_cast<std::size_t>(i), 1),
            v.where, "letters are those of nemotron_h: M, *, E, -");
        return false;
      }
      set(i, *type);
    }
    return true;
  }

  // GPT-Neo: [[["global", "local"], 12]], each list of names as often as its number says.
  bool repeated() {
    const std::string& key = rule.key;
    const auto v = view.stated(key);
    const bool held = !v || v->value.is_null();
    const Json& list = held ? rule.held : v->value;
    why = held ? view.class_name() : v->where;
    const auto refuse_list = [&](const Json& got) {
      view.report().error("wrong_type",
                          key + " must be a list of [[names], times] with the names " +
                              shown(as_json(rule.names)) + ", got " + shown(got),
                          why, "as GPT-Neo's own: [[[\"global\", \"local\"], 12]]");
      return false;
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
          const std::string* type = name.is_string() ? rule.names.find(name.as_string()) : nullptr;
          if (!type) return refuse_list(name);
          types.push_back(*type);
        }
    }
    if (static_cast<Index>(types.size()) != count) {
      view.report().error("layer_types_length",
                          key + " must name each of the " + std::to_string(count) +
                              " layers once: " + view.class_name() + " refuses the file",
                          why, "make the times of its lists add up to the layers");
      return false;
    }
    origin = held ? Origin::class_default : Origin::derived;
    for (Index i = 0; i < count; ++i) set(i, types[static_cast<std::size_t>(i)]);
    return true;
  }

  bool cycle() {
    const auto v = view.stated(rule.key);
    const Json& list = v ? v->value : rule.cycle;
    why = v ? v->where : view.class_name();
    if (!list.is_array() || list.as_array().empty()) {
      view.report().error("wrong_type", rule.key + " must be a list of names", why,
                          "state the kinds of layers");
      return false;
    }
    for (Index i = 0; i < count; ++i) {
      const Json& name = list.as_array()[static_cast<std::size_t>(i) % list.as_array().size()];
      const std::string* type = name.is_string() ? rule.names.find(name.as_string()) : nullptr;
      if (!type) {
        view.report().error("wrong_type", "unknown kind of layer " + shown(name), why,
                            "state the kinds of layers");
        return false;
      }
      set(i, *type);
    }
    return true;
  }

  Index zamba_period() const {
    const auto n = view.integer("attn_layer_period", 1, kMostLayers);
    return n ? n->value : 1;
  }
  Index zamba_offset() const {
    const auto n = view.integer("attn_layer_offset", 0, kMostLayers);
    return n ? n->value : 0;
  }

  bool special(const std::string& name) {
    why = view.class_name();
    origin = Origin::class_default;
    const std::string full = "full_attention", sliding = "sliding_attention";
    for (Index i = 0; i < count; ++i) {
      if (name == "flint")
        set(i, i < 2 || i % 4 == 1 || i == count - 1 ? full : sliding);
      else if (name == "lfm3")
        set(i, i % 4 == 2 ? full : i % 4 == 0 && i > 0 ? sliding : "conv");
      else if (name == "sliding_if_window") {
        const auto w = view.value("sliding_window");
        set(i, w && !w->value.is_null() ? sliding : full);
      } else if (name == "deepseek_v4")
        set(i,
            i < 2 || i % 2 == 0 ? "heavily_compressed_attention" : "compressed_sparse_attention");
      else if (name == "dots3")
        set(i, !view.flag("use_sliding_window", true) || i < 2 || i % 4 == 1 ? full : sliding);
      else if (name == "zamba")
        set(i, i == 2 || (i > 2 && (i - 3) % zamba_period() == zamba_offset())
                   ? "hybrid"
                   : "linear_attention");
      else if (name == "zamba2" && count != 54) {
        view.report().error("layer_types_length",
                            "without layers_block_type there are 54 layers, and num_hidden_layers "
                            "says " +
                                std::to_string(count),
                            view.where("num_hidden_layers"), "state layers_block_type",
                            static_cast<double>(count));
        return false;
      } else if (name ==
                 "zamba2") {  // 5 after the first, then every 6th up to layer 47, then 51 ..
        static constexpr Index kHybrid[] = {6, 12, 18, 24, 30, 36, 42, 47, 51};
        set(i, std::find(std::begin(kHybrid), std::end(kHybrid), i) != std::end(kHybrid)
                   ? "hybrid"
                   : "linear_attention");
      } else
        set(i, rule.type.empty() ? full : rule.type);
    }
    return true;
  }
};

bool apply_rule(Rules& r, const std::optional<std::vector<bool>>& flags) {
  const std::string& name = r.rule.rule;
  if (name == "every") return r.every();
  if (name == "windows_from") return r.windows(true);
  if (name == "windows_until") return r.windows(false);
  if (name == "no_rope_layers") return flags && r.by_no_rope_layers(*flags);
  if (name == "period") return r.period();
  if (name == "listed") return r.listed();
  if (name == "letters") return r.letters();
  if (name == "coded" || name == "blocks") return types_by_list(r.view, r.rule, r.count, r.plans);
  if (name == "cycle") return r.cycle();
  if (name == "repeated") return r.repeated();
  return r.special(name);
}

}  // namespace

std::optional<std::vector<LayerPlan>> plan_layers(const ConfigView& view) {
  const std::optional<LayerRules>& rule = view.rules().layers;
  const auto layers = layer_count(view);
  const bool counts_itself = rule && rule->rule == "letters";
  if (!layers && !counts_itself && !view.stated("layer_types")) {
    (void)view.integer("num_hidden_layers", 0, kMostLayers, true);
    return std::nullopt;
  }
  Index count = layers ? layers->value : 0;
  if (!layers || counts_itself)
    if (const auto v = view.stated("layer_types"); v && v->value.is_array())
      count = std::min(static_cast<Index>(v->value.as_array().size()), kMostLayers);
  const std::size_t before = view.report().errors();
  std::vector<LayerPlan> plans(static_cast<std::size_t>(count));
  for (auto& p : plans) p.where = view.class_name(), p.origin = Origin::class_default;
  std::optional<std::vector<bool>> flags;
  if (view.rules().rotary_on == "no_rope_layers") {
    flags = rope_flags(view, count);
    if (!flags) return std::nullopt;
  }
  const bool stated = stated_types(view, count, plans);
  if (!stated && rule) {
    Rules r{view, *rule, count, plans, ""};
    if (!apply_rule(r, flags)) return std::nullopt;
    plans = std::move(r.plans);
  }
  const std::string force = rule ? rule->force_last : "";
  if (!force.empty() && (!stated || force == "true") && !plans.empty() &&
      plans.back().type != "full_attention") {
    plans.back().type = "full_attention";
    plans.back().origin = Origin::class_default;
    plans.back().where = view.class_name() + ": the last layer is full";
  }
  rename_types(view, plans);
  if (flags)
    for (std::size_t i = 0; i < plans.size() && i < flags->size(); ++i)
      plans[i].turns = (*flags)[i];
  if (view.report().errors() > before) return std::nullopt;
  plan_attention(view, plans);
  return plans;
}

}  // namespace posenc::v0::hf
