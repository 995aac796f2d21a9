// SPDX-License-Identifier: Apache-2.0
// What a file says about positions and nobody reads.
#include <algorithm>
#include <string_view>

#include "model/hugging_face/checks.h"
#include "model/hugging_face/own_code.h"
#include "model/hugging_face/scheme_signs.h"

namespace posenc::inline v0::hf {
namespace {

// Keys that nobody read, held against what the layers came to.
class Unread {
 public:
  Unread(const ConfigView& view, const std::vector<LayerSpec>& layers)
      : view_(view), layers_(layers) {}

  void find() {
    theta_of_attention();
    for (const auto& [key, means] : table_member("aliases").as_object())
      if (const Json* held = unread(key))
        view_.warn("alias_not_read",
                   {"{} ({}) is not read by {class}, got {}", key, means.as_string(), *held},
                   view_.where(key), "write the name that the class reads, if it is meant");
    for (const std::string_view key : table_words("keys_of_positions"))
      if (const Json* held = unread(key)) ignored(key, *held);
    for (const std::string_view key : table_words("keys_of_windows"))
      if (const Json* held = unread(key)) window(key, *held);
  }

 private:
  void ignored(std::string_view key, const Json& held,
               const std::string& so = ": weights made with it need other code",
               const std::string& fix = "remove it, or use the code that reads it") {
    const std::string code = own_code(view_);
    view_.warn("key_ignored",
               {"{} is not read by {class}, got {}{}{}", key, held, so,
                code.empty() ? "" : message("; {}, which auto_map names, may read it", code)},
               view_.where(key), code.empty() ? fix : "read that code before you run the model");
  }

  void window(std::string_view key, const Json& held) {
    if (used(key, "one_kernel"))
      view_.warn("key_ignored",
                 {"{} {} is handed to FlashAttention only by {class}: with every other kernel a "
                  "token sees all before it",
                  key, held},
                 view_.where(key),
                 "use the kernel that the weights were trained with, or remove it");
    else if (!cache_forgets(key))
      ignored(key, held);
    else
      ignored(key, held,
              ": its attention sees every earlier token, but the key cache that transformers makes "
              "of the file (DynamicCache) keeps as many tokens only, so that a text read at once "
              "and one read token by token differ",
              "remove it if the weights were trained without a window; otherwise use the code that "
              "reads it");
  }

  // transformers makes the cache of a decoder without layer types by these two keys, whatever the
  // class's own mask shows (run: 20 classes with rotary, BLOOM, MPT).
  bool cache_forgets(std::string_view key) const {
    const Json* types = view_.object().find("layer_types");
    const bool typed =
        view_.rules().typed || (types && !types->is_null()) || used(key, "not_cached");
    return contains({"sliding_window", "attention_chunk_size"}, key) && !typed &&
           !layers_.empty() && !view_.rules().bidirectional &&
           std::ranges::all_of(layers_, [](const LayerSpec& layer) {
             return layer.attention.kind == AttentionKind::full && layer.attention.is_causal() &&
                    cache_forgets_with(layer.scheme);
           });
  }

  static bool cache_forgets_with(std::string_view scheme) {
    const SchemeSigns* signs = signs_of(scheme);
    return signs && signs->cache_forgets;
  }

  // What the file holds under a key that matters and that nobody looked at.
  const Json* unread(std::string_view key) const {
    const Json* held = view_.object().find(key);
    if (!held || !truthy(*held)) return nullptr;
    const bool read = view_.report().visited.count(view_.where(key)) != 0 || view_.holds(key) ||
                      names_key(view_.rules(), key) || used(key, "read") || used(key, "refused");
    if (read && !used(key, "held_only")) return nullptr;
    return says_nothing_new(key, *held) ? nullptr : held;
  }
  bool used(std::string_view key, std::string_view how) const {
    const std::string* use = view_.rules().uses.find(key);
    return use && *use == how;
  }

  // Whether an unread key says what the class does anyway, so that nothing is lost with it.
  bool says_nothing_new(std::string_view key, const Json& held) const {
    const ClassRules& rules = view_.rules();
    if (key.starts_with("pos") && key.ends_with("_type") && key != "pos_att_type") {
      const std::string said = held.is_string() ? held.as_string() : "";
      const SchemeSigns* signs = signs_of(rules.scheme);
      return said == "absolute" || (said == rules.scheme && !said.empty()) ||
             (signs && contains(signs->words, said));
    }
    for (const SchemeSigns& signs : all_scheme_signs())
      if (contains(signs.keys, key)) return rules.scheme == signs.scheme;
    if (contains({"rope_interleave", "rope_interleaved", "rotary_emb_interleaved"}, key))
      return rules.pairing == "interleaved";
    if (key == "mrope_interleaved") return rules.mrope && rules.mrope->layout == "interleaved";
    if (key == "max_window_layers" || contains(table_words("keys_of_windows"), key))
      return sees_no_less(key, held);
    return held.is_number() && same_number(key, held.as_number());
  }

  // A window as long as the longest text hides nothing, one that the file switches off is none,
  // and the class may have the same under its own name.
  bool sees_no_less(std::string_view key, const Json& held) const {
    const Json* used = view_.object().find("use_sliding_window");
    if (key == "max_window_layers") return !used || !truthy(*used);
    const auto longest = number_of(view_.value("max_position_embeddings"));
    if (held.is_number() && longest && held.as_number() >= *longest) return true;
    if (used && !truthy(*used) && !cache_forgets(key)) return true;
    return std::ranges::any_of(layers_, [&](const LayerSpec& layer) {
      const FieldValue* own = layer.field("window");
      return own && own->value == held;
    });
  }

  bool same_number(std::string_view key, double number) const {
    if (contains(table_words("names_of_theta"), key)) return turns_by(number);
    if (contains({"original_max_position_embeddings", "n_ctx"}, key)) {
      const auto longest = number_of(view_.value("max_position_embeddings"));
      return longest ? *longest == number : key == "n_ctx";
    }
    const bool share = key.ends_with("fraction") || key.ends_with("pct") ||
                       key.ends_with("percent") || key.ends_with("percentage");
    if (share || key == "rotary_dim") return turns_width(number, share);
    return number == 1 && (contains({"rope_ratio", "rope_scale", "no_rope_layer_interval"}, key) ||
                           key.ends_with("scaling_factor"));
  }

  bool turns_by(double theta) const {
    return std::ranges::any_of(layers_, [&](const LayerSpec& layer) {
      const FieldValue* base = layer.rotary ? layer.field("base") : nullptr;
      return base && number_of(base->value) == theta;
    });
  }
  // The width that turns is this number of channels, or this share of the head.
  bool turns_width(double number, bool share) const {
    return std::ranges::any_of(layers_, [&](const LayerSpec& layer) {
      if (!layer.rotary) return false;
      const double head = share ? static_cast<double>(layer.rotary->head_dim) : 1;
      return head * number == static_cast<double>(layer.rotary->blocks.front().width());
    });
  }

  // DBRX's files state theta where its class stores it and its rotary does not look; other classes
  // have no such object.
  void theta_of_attention() const {
    const Json* inner = view_.object().find("attn_config");
    const Json* theta = inner ? inner->find("rope_theta") : nullptr;
    if (!view_.rules().rotates() || !theta || !theta->is_number() || turns_by(theta->as_number()))
      return;
    view_.warn("key_ignored",
               {"attn_config.rope_theta is {}, and {class} rotates by rope_parameters: a theta the "
                "model was trained with is lost",
                *theta},
               view_.where("attn_config") + "/rope_theta", "state rope_theta at the top level");
  }

  const ConfigView& view_;
  const std::vector<LayerSpec>& layers_;
};

}  // namespace

void unread_positions(const ConfigView& view, const std::vector<LayerSpec>& layers) {
  Unread(view, layers).find();
}

}  // namespace posenc::v0::hf
