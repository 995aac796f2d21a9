// SPDX-License-Identifier: Apache-2.0
// Sizes of a head by the rules of the table.
#include "model/hugging_face/head_size.h"

namespace posenc::inline v0::hf {
namespace {

constexpr Index kMostChannels = 65536;

std::optional<Sourced<Index>> width_of(const ConfigView& view, bool required = true) {
  return view.integer("hidden_size", 1, 1'000'000'000, required);
}
std::optional<Sourced<Index>> heads_of(const ConfigView& view, bool required = true) {
  return view.integer("num_attention_heads", 1, 1'000'000, required);
}

std::optional<Sourced<Index>> hidden_over_heads(const ConfigView& view) {
  const auto size = width_over_heads(view, true);
  if (!size || (size->value >= 1 && size->value <= kMostChannels)) return size;
  return view.wrong_type({"hidden_size // num_attention_heads gives a head of {}", size->value},
                         view.where("num_attention_heads"), "state the sizes of the model",
                         size->value);
}

// head_dim of the file, of the class, or hidden_size // num_attention_heads.
std::optional<Sourced<Index>> own(const ConfigView& view) {
  const auto v = view.stated("head_dim");
  const auto held = v ? view.stated_value("head_dim") : view.value("head_dim");
  if (!held || held->value.is_null()) return hidden_over_heads(view);
  auto size = view.integer("head_dim", 1, kMostChannels);
  if (!size || size->value <= 4 || size->value % 2 == 0) return size;
  return view.must_be("head_dim", "even", *held, "state the size of a head",
                      static_cast<double>(size->value));
}

// head_dim of a file: another name of qk_rope_head_dim (GLM-4-MoE-Lite, where it wins), overwritten
// by it (DeepSeek-V3.2), or an attribute that the table follows and the attention does not.
bool latent_head_dim(const ConfigView& view, std::optional<Sourced<Index>>& rope) {
  const auto v = view.stated("head_dim");
  const std::string& is = view.rules().head_dim_is;
  if (!v || is.empty()) return true;
  if (v->value.is_null()) {  // the table falls back to hidden_size // num_attention_heads
    const auto size = hidden_over_heads(view);
    if (size && size->value == rope->value && is == "table") return true;
    return view.error("partial_conflict",
                      {"head_dim is null: the table covers hidden_size // num_attention_heads, and "
                       "the attention rotates qk_rope_head_dim, {}: it fails",
                       rope->value},
                      *v, "leave head_dim out");
  }
  const auto size = view.integer("head_dim", 1, kMostChannels, true);
  if (!size) return false;
  if (is == "rope") {
    if (view.stated("qk_rope_head_dim") && size->value != rope->value)
      view.warn("both_spellings",
                {"head_dim is {} and qk_rope_head_dim {}: here head_dim is another name of it, and "
                 "is used",
                 size->value, rope->value},
                *v, "keep one of them");
    rope = size;
    return true;
  }
  if (size->value == rope->value) return true;
  return view.error(
      "partial_conflict",
      {"the table covers head_dim, {}, and the attention rotates qk_rope_head_dim, {}: it fails",
       size->value, rope->value},
      *v, "leave head_dim out", size->value);
}

std::optional<Head> latent(const ConfigView& view) {
  const auto nope = view.integer("qk_nope_head_dim", 0, kMostChannels, true);
  auto rope = view.integer("qk_rope_head_dim", 2, kMostChannels, true);
  if (!nope || !rope || !latent_head_dim(view, rope)) return std::nullopt;
  return Head{{nope->value + rope->value, Origin::derived, "qk_nope_head_dim + qk_rope_head_dim"},
              *rope,
              *nope};
}

// The first whole number that per_layer_config has for a layer under the key.
std::optional<Sourced<Index>> of_some_layer(const ConfigView& view, const std::string& key) {
  const auto all = view.stated("per_layer_config");
  if (all && all->value.is_object())
    for (const auto& [index, about] : all->value.as_object())
      if (const Json* n = about.find(key); n && n->is_integer())
        return Sourced<Index>{n->as_integer(), all->origin, all->where + "/" + index + "/" + key};
  return std::nullopt;
}

// dots3-note: full layers as latent(), sliding ones by the swa_ keys, or by per_layer_config.
std::optional<Head> latent_by_kind(const ConfigView& view, const std::string& layer_type) {
  if (layer_type != "sliding_attention") return latent(view);
  const auto size = [&](const std::string& key, Index otherwise) -> Sourced<Index> {
    if (const auto n = of_some_layer(view, key)) return *n;
    if (const auto v = view.stated("swa_" + key); v && v->value.is_integer())
      return {v->value.as_integer(), v->origin, v->where};
    return {otherwise, Origin::class_default, view.class_name()};
  };
  Head head;
  head.q_dim = size("head_dim", 256);
  head.offset = size("qk_nope_head_dim", 192);
  head.rope_dim = size("qk_rope_head_dim", head.q_dim.value - head.offset.value);
  if (head.rope_dim.origin == Origin::class_default)
    head.rope_dim = {head.rope_dim.value, Origin::derived, "head_dim - qk_nope_head_dim"};
  if (head.offset.value >= 0 && head.rope_dim.value > 0 && head.q_dim.value <= kMostChannels &&
      head.offset.value + head.rope_dim.value == head.q_dim.value)
    return head;
  return view.wrong_type(
      {"a sliding layer's head must be its qk_nope_head_dim and qk_rope_head_dim "
       "together, got {}, {} and {}",
       head.q_dim.value, head.offset.value, head.rope_dim.value},
      view.where("swa_head_dim"));
}

std::optional<Sourced<Index>> global(const ConfigView& view, const std::string& layer_type) {
  if (layer_type != "full_attention") return own(view);
  if (view.stated_value("global_head_dim"))
    return view.integer("global_head_dim", 1, kMostChannels);
  return of_some_layer(view, "head_dim")
      .value_or(Sourced<Index>{512, Origin::class_default, view.class_name()});
}

// What classes check on loading of head_dim and of the width, whether the heads come from it or not.
bool loads(const ConfigView& view) {
  const auto v = view.stated("head_dim");
  const bool null = v && v->value.is_null();
  if (null && view.rules().head_strict)
    return view.wrong_type(
        {"head_dim is null, and {class} takes a number only: {} refuses the file", view.program()},
        *v, "state head_dim, or remove the key");
  // An attention that looks for no size of its own where head_dim is null.
  if (view.rules().head_null_fails && (v ? null : view.rules().head_null))
    return view.error(
        v ? "wrong_type" : "missing_key",
        {"head_dim is {}, and the attention of {class} takes it as it is: transformers fails",
         v ? "null" : "missing, null in the class"},
        v ? v->where : view.where("head_dim"), "state head_dim");
  if (!view.rules().heads_divide) return true;
  const auto hidden = width_of(view, false), heads = heads_of(view, false);
  if (!hidden || !heads || hidden->value % heads->value == 0) return true;
  return view.wrong_type(
      {"hidden_size {} is no multiple of num_attention_heads {}: {} refuses the file",
       hidden->value, heads->value, view.program()},
      *heads);
}

// Qwen-1 projects head_dim * num_attention_heads channels and splits hidden_size of them.
bool heads_fill(const ConfigView& view, const Sourced<Index>& size) {
  if (!view.rules().heads_fill) return true;
  const auto hidden = width_of(view), heads = heads_of(view);
  if (!hidden || !heads) return false;
  if (size.value * heads->value == hidden->value) return true;
  return view.wrong_type(
      {"{} heads of {} channels do not make hidden_size {}: the attention of {class} fails",
       heads->value, size.value, hidden->value},
      size);
}

}  // namespace

std::optional<Sourced<Index>> width_over_heads(const ConfigView& view, bool required) {
  const auto hidden = width_of(view, required), heads = heads_of(view, required);
  if (!hidden || !heads) return std::nullopt;
  return counted(hidden->value / heads->value, "hidden_size // num_attention_heads");
}

std::optional<Head> head_of(const ConfigView& view, const std::string& layer_type) {
  if (!loads(view)) return std::nullopt;
  const std::string& rule = view.rules().head;
  if (rule == "latent") return latent(view);
  if (rule == "latent_by_kind") return latent_by_kind(view, layer_type);
  const auto v = view.stated("head_dim");
  auto size = rule == "global"                                  ? global(view, layer_type)
              : rule == "hidden_over_heads" || rule == "zamba2" ? hidden_over_heads(view)
                                                                : own(view);
  if (size && v && rule == "hidden_over_heads" && whole_number(v->value) != size->value)
    view.warn("key_ignored",
              "{class} does not read head_dim and uses hidden_size // num_attention_heads", *v,
              "remove it");
  if (size && rule == "zamba2")
    size = {2 * size->value, Origin::derived, "2 * hidden_size // num_attention_heads"};
  if (!size || !heads_fill(view, *size)) return std::nullopt;
  const bool null = !v || v->value.is_null();
  return Head{*size,
              *size,
              {0, Origin::class_default, view.class_name()},
              (null && view.rules().head_null) ||
                  (v && null && !view.holds("head_dim"))};  // an attribute of the file's own
}

}  // namespace posenc::v0::hf
