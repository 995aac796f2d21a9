// SPDX-License-Identifier: Apache-2.0
// Layers of a GGUF file: attention, what acts in the score, temperature, rotary.
#include "model/gguf/lower.h"

namespace posenc::inline v0::gguf {
namespace {

// Visible keys of a layer: llama.cpp masks p_query - p_key >= n, or beyond n / 2 on both sides.
void add_attention(const Architecture& arch, const Hparams& h, LayerSpec& layer) {
  const auto i = static_cast<std::size_t>(layer.index);
  AttentionSpec& a = layer.attention;
  const bool keyless =
      arch.text("linear") == "no_kv_heads_no_ff" && of_layer(h.kv_heads, layer.index) == 0;
  if (h.linear[i])
    a.kind = AttentionKind::linear;
  else if (of_layer(h.heads, layer.index) == 0 || keyless)
    a.kind = AttentionKind::none;
  else if (h.sliding[i])
    a.kind = h.window.kind;
  auto kind = arch.constant(enum_text(a.kind));
  if (h.sliding[i]) kind.origin = h.window.pattern_origin, kind.where = h.window.pattern_where;
  add_field(layer, "attention", kind);
  if (!a.attends()) return;
  if (h.causal.value) a.right = 0;
  add_field(layer, "causal", h.causal);
  if (a.kind == AttentionKind::full) return;
  const Index n = h.window.size.value;
  add_field(layer, "window", h.window.size);
  if (a.kind == AttentionKind::chunked) {
    a.chunk = n;
  } else if (arch.group("window")->text("kind") == "symmetric") {
    a.left = n / 2;
    if (!a.right) a.right = n / 2;
  } else {
    a.left = n - 1;
  }
}

void add_encoding(LayerSpec& layer, std::string scheme, Encoding value, const std::string& where) {
  layer.scheme = std::move(scheme);
  layer.encodings.push_back({{std::move(value), Origin::derived, where}, {}});
}

void add_buckets(const Architecture& arch, const Hparams& h, Keys& keys, LayerSpec& layer) {
  constexpr std::string_view key = "attention.relative_buckets_count";
  T5 t5;
  t5.bidirectional = !h.causal.value;
  t5.max_distance = arch.number("t5_max_distance", 128);
  const auto buckets = keys.get<Index>(key);
  if (!buckets || buckets->value < 4 || buckets->value % 4 != 0 || buckets->value > 4096)
    return keys.error(buckets ? "out_of_range" : "missing_key", key,
                      {"{} must be a multiple of 4, 4096 at most", key});
  t5.num_buckets = buckets->value;
  add_field(layer, "num_buckets", *buckets);
  add_field(layer, "max_distance", arch.constant(t5.max_distance));
  add_field(layer, "bidirectional", t5.bidirectional, h.causal.origin, h.causal.where);
  add_encoding(layer, "t5", {t5, {}}, arch.program());
  const std::string stack = h.causal.value ? "dec" : "enc";
  // A layer's own table, else that of the first.
  std::string table = stack + ".blk." + std::to_string(layer.index) + ".attn_rel_b.weight";
  if (keys.file().tensor(table) == nullptr) table = stack + ".blk.0.attn_rel_b.weight";
  layer.encodings.back().tensors.emplace_back("table", std::move(table));
}

void add_alibi(const Architecture& arch, const Hparams& h, Keys& keys, LayerSpec& layer) {
  auto bias = arch.constant(static_cast<double>(arch.number("alibi", 0)));
  if (arch.text("alibi") == "key") keys.take("attention.max_alibi_bias", bias);
  if (arch.has("alibi_layers") && arch.number("alibi_layers", 0) != h.layers) bias.value = 0;
  if (!(bias.value > 0)) return;
  if (bias.value > 1000)
    return keys.error("out_of_range", "attention.max_alibi_bias",
                      "the largest ALiBi exponent must be at most 1000");
  Alibi alibi;
  alibi.max_bias = bias.value;
  add_field(layer, "max_bias", bias);
  add_encoding(layer, "alibi", {alibi, {}}, bias.where);
}

void add_temperature(const Architecture& arch, const Hparams& h, Keys& keys, LayerSpec& layer) {
  const std::string_view rule = arch.text("temperature");
  const bool llama4 = rule == "llama4";
  auto beta = arch.constant(llama4 ? 0.1 : 0.0);
  auto period = arch.constant(Index{llama4 ? 8192 : 0});
  if (rule.empty()) return;
  // Of Llama 4 on layers that do not turn, and only while chunks are in use.
  if (llama4 && (layer.rotary || h.window.kind == AttentionKind::full)) return;
  if (!llama4) keys.take("attention.temperature_scale", beta);
  if (rule == "original_context") period = h.original_context;
  if (rule == "keys") keys.take("attention.temperature_length", period);
  if (beta.value == 0) return;
  if (period.value < 1)
    return keys.error("missing_key", "attention.temperature_length",
                      "the query temperature needs its length");
  const auto form = llama4 ? TemperatureForm::llama4 : TemperatureForm::ministral;
  layer.query_temperature = {form, beta.value, period.value};
  add_field(layer, "query_temperature.form", arch.constant(enum_text(form)));
  add_field(layer, "query_temperature.beta", beta);
  add_field(layer, "query_temperature.period", period);
}

void add_rotary(const Architecture& arch, const Hparams& h, const DivisorTensors& divisors,
                Keys& keys, LayerSpec& layer, Index length) {
  const auto op = rope_operator(arch, h, layer.index);
  if (!op) return;
  try {
    Encoding e = lower_operator(arch, h, divisors, *op, layer);
    layer.rotary = resolve(e, Context{length});
    add_encoding(layer, layer.scheme == "none" ? "rope" : layer.scheme, std::move(e),
                 arch.program());
    layer.unrotates_output = arch.flag("dsv4");
  } catch (const std::invalid_argument& e) {
    keys.error("refused", "rope", e.what(),
               "convert the model again, or --assume the value that the message names");
  }
}

// llama.cpp caches head_count_kv keys of key_length channels (latent attention: one, of the latent
// and the turned part). Nothing for models that read both ways.
void add_cached_keys(const Hparams& h, Keys& keys, LayerSpec& layer) {
  if (!h.causal.value) return;
  if (!layer.attention.attends()) {
    layer.cached_key_channels = {0, Origin::derived, "the layer keeps no keys"};
    return;
  }
  const bool slides = h.sliding[static_cast<std::size_t>(layer.index)];
  Sourced<Index> width = slides ? h.head_dim_sliding : h.head_dim;
  if (!slides) keys.take("attention.key_length", width);
  const Index count = of_layer(h.kv_heads, layer.index);
  if (width.value >= 1 && width.value <= 65536 && count >= 1 && count <= 1'000'000)
    layer.cached_key_channels = {count * width.value, Origin::derived,
                                 keys.full("attention.head_count_kv") + " * " + width.where};
}

}  // namespace

LayerSpec lower_layer(const Architecture& arch, const Hparams& h, const DivisorTensors& divisors,
                      Keys& keys, Index layer, Index length) {
  LayerSpec out;
  out.index = layer;
  add_attention(arch, h, out);
  const bool attends = out.attention.attends();
  if (attends && arch.flag("t5")) add_buckets(arch, h, keys, out);
  if (attends) add_alibi(arch, h, keys, out);
  add_rotary(arch, h, divisors, keys, out, length);
  if (attends) add_temperature(arch, h, keys, out);
  if (attends) add_score(arch, h, keys, out);
  if (attends) add_qk_norm(arch, h, keys, out);
  add_cached_keys(h, keys, out);
  complete_fields(out);
  return out;
}

}  // namespace posenc::v0::gguf
