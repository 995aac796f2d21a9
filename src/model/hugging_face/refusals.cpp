// SPDX-License-Identifier: Apache-2.0
// What a class of transformers refuses on loading, though nothing here would have asked for it.
#include <algorithm>

#include "model/hugging_face/layers.h"

namespace posenc::inline v0::hf {
namespace {

class Refusals {
 public:
  explicit Refusals(const ConfigView& view) : view_(view), rules_(view.rules()) {}

  void find(std::size_t layers) const {
    for (const auto& [key, held] : rules_.defaults.as_object())
      if (view_.refuses_null(key)) null_of(key);
    for (const auto& [key, held] : rules_.defaults.as_object())
      if (held.is_integer()) kind_of(key);
    size("num_attention_heads", 1'000'000);
    size("hidden_size", 1'000'000'000);
    layer_types(layers);
    for (const auto& [key, use] : rules_.uses.pairs)
      if (const Json* v = view_.object().find(key); use == "refused" && v && truthy(*v))
        view_.wrong_type(key + " must not be true: " + view_.class_name() + " refuses the file",
                         view_.where(key), "remove the key");
  }

 private:
  bool said_already(const std::string& place) const {
    const std::vector<Finding>& all = view_.report().findings();
    return std::any_of(all.begin(), all.end(), [&](const Finding& f) {
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
            spelled + " is null, and " + view_.class_name() + " refuses a file that says so",
            view_.where(spelled), "state " + spelled + ", or leave the key out");
    }
  }

  // A whole number that the class holds cannot be a text, an object or a switch, whether it moves a
  // position or not (run, every class). Other names of an attribute are not checked there, and the
  // rule of the layers reads its own key (EXAONE's pattern may be letters).
  void kind_of(const std::string& key) const {
    const bool both = contains(rules_.own_unless_null, key);
    if ((contains(rules_.own_first, key) && !both) || (rules_.layers && rules_.layers->key == key))
      return;
    whole(name_of(key));
    if (both) whole(key);
  }

  void whole(const std::string& name) const {
    const Json* v = held(name);
    if (v && (v->is_string() || v->is_object() || v->is_bool()))
      view_.wrong_type(message("{} must be a whole number, got {}: {} refuses the file", name, *v,
                               view_.class_name()),
                       view_.where(name), "state a number, or leave the key out");
  }

  // Sizes of which no attention can be made, though only memory or nothing here needs them.
  void size(std::string_view key, Index most) const {
    const auto v = view_.holds(key) ? view_.stated(key) : std::nullopt;
    if (!v || !v->value.is_number() || said_already(v->where)) return;
    const double n = v->value.as_number();
    if (!(n >= 1 && n <= static_cast<double>(most)))
      view_.wrong_type(
          message("{} must be a whole number from 1 to {}, got {}", key, most, v->value), *v,
          "state the sizes of the model", n);
  }

  // A list of layer types is checked whether the class reads it or not.
  void layer_types(std::size_t layers) const {
    const Json* list = held("layer_types");
    if (!list || !list->is_array() || rules_.typed || rules_.other_layer_types) return;
    const Json::Array& known = table_member("layer_types").as_array();
    const Place at = view_.where("layer_types");
    for (const Json& type : list->as_array())
      if (std::find(known.begin(), known.end(), type) == known.end() &&
          !(type.is_string() && table_member("old_layer_types").find(type.as_string()))) {
        view_.wrong_type(
            message("layer_types holds {}, no layer type of transformers, which refuses the file",
                    type),
            at, "remove the key");
        return;
      }
    const std::size_t size = list->as_array().size();
    if (size != layers)
      view_.error("layer_types_length",
                  message("layer_types has {} entries for {} layers: transformers refuses the "
                          "file, though {} does not read them",
                          size, layers, view_.class_name()),
                  at, "remove the key", static_cast<double>(size));
  }

  const ConfigView& view_;
  const ClassRules& rules_;
};

}  // namespace

void refused_on_loading(const ConfigView& view, std::size_t layers) {
  if (!view.rules().defaults.is_null()) Refusals(view).find(layers);
}

}  // namespace posenc::v0::hf
