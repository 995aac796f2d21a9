// SPDX-License-Identifier: Apache-2.0
// Sizes of a head by the rules of the table: own, hidden_over_heads, latent, global, stated,
// zamba2.
#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::hf {
namespace {

constexpr Index kMost = 65536;

std::optional<Sourced<Index>> hidden_over_heads(const ConfigView& view) {
  const auto hidden = view.integer("hidden_size", 1, 1'000'000'000, true);
  const auto heads = view.integer("num_attention_heads", 1, 1'000'000, true);
  if (!hidden || !heads) return std::nullopt;
  const Index size = hidden->value / heads->value;
  if (size < 1 || size > kMost) {
    view.report().error(
        "wrong_type", "hidden_size // num_attention_heads gives a head of " + std::to_string(size),
        view.where("num_attention_heads"), "state the sizes of the model",
        static_cast<double>(size));
    return std::nullopt;
  }
  return Sourced<Index>{size, Origin::derived, "hidden_size // num_attention_heads"};
}

// head_dim of the file, of the class, or hidden_size // num_attention_heads.
std::optional<Sourced<Index>> own(const ConfigView& view) {
  const auto v = view.stated("head_dim");
  const bool null = v && v->value.is_null();
  const auto held = null ? std::nullopt : view.value("head_dim");
  if (held && !held->value.is_null()) {
    auto size = view.integer("head_dim", 1, kMost);
    if (size && size->value > 4 && size->value % 2 != 0) {
      view.report().wrong_type("head_dim", "even", *held, "state the size of a head",
                               static_cast<double>(size->value));
      return std::nullopt;
    }
    return size;
  }
  return hidden_over_heads(view);
}

// head_dim of a file: another name of qk_rope_head_dim (GLM-4-MoE-Lite, where it wins), overwritten
// by it (DeepSeek-V3.2), or an attribute that the table follows and the attention does not.
bool latent_head_dim(const ConfigView& view, std::optional<Sourced<Index>>& rope) {
  const auto v = view.stated("head_dim");
  const Json* what = view.entry().find("head_dim_is");
  if (!v || !what) return true;
  if (v->value.is_null()) {  // the table falls back to hidden_size // num_attention_heads
    const auto size = hidden_over_heads(view);
    if (size && size->value == rope->value && what->as_string() == "table") return true;
    view.report().error(
        "partial_conflict",
        "head_dim is null: the table covers hidden_size // num_attention_heads, and "
        "the attention turns qk_rope_head_dim, " +
            std::to_string(rope->value) + ": it fails",
        v->where, "leave head_dim out");
    return false;
  }
  const auto size = view.integer("head_dim", 1, kMost, true);
  if (!size) return false;
  if (what->as_string() == "rope") {
    if (view.stated("qk_rope_head_dim") && size->value != rope->value)
      view.report().warn("both_spellings",
                         "head_dim is " + std::to_string(size->value) + " and qk_rope_head_dim " +
                             std::to_string(rope->value) +
                             ": head_dim is its other name here, and counts",
                         v->where, "keep one of them");
    rope = size;
    return true;
  }
  if (size->value == rope->value) return true;
  view.report().error("partial_conflict",
                      "the table covers head_dim, " + std::to_string(size->value) +
                          ", and the attention turns qk_rope_head_dim, " +
                          std::to_string(rope->value) + ": it fails",
                      v->where, "leave head_dim out", static_cast<double>(size->value));
  return false;
}

std::optional<Head> latent(const ConfigView& view) {
  const auto nope = view.integer("qk_nope_head_dim", 0, kMost, true);
  auto rope = view.integer("qk_rope_head_dim", 2, kMost, true);
  if (!nope || !rope || !latent_head_dim(view, rope)) return std::nullopt;
  Head head;
  head.offset = *nope;
  head.rope_dim = *rope;
  head.q_dim = {nope->value + rope->value, Origin::derived, "qk_nope_head_dim + qk_rope_head_dim"};
  return head;
}

// dots3-note: full layers as latent(), sliding ones by the swa_ keys, or by per_layer_config.
std::optional<Head> latent_by_kind(const ConfigView& view, const std::string& layer_type) {
  if (layer_type != "sliding_attention") return latent(view);
  const auto size = [&](const char* key, Index otherwise) -> Sourced<Index> {
    if (const auto all = view.stated("per_layer_config"); all && all->value.is_object())
      for (const auto& [index, about] : all->value.as_object())
        if (const Json* n = about.is_object() ? about.find(key) : nullptr; n && n->is_integer())
          return {n->as_integer(), all->origin, all->where + "/" + index + "/" + key};
    const std::string name = std::string("swa_") + key;
    if (const auto v = view.stated(name); v && v->value.is_integer())
      return {v->value.as_integer(), v->origin, v->where};
    return {otherwise, Origin::class_default, view.class_name()};
  };
  Head head;
  head.q_dim = size("head_dim", 256);
  head.offset = size("qk_nope_head_dim", 192);
  head.rope_dim = size("qk_rope_head_dim", head.q_dim.value - head.offset.value);
  if (head.rope_dim.origin == Origin::class_default)
    head.rope_dim = {head.rope_dim.value, Origin::derived, "head_dim - qk_nope_head_dim"};
  if (head.offset.value >= 0 && head.rope_dim.value > 0 && head.q_dim.value <= kMost &&
      head.offset.value + head.rope_dim.value == head.q_dim.value)
    return head;
  view.report().error("wrong_type",
                      "a sliding layer's head must be its qk_nope_head_dim and qk_rope_head_dim "
                      "together, got " +
                          std::to_string(head.q_dim.value) + ", " +
                          std::to_string(head.offset.value) + " and " +
                          std::to_string(head.rope_dim.value),
                      view.where("swa_head_dim"), "state the sizes of the model");
  return std::nullopt;
}

std::optional<Sourced<Index>> global(const ConfigView& view, const std::string& layer_type) {
  if (layer_type != "full_attention") return own(view);
  if (const auto v = view.stated("global_head_dim"); v && !v->value.is_null())
    return view.integer("global_head_dim", 1, kMost);
  if (const auto layers = view.stated("per_layer_config"); layers && layers->value.is_object())
    for (const auto& [index, about] : layers->value.as_object())
      if (const Json* size = about.find("head_dim"); size && size->is_integer())
        return Sourced<Index>{size->as_integer(), layers->origin,
                              layers->where + "/" + index + "/head_dim"};
  return Sourced<Index>{512, Origin::class_default, view.class_name()};
}

// Some classes check it on loading, whether the heads come from it or not.
bool heads_divide(const ConfigView& view) {
  if (!view.entry().find("heads_divide")) return true;
  const auto hidden = view.integer("hidden_size", 1, 1'000'000'000);
  const auto heads = view.integer("num_attention_heads", 1, 1'000'000);
  if (!hidden || !heads || hidden->value % heads->value == 0) return true;
  view.report().error("wrong_type",
                      "hidden_size " + std::to_string(hidden->value) +
                          " is no multiple of num_attention_heads " + std::to_string(heads->value) +
                          ": " + view.program() + " refuses the file",
                      heads->where, "state the sizes of the model");
  return false;
}

// Qwen-1 projects head_dim * num_attention_heads channels and splits hidden_size of them.
bool heads_fill(const ConfigView& view, const Sourced<Index>& size) {
  if (!view.entry().find("heads_fill")) return true;
  const auto hidden = view.integer("hidden_size", 1, 1'000'000'000, true);
  const auto heads = view.integer("num_attention_heads", 1, 1'000'000, true);
  if (!hidden || !heads) return false;
  if (size.value * heads->value == hidden->value) return true;
  view.report().error("wrong_type",
                      std::to_string(heads->value) + " heads of " + std::to_string(size.value) +
                          " channels do not make hidden_size " + std::to_string(hidden->value) +
                          ": the attention of " + view.class_name() + " fails",
                      size.where, "state the sizes of the model");
  return false;
}

// An attention that looks for no size of its own where head_dim is null.
bool takes_null(const ConfigView& view) {
  if (!view.entry().find("head_null_fails")) return true;
  const auto v = view.stated("head_dim");
  if (v ? !v->value.is_null() : !view.entry().find("head_null")) return true;
  view.report().error(v ? "wrong_type" : "missing_key",
                      std::string("head_dim is ") + (v ? "null" : "missing, null in the class") +
                          ", and the attention of " + view.class_name() +
                          " takes it as it is: transformers fails",
                      v ? v->where : view.where("head_dim"), "state head_dim");
  return false;
}

}  // namespace

std::optional<Head> head_of(const ConfigView& view, const std::string& layer_type) {
  if (const auto v = view.stated("head_dim");
      v && v->value.is_null() && view.entry().find("head_strict")) {
    view.report().error("wrong_type",
                        "head_dim is null, and " + view.class_name() +
                            " takes a number only: " + view.program() + " refuses the file",
                        v->where, "state head_dim, or leave the key out");
    return std::nullopt;
  }
  if (!takes_null(view) || !heads_divide(view)) return std::nullopt;
  const Json* rule = view.entry().find("head");
  const std::string name = rule ? rule->as_string() : "own";
  if (name == "latent") return latent(view);
  if (name == "latent_by_kind") return latent_by_kind(view, layer_type);
  std::optional<Sourced<Index>> size;
  if (name == "hidden_over_heads") {
    size = hidden_over_heads(view);
    if (const auto v = view.stated("head_dim"); v && size && whole_number(v->value) != size->value)
      view.report().warn("key_ignored",
                         "head_dim is not read by " + view.class_name() +
                             ": hidden_size // num_attention_heads counts",
                         v->where, "remove it");
  } else if (name == "global") {
    size = global(view, layer_type);
  } else if (name == "zamba2") {
    size = hidden_over_heads(view);
    if (size)
      size = Sourced<Index>{2 * size->value, Origin::derived,
                            "2 * hidden_size // num_attention_heads"};
  } else {
    size = own(view);
  }
  if (!size || !heads_fill(view, *size)) return std::nullopt;
  Head head{*size, *size, {0, Origin::class_default, view.class_name()}, false};
  const auto v = view.stated("head_dim");
  const bool null = !v || v->value.is_null();
  head.null_head_dim = (null && view.entry().find("head_null")) ||
                       (v && null && !view.holds("head_dim"));  // an attribute of the file's own
  return head;
}

}  // namespace posenc::hf
