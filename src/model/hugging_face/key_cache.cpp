// SPDX-License-Identifier: Apache-2.0
// How many channels of keys one token leaves in the cache of each layer. transformers 5.23 caches
// the turned keys of all key heads; multi-head latent attention the latent and its turned part.
#include "model/hugging_face/key_cache.h"
#include "model/hugging_face/head_size.h"

namespace posenc::inline v0::hf {
namespace {

using Count = std::optional<Sourced<Index>>;

// DeciLM: how many query heads share one of keys, for each layer.
Count heads_by_block(const ConfigView& view, const Value& blocks, Index layer) {
  const auto heads = view.integer("num_attention_heads", 1, 1'000'000);
  const std::string path = message("/{}/attention/n_heads_in_group", layer);
  const Json* group = blocks.value.at_pointer(path);
  const auto n = group ? whole_number(*group) : std::nullopt;
  if (!heads || !n || *n < 1 || *n > heads->value) return std::nullopt;
  return counted(heads->value / *n, heads->where + " // " + blocks.where + path);
}

// Grouped keys: the count of the file or class; null means one for each query head.
Count key_heads(const ConfigView& view, const std::string& layer_type) {
  const auto held = [&](const char* key) { return view.holds(key) && view.value_or_none(key); };
  const auto count = [&](const char* key) { return view.integer(key, 1, 1'000'000); };
  if (layer_type == "full_attention" && held("num_global_key_value_heads"))
    return count("num_global_key_value_heads");
  if (layer_type == "hybrid_sliding" && held("swa_num_key_value_heads"))  // Inkling
    return count("swa_num_key_value_heads");
  if (view.holds("multi_query") && !view.flag("new_decoder_architecture", false) &&
      view.flag("multi_query", false))
    return counted(1, view.value("multi_query")->where);
  if (view.holds("multi_query_group_num") && view.flag("multi_query_attention", false))  // ChatGLM
    return count("multi_query_group_num");
  for (const char* key : {"num_key_value_heads", "num_kv_heads"})
    if (held(key)) return count(key);
  if (const auto inner = view.stated("attn_config"))
    if (const Json* n = inner->value.find("kv_n_heads"); n && n->is_integer())
      return Sourced<Index>{n->as_integer(), inner->origin, inner->where + "/kv_n_heads"};
  auto heads = count("num_attention_heads");
  if (heads) heads->where += ": a key head for each query head";
  return heads;
}

Count head_size(const ConfigView& view, const std::string& layer_type, const LayerSpec& layer) {
  if (layer.rotary) return counted(layer.rotary->head_dim, "head_dim of the layer");
  if (layer_type == "hybrid_sliding" && view.holds("swa_head_dim"))
    return view.integer("swa_head_dim", 1, 65536);
  if (view.value_or_none("head_dim")) return view.integer("head_dim", 1, 65536);
  return width_over_heads(view, false);
}

// Of multi-head latent attention. What is turned elsewhere is cached by layers without rotary, too (Kimi Linear), but for
// classes that leave it out there (Mistral Large 4).
Count latent_channels(const ConfigView& view, const std::string& layer_type,
                      const LayerSpec& layer) {
  auto latent = view.integer("kv_lora_rank", 1, 1'000'000);
  if (view.rules().head == "latent_by_kind" && layer_type == "sliding_attention") {
    const auto own = view.stated("swa_kv_lora_rank");
    const auto n = own ? whole_number(own->value) : std::optional<Index>(1024);
    latent = n ? Count(counted(*n, "swa_kv_lora_rank")) : std::nullopt;
  }
  if (!latent) return std::nullopt;
  if (!layer.rotary && !view.rules().rotary_on.empty())
    return counted(latent->value, "kv_lora_rank");
  const Count turned = layer.rotary ? counted(layer.rotary->blocks.front().width(), "")
                                    : view.integer("qk_rope_head_dim", 0, 65536);
  if (!turned) return std::nullopt;
  return counted(latent->value + turned->value, "kv_lora_rank + qk_rope_head_dim");
}

Count channels(const ConfigView& view, const std::optional<Value>& blocks,
               const std::string& layer_type, const LayerSpec& layer) {
  if (!layer.attention.attends()) return counted(0, "the layer keeps no keys");
  if (layer_type == "cross_attention")  // mllama
    return counted(0, "the keys are of the image, none of a text token");
  if (view.rules().head.starts_with("latent") || view.holds("kv_lora_rank"))
    return latent_channels(view, layer_type, layer);
  const auto heads =
      blocks ? heads_by_block(view, *blocks, layer.index) : key_heads(view, layer_type);
  const auto size = head_size(view, layer_type, layer);
  if (!heads || !size || heads->value * size->value > (Index{1} << 40)) return std::nullopt;
  return counted(heads->value * size->value, heads->where + " * " + size->where);
}

// Where it is said that a layer reads the keys of an earlier one; empty: it has its own.
std::string shares_keys(const ConfigView& view, Index layer, Index count) {
  const auto last = view.integer("num_kv_shared_layers", 0, 1'000'000);
  if (last && layer >= count - last->value) return last->where;
  const auto sources =
      view.holds("kv_source_layers") ? view.stated("kv_source_layers") : std::nullopt;
  const std::string at = "/" + std::to_string(layer);
  const Json* source = sources ? sources->value.at_pointer(at) : nullptr;
  const auto n = source ? whole_number(*source) : std::nullopt;
  return n && *n != layer ? sources->where + at : "";
}

Index bytes_of(const std::string& dtype) {
  if (dtype == "float64") return 8;
  if (dtype == "float32") return 4;
  if (dtype == "float16" || dtype == "bfloat16") return 2;
  return dtype.starts_with("float8") ? 1 : 0;
}

}  // namespace

void count_cached_keys(const ConfigView& view, const std::vector<std::string>& layer_types,
                       std::vector<LayerSpec>& layers) {
  if (view.rules().bidirectional || view.rules().key_cache_unknown) return;
  // Questions about sizes that only memory needs are no findings of the positions.
  Report quiet(view.report().file, view.report().assume);
  const ConfigView own(view, quiet);
  const std::optional<LayerRules>& rule = view.rules().layers;
  const auto blocks = rule && rule->rule == "blocks" ? own.stated(rule->key) : std::nullopt;
  const auto count = static_cast<Index>(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string shared = shares_keys(own, layers[i].index, count);
    layers[i].cached_key_channels = shared.empty()
                                        ? channels(own, blocks, layer_types[i], layers[i])
                                        : counted(0, shared + ": keys of an earlier layer");
  }
  view.report().merge_visits(quiet);
}

Sourced<Index> cache_element_bytes(const ConfigView& text, const ConfigView& whole) {
  for (const ConfigView* view : {&text, &whole})
    for (const char* key : {"dtype", "torch_dtype"})
      if (const auto v = view->stated(key); v && v->value.is_string())
        if (const Index bytes = bytes_of(v->value.as_string())) return {bytes, v->origin, v->where};
  return {2, Origin::derived, "no dtype is stated: 16 bits assumed"};
}

}  // namespace posenc::v0::hf
