// SPDX-License-Identifier: Apache-2.0
// Layers of a GGUF file: attention, what acts in the score, temperature, rotary.
#include "model/gguf/lower.h"

#include "model/gguf/fields.h"

namespace posenc::gguf {
namespace {

// Visible keys of a layer: llama.cpp masks p_query - p_key >= n, or beyond n / 2 on both sides.
AttentionSpec attention_of(const Architecture& arch, const Hparams& h, Index layer, Fields& f) {
  const auto i = static_cast<std::size_t>(layer);
  AttentionSpec a;
  const std::string who = arch.program();
  const bool headless = h.heads.empty() || h.heads[i % h.heads.size()] == 0;
  const bool no_keys = arch.text("linear") == "no_kv_heads_no_ff" && !h.kv_heads.empty() &&
                       h.kv_heads[i % h.kv_heads.size()] == 0;
  if (h.linear[i])
    a.kind = AttentionKind::linear;
  else if (headless || no_keys)
    a.kind = AttentionKind::none;
  else if (h.sliding[i])
    a.kind = h.window.kind;
  f.add("attention", Json(enum_text(a.kind)),
        h.sliding[i] ? h.window.pattern_origin : Origin::class_default,
        h.sliding[i] ? h.window.pattern_where : who);
  if (a.kind == AttentionKind::linear || a.kind == AttentionKind::none) return a;
  if (h.causal.value) a.right = 0;
  f.add("causal", h.causal);
  if (a.kind == AttentionKind::full) return a;
  const Index n = h.window.size.value;
  f.add("window", h.window.size);
  if (a.kind == AttentionKind::chunked) {
    a.chunk = n;
  } else if (arch.group("window")->text("kind") == "symmetric") {
    a.left = n / 2;
    if (!a.right) a.right = n / 2;
  } else {
    a.left = n - 1;
  }
  return a;
}

void add_encoding(LayerSpec& layer, Scheme scheme, const std::string& where) {
  Sourced<Encoding> e;
  e.value.scheme = std::move(scheme);
  e.where = where;
  layer.encodings.push_back(std::move(e));
}

// What acts in the score: T5's buckets, ALiBi.
void add_bias(const Architecture& arch, const Hparams& h, Keys& keys, LayerSpec& layer) {
  Fields f(layer);
  const std::string who = arch.program();
  if (arch.flag("t5")) {
    T5 t5;
    t5.bidirectional = !h.causal.value;
    t5.max_distance = arch.number("t5_max_distance", 128);
    const auto buckets = keys.integer("attention.relative_buckets_count");
    if (!buckets || buckets->value < 4 || buckets->value % 4 != 0 || buckets->value > 4096) {
      keys.error(buckets ? "out_of_range" : "missing_key", "attention.relative_buckets_count",
                 "attention.relative_buckets_count must be a multiple of 4, 4096 at most");
      return;
    }
    t5.num_buckets = buckets->value;
    layer.scheme = "t5";
    f.add("num_buckets", *buckets);
    f.add("max_distance", Json(t5.max_distance), Origin::class_default, who);
    f.add("bidirectional", Json(t5.bidirectional), h.causal.origin, h.causal.where);
    add_encoding(layer, t5, who);
  }
  auto bias = arch.constant(static_cast<double>(arch.number("alibi", 0)));
  if (arch.text("alibi") == "key")
    if (const auto v = keys.number("attention.max_alibi_bias")) bias = *v;
  if (arch.has("alibi_layers") && arch.number("alibi_layers", 0) != h.layers) bias.value = 0;
  if (!(bias.value > 0)) return;
  if (bias.value > 1000) {
    keys.error("out_of_range", "attention.max_alibi_bias",
               "the largest ALiBi exponent must be at most 1000");
    return;
  }
  Alibi alibi;
  alibi.max_bias = bias.value;
  layer.scheme = "alibi";
  f.add("max_bias", bias);
  add_encoding(layer, alibi, bias.where);
}

void add_temperature(const Architecture& arch, const Hparams& h, Keys& keys, LayerSpec& layer) {
  const std::string_view rule = arch.text("temperature");
  auto beta = arch.constant(0.0);
  auto period = arch.constant(Index{0});
  if (rule.empty()) return;
  if (rule == "llama4") {
    // On layers that do not turn, and only while chunks are in use.
    if (layer.rotary || h.window.kind == AttentionKind::full) return;
    beta.value = 0.1;
    period.value = 8192;
  } else {
    if (const auto v = keys.number("attention.temperature_scale")) beta = *v;
    if (rule == "original_context")
      period = h.original_context;
    else if (const auto length = keys.integer("attention.temperature_length"))
      period = *length;
  }
  if (beta.value == 0) return;
  if (period.value < 1) {
    keys.error("missing_key", "attention.temperature_length",
               "the query temperature needs its length");
    return;
  }
  QueryTemperature t;
  t.form = rule == "llama4" ? TemperatureForm::llama4 : TemperatureForm::ministral;
  t.beta = beta.value;
  t.period = period.value;
  layer.query_temperature = t;
  Fields f(layer);
  f.add("query_temperature.form", Json(enum_text(t.form)), Origin::class_default, arch.program());
  f.add("query_temperature.beta", beta);
  f.add("query_temperature.period", period);
}

// llama.cpp caches head_count_kv keys of key_length channels (latent attention: one, of the latent
// and the turned part). Nothing for models that read both ways.
std::optional<Sourced<Index>> cached_keys(const Hparams& h, Keys& keys, const LayerSpec& layer,
                                          Index index) {
  if (!h.causal.value) return std::nullopt;
  if (layer.attention.kind == AttentionKind::linear || layer.attention.kind == AttentionKind::none)
    return Sourced<Index>{0, Origin::derived, "the layer keeps no keys"};
  const auto i = static_cast<std::size_t>(index);
  const auto& heads = h.kv_heads.empty() ? h.heads : h.kv_heads;
  if (heads.empty()) return std::nullopt;
  Sourced<Index> width = h.sliding[i] ? h.head_dim_sliding : h.head_dim;
  if (!h.sliding[i] && keys.has("attention.key_length"))
    if (const auto own = keys.integer("attention.key_length")) width = *own;
  const Index count = heads[i % heads.size()];
  if (width.value < 1 || width.value > 65536 || count < 1 || count > 1'000'000) return std::nullopt;
  return Sourced<Index>{count * width.value, Origin::derived,
                        keys.full("attention.head_count_kv") + " * " + width.where};
}

}  // namespace

LayerSpec lower_layer(const Architecture& arch, const Hparams& h, const DivisorTensors& divisors,
                      Keys& keys, Index layer, Index length) {
  LayerSpec out;
  out.index = layer;
  Fields fields(out);
  out.attention = attention_of(arch, h, layer, fields);
  const bool attends =
      out.attention.kind != AttentionKind::linear && out.attention.kind != AttentionKind::none;
  if (attends) add_bias(arch, h, keys, out);
  if (const auto op = rope_operator(arch, h, layer)) {
    try {
      Sourced<Encoding> e;
      e.value = lower_operator(arch, h, divisors, *op, out);
      e.origin = Origin::derived;
      e.where = arch.program();
      out.rotary = resolve(e.value, Context{length});
      out.encodings.push_back(std::move(e));
      if (out.scheme == "none") out.scheme = "rope";
      out.unrotates_output = arch.flag("dsv4");
    } catch (const std::invalid_argument& e) {
      keys.error("refused", "rope", e.what(),
                 "convert the model again, or --assume the value that the message names");
    }
  }
  if (attends) add_temperature(arch, h, keys, out);
  out.cached_key_channels = cached_keys(h, keys, out, layer);
  complete_fields(out);
  return out;
}

}  // namespace posenc::gguf
