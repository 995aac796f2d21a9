// SPDX-License-Identifier: Apache-2.0
// How many channels of keys one token leaves in the cache of each layer. transformers 5.23 caches
// the turned keys of all key heads; multi-head latent attention the latent and its turned part.
#include "model/hugging_face/layers.h"

namespace posenc::inline v0::hf {
namespace {

using Count = std::optional<Sourced<Index>>;

Count one_key_head(const ConfigView& view, std::string_view key) {
  if (!view.flag(key, false)) return std::nullopt;
  const auto v = view.value(key);
  return Sourced<Index>{1, Origin::derived, v->where};
}

// DeciLM: how many query heads share one of keys, for each layer.
Count heads_by_block(const ConfigView& view, Index layer) {
  const auto heads = view.integer("num_attention_heads", 1, 1'000'000);
  const auto v = view.stated("block_configs");
  if (!heads || !v || !v->value.is_array()) return std::nullopt;
  const auto& blocks = v->value.as_array();
  const auto i = static_cast<std::size_t>(layer);
  const Json* attention = i < blocks.size() ? blocks[i].find("attention") : nullptr;
  const Json* group = attention ? attention->find("n_heads_in_group") : nullptr;
  const auto n = group ? whole_number(*group) : std::nullopt;
  if (!n || *n < 1 || *n > heads->value) return std::nullopt;
  return Sourced<Index>{heads->value / *n, Origin::derived,
                        heads->where + " // " + v->where + "/" + std::to_string(layer) +
                            "/attention/n_heads_in_group"};
}

// Grouped keys: the count of the file or class; null means one for each query head.
Count key_heads(const ConfigView& view, const std::string& layer_type) {
  const auto holds = [&](const char* key) { return view.holds(key); };
  if (layer_type == "full_attention" && holds("num_global_key_value_heads"))
    if (const auto v = view.value("num_global_key_value_heads"); v && !v->value.is_null())
      return view.integer("num_global_key_value_heads", 1, 1'000'000);
  if (holds("multi_query") && !view.flag("new_decoder_architecture", false))
    if (auto one = one_key_head(view, "multi_query")) return one;
  if (holds("multi_query_group_num") && view.flag("multi_query_attention", false))  // ChatGLM
    return view.integer("multi_query_group_num", 1, 1'000'000);
  for (const char* key : {"num_key_value_heads", "num_kv_heads"})
    if (holds(key))
      if (const auto v = view.value(key); v && !v->value.is_null())
        return view.integer(key, 1, 1'000'000);
  if (const auto inner = view.stated("attn_config"); inner && inner->value.is_object())
    if (const Json* n = inner->value.find("kv_n_heads"); n && n->is_integer())
      return Sourced<Index>{n->as_integer(), inner->origin, inner->where + "/kv_n_heads"};
  auto heads = view.integer("num_attention_heads", 1, 1'000'000);
  if (heads) heads->where += ": a key head for each query head";
  return heads;
}

Count head_size(const ConfigView& view, const LayerSpec& layer) {
  if (layer.rotary)
    return Sourced<Index>{layer.rotary->head_dim, Origin::derived, "head_dim of the layer"};
  if (const auto v = view.value("head_dim"); v && !v->value.is_null())
    return view.integer("head_dim", 1, 65536);
  const auto hidden = view.integer("hidden_size", 1, 1'000'000'000);
  const auto heads = view.integer("num_attention_heads", 1, 1'000'000);
  if (!hidden || !heads) return std::nullopt;
  return Sourced<Index>{hidden->value / heads->value, Origin::derived,
                        "hidden_size // num_attention_heads"};
}

Count channels(const ConfigView& view, const std::string& layer_type, const LayerSpec& layer) {
  if (layer.attention.kind == AttentionKind::linear || layer.attention.kind == AttentionKind::none)
    return Sourced<Index>{0, Origin::derived, "the layer keeps no keys"};
  if (layer_type == "cross_attention")  // mllama
    return Sourced<Index>{0, Origin::derived, "the keys are of the image, none of a text token"};
  const std::string& head = view.rules().head;
  if (head.starts_with("latent") && layer.rotary) {
    auto latent = view.integer("kv_lora_rank", 1, 1'000'000);
    if (head == "latent_by_kind" && layer_type == "sliding_attention") {
      const auto own = view.stated("swa_kv_lora_rank");
      const auto n = own ? whole_number(own->value) : std::optional<Index>(1024);
      latent = n ? Sourced<Index>{*n, Origin::derived, "swa_kv_lora_rank"} : Count{};
    }
    if (!latent) return std::nullopt;
    return Sourced<Index>{latent->value + layer.rotary->blocks.front().width(), Origin::derived,
                          "kv_lora_rank + qk_rope_head_dim"};
  }
  const bool blocks = view.rules().layers && view.rules().layers->rule == "blocks";
  const auto heads = blocks ? heads_by_block(view, layer.index) : key_heads(view, layer_type);
  const auto size = head_size(view, layer);
  if (!heads || !size || heads->value * size->value > (Index{1} << 40)) return std::nullopt;
  return Sourced<Index>{heads->value * size->value, Origin::derived,
                        heads->where + " * " + size->where};
}

}  // namespace

void count_cached_keys(const ConfigView& view, const std::vector<std::string>& layer_types,
                       std::vector<LayerSpec>& layers) {
  if (view.rules().bidirectional || view.rules().key_cache_unknown) return;
  // Questions about sizes that only memory needs are no findings of the positions.
  Report quiet(view.report().file, view.report().assume);
  const ConfigView own(view, quiet);
  const auto shared = own.integer("num_kv_shared_layers", 0, 1'000'000);
  const auto count = static_cast<Index>(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (shared && layers[i].index >= count - shared->value)
      layers[i].cached_key_channels =
          Sourced<Index>{0, Origin::derived, shared->where + ": keys of an earlier layer"};
    else
      layers[i].cached_key_channels =
          channels(own, i < layer_types.size() ? layer_types[i] : "", layers[i]);
  }
  view.report().merge_visits(quiet);
}

Sourced<Index> cache_element_bytes(const ConfigView& text, const ConfigView& whole) {
  for (const ConfigView* view : {&text, &whole})
    for (const char* key : {"dtype", "torch_dtype"})
      if (const auto v = view->stated(key); v && v->value.is_string()) {
        const std::string& name = v->value.as_string();
        const Index bytes = name == "float64"                         ? 8
                            : name == "float32"                       ? 4
                            : name == "float16" || name == "bfloat16" ? 2
                            : name.rfind("float8", 0) == 0            ? 1
                                                                      : 0;
        if (bytes > 0) return {bytes, v->origin, v->where};
      }
  return {2, Origin::derived, "no dtype is stated: 16 bit taken"};
}

}  // namespace posenc::v0::hf
