// SPDX-License-Identifier: Apache-2.0
// Layers of a GGUF file: attention, what acts in the score, temperature, rotary. What multiplies q.k,
// the soft cap and learned sinks go by the architecture's name, its keys and tensors; read in
// llama.cpp, models/*.cpp (kq_scale, f_attention_scale, attn_soft_cap, attn_sinks). The norm of q and
// k: its kind and place are the architecture's, whether a layer has one and over what is told by its
// tensors.
#include <cmath>

#include "model/gguf/hparams.h"

namespace posenc::inline v0::gguf {
namespace {

void set_scale(LayerSpec& layer, double factor, double power, Origin origin, std::string where) {
  layer.scale = {factor, power};
  add_field(layer, "scale.factor", factor, origin, where);
  add_field(layer, "scale.head_dim_power", power, origin, std::move(where));
}

// 1 / sqrt(embedding_length / head_count), whole: Gemma of 27B, told by its layers.
void scale_of_width(const Architecture& rule, const Hparams& h, Keys& keys, LayerSpec& layer) {
  if (h.layers != rule.number("layers", 0)) return;
  const auto width = keys.get<Index>("embedding_length");
  const Index heads = of_layer(h.heads, 0);
  if (!width || heads < 1 || width->value < heads)
    return keys.error(width ? "out_of_range" : "missing_key", "embedding_length",
                      "the scale of q.k is made of embedding_length and head_count");
  const Index channels = width->value / heads;
  set_scale(layer, 1 / std::sqrt(static_cast<double>(channels)), 0, Origin::derived,
            "1 / sqrt(" + width->where + " / head_count)");
}

void scale_by_key(std::string_view key, double absent, Keys& keys, LayerSpec& layer) {
  const auto stated = keys.get<double>(key);
  const double value = stated && stated->value != 0 ? stated->value : absent;
  if (value == 0) return;  // head_dim^-1/2
  set_scale(layer, value, 0, stated ? stated->origin : Origin::class_default,
            stated ? stated->where : "llama.cpp");
}

// Over what a norm goes whose weights have this shape; false: neither.
bool read_span(const GgufTensor& t, Index head_dim, Index heads, bool own_weights, QkNorm& out) {
  const auto width = static_cast<std::uint64_t>(head_dim);
  const auto count = static_cast<std::uint64_t>(heads);
  out.weights = own_weights ? NormWeights::each_head : NormWeights::shared;
  if (own_weights) return t.shape.size() == 2 && t.shape[0] == width && t.shape[1] == count;
  if (t.shape.size() != 1 || (t.shape[0] != width && t.shape[0] != width * count)) return false;
  out.over = t.shape[0] == width ? NormSpan::head : NormSpan::all_heads;
  return true;
}

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
  // llama.cpp counts by the positions of the batch, whatever the form.
  constexpr TemperatureIndex by = TemperatureIndex::position;
  layer.query_temperature = {form, beta.value, period.value, by};
  add_field(layer, "query_temperature.form", arch.constant(enum_text(form)));
  add_field(layer, "query_temperature.by", arch.constant(enum_text(by)));
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
    add_encoding(layer, layer.has_scheme() ? layer.scheme : std::string(Rope::card.name),
                 std::move(e), arch.program());
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

void add_score(const Architecture& arch, const Hparams& h, Keys& keys, LayerSpec& layer) {
  layer.scale = ContentScale{};
  const auto rule = arch.group("score");
  if (!rule) return;
  const std::string_view scale = rule->text("scale");
  if (scale == "one") set_scale(layer, 1, 0, Origin::class_default, arch.program());
  if (scale == "over_head") set_scale(layer, 1, -1, Origin::class_default, arch.program());
  if (scale == "width") scale_of_width(*rule, h, keys, layer);
  if (scale == "key") scale_by_key("attention.scale", 0, keys, layer);
  if (scale == "output_key")
    scale_by_key("attention.output_scale", 0.08838834764831845, keys, layer);
  if (rule->has("softcap")) {
    auto cap = arch.constant(static_cast<double>(rule->number("softcap", 0)));
    keys.take("attn_logit_softcapping", cap);
    if (!(cap.value > 0))
      return keys.error("out_of_range", "attn_logit_softcapping", "must be positive");
    layer.softcap = cap.value;
    add_field(layer, "softcap", cap);
  }
  if (!rule->flag("sinks") || h.layers < 1) return;
  const std::string name = "blk." + std::to_string(layer.index % h.layers) + ".attn_sinks.weight";
  if (keys.file().tensor(name) != nullptr) layer.sinks = name;
}

void add_qk_norm(const Architecture& arch, const Hparams& h, const Keys& keys, LayerSpec& layer) {
  const std::string_view rule = arch.text("qk_norm");
  if (rule.empty() || h.layers < 1) return;
  const Index of_file = layer.index % h.layers;
  const std::string name = "blk." + std::to_string(of_file) + ".attn_q_norm.weight";
  const GgufTensor* weights = keys.file().tensor(name);
  if (weights == nullptr) return;
  const bool layer_norm = rule == "layer_norm";
  QkNorm norm;
  norm.kind = layer_norm ? NormKind::layer_norm : NormKind::rms;
  norm.after_rotation = rule == "rms_after";
  const bool slides = h.sliding[static_cast<std::size_t>(layer.index)];
  const Sourced<Index>& width = slides ? h.head_dim_sliding : h.head_dim;
  if (!read_span(*weights, width.value, of_layer(h.heads, of_file), layer_norm, norm)) return;
  norm.eps_key = keys.full(layer_norm ? "attention.layer_norm_epsilon"  //
                                      : "attention.layer_norm_rms_epsilon");
  if (const GgufValue* eps = keys.file().find(norm.eps_key)) norm.eps = eps->number();
  add_field(layer, "qk_norm", enum_text(norm.kind), Origin::derived, name);
  layer.qk_norm = std::move(norm);
}

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
