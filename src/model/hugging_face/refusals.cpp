// SPDX-License-Identifier: Apache-2.0
// What a class of transformers refuses on loading, though nothing here would have asked for it.
#include <algorithm>
#include <set>

#include "model/hugging_face/checks.h"
#include "model/hugging_face/layer_rules.h"
#include "model/hugging_face/rope_dictionary/rope_set.h"

namespace posenc::inline v0::hf {
namespace {

class Refusals {
 public:
  explicit Refusals(const ConfigView& view) : view_(view), rules_(view.rules()) {}

  void find(std::size_t layers) const {
    for (const auto& [key, held] : rules_.defaults.as_object())
      if (view_.refuses_null(key)) null_of(key);
    for (const auto& [key, held] : rules_.defaults.as_object())
      if (held.is_integer() || (held.is_null() && integers().count(key) != 0)) kind_of(key);
    size("num_attention_heads", 1'000'000);
    size("hidden_size", 1'000'000'000);
    key_heads();
    for (const char* key : {"rope_parameters", "rope_scaling"}) rope_dictionary(key);
    layer_types(layers);
    for (const auto& [key, use] : rules_.uses.pairs)
      if (const Json* v = view_.object().find(key); use == "refused" && v && truthy(*v))
        view_.wrong_type({"{} must not be true: {} refuses the file", key, view_.class_name()},
                         view_.where(key), "remove the key");
  }

 private:
  bool said_already(const std::string& place) const {
    const std::vector<Finding>& all = view_.report().findings();
    return std::ranges::any_of(all, [&](const Finding& f) {
      return f.severity == Severity::error && f.where.starts_with(place);
    });
  }
  std::string name_of(const std::string& key) const {
    const std::string* name = rules_.names.find(key);
    return name ? *name : key;
  }

  // What the file holds under the name, unless an error speaks of it.
  const Json* held(const std::string& name) const {
    const Json* v = view_.object().find(name);
    return v && !said_already(view_.where(name)) ? v : nullptr;
  }

  void null_of(const std::string& key) const {
    const std::string name = name_of(key);
    const bool apart = name != key;
    for (const std::string& spelled : {name, key}) {
      if (apart && contains(spelled == key ? rules_.own_only : rules_.own_unless_null, key))
        continue;
      if (const Json* v = held(spelled); v && v->is_null())
        view_.wrong_type(
            {"{} is null, and {} refuses a file that says so", spelled, view_.class_name()},
            view_.where(spelled), {"state {}, or remove the key", spelled});
    }
  }

  // Keys for which some class holds a whole number. Every class that holds null for one takes a whole
  // number there and nothing else (run, every class).
  static const std::set<std::string>& integers() {
    static const std::set<std::string> keys = [] {
      std::set<std::string> found;
      for (const auto& [type, rules] : all_class_rules())
        for (const auto& [key, held] : rules.defaults.as_object())
          if (held.is_integer()) found.insert(key);
      return found;
    }();
    return keys;
  }

  // A whole number that the class holds cannot be a text, an object, a switch or written with a
  // point, whether it moves a position or not (run, every class). Other names of an attribute are not
  // checked there, and the rule of the layers reads its own key (EXAONE's pattern may be letters).
  void kind_of(const std::string& key) const {
    const bool both = contains(rules_.own_unless_null, key);
    if ((contains(rules_.own_first, key) && !both) || (rules_.layers && rules_.layers->key == key))
      return;
    whole(name_of(key));
    if (both) whole(key);
  }

  void whole(const std::string& name) const {
    const Json* v = held(name);
    if (!v || v->is_null() || v->is_integer()) return;
    // Code of a model's own checks no types.
    if (v->is_array() && (!rules_.remote.empty() || contains(table_words("may_be_lists"), name)))
      return;
    const auto n = v->is_number() ? whole_number(*v) : std::nullopt;
    view_.wrong_type({"{} must be a whole number{}, got {}: {class} refuses the file", name,
                      n ? " without a point" : "", *v},
                     view_.where(name),
                     n ? message("write {}", *n) : "state a number, or remove the key");
  }

  // Attention repeats each key head for as many query heads. With latent attention the count is
  // divided by and moves nothing.
  void key_heads() const {
    const std::string key = "num_key_value_heads";
    const std::string* use = rules_.uses.find(key);
    const auto n = view_.holds(key) ? view_.stated_value(key) : std::nullopt;
    const auto heads = view_.value("num_attention_heads");
    if (!n || !heads || !n->value.is_integer() || !heads->value.is_integer() ||
        (use && *use == "held_only") || said_already(n->where))
      return;
    const Index some = n->value.as_integer(), all = heads->value.as_integer();
    const bool by_layer = view_.stated("num_attention_heads_per_layer") ||
                          view_.stated("per_layer_config") || rules_.head.starts_with("latent");
    if (all < 1 || (some >= 1 && some <= all && (by_layer || all % some == 0))) return;
    view_.wrong_type({"{} must be from 1 to num_attention_heads, {}, and divide it, got {}: the "
                      "attention of {class} fails",
                      key, all, some},
                     *n, "state the sizes of the model", static_cast<double>(some));
  }

  // The class keeps the dictionary in a field of its own, whose type is checked. Elsewhere
  // `rope_scaling or rope_parameters` drops a value that Python takes as false.
  bool typed_dictionary(std::string_view key, const Json& v) const {
    if (!rules_.rotates() || !rules_.remote.empty()) return false;
    const RopeRules& rope = rope_rules(view_);
    if (key == "rope_parameters")
      return !rope.ignores_scaling && rope.rule != "fixed_base" && rope.rule != "top_level";
    return rope.ignores_scaling || rope.rule == "filled_in" || rope.rule == "named_types" ||
           (rope.rule == "by_layer_type" && !v.is_array() && !v.is_string());
  }
  void rope_dictionary(const std::string& key) const {
    const Json* v = held(key);
    if (!v || v->is_null() || v->is_object()) return;
    const std::string wanted = message("{} must be an object or null, got {}: ", key, *v);
    if (truthy(*v) || typed_dictionary(key, *v))
      view_.wrong_type(wanted + message("{} refuses the file", view_.class_name()),
                       view_.where(key), "write null for no scaling");
    else
      view_.warn("wrong_type", {"{}taken as null", wanted}, view_.where(key), "write null");
  }

  // Sizes of which no attention can be made, though only memory or nothing here needs them.
  void size(std::string_view key, Index most) const {
    const auto v = view_.holds(key) ? view_.stated(key) : std::nullopt;
    if (!v || !v->value.is_number() || said_already(v->where)) return;
    const double n = v->value.as_number();
    if (!(n >= 1 && n <= static_cast<double>(most)))
      view_.wrong_type({"{} must be a whole number from 1 to {}, got {}", key, most, v->value}, *v,
                       "state the sizes of the model", n);
  }

  // A list of layer types is checked whether the class reads it or not.
  void layer_types(std::size_t layers) const {
    const Json* list = held("layer_types");
    if (!list || !list->is_array() || rules_.other_layer_types) return;
    const Place at = view_.where("layer_types");
    const std::size_t size = list->as_array().size();
    for (std::size_t i = 0; i < size; ++i)
      if (!layer_type(view_, list->as_array()[i], message("{}/{}", at.where, i))) return;
    if (size != layers && !rules_.typed)
      view_.error("layer_types_length",
                  {"layer_types has {} entries for {} layers: transformers refuses the file, "
                   "though {class} does not read them",
                   size, layers},
                  at, "remove the key", static_cast<double>(size));
  }

  const ConfigView& view_;
  const ClassRules& rules_;
};

}  // namespace

void refused_on_loading(const ConfigView& view, std::size_t layers) {
  Refusals(view).find(layers);
}

}  // namespace posenc::v0::hf
