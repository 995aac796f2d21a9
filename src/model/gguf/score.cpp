// SPDX-License-Identifier: Apache-2.0
// What multiplies q.k, the soft cap and learned sinks: by the architecture's name, its keys and
// tensors. Read in llama.cpp, models/*.cpp (kq_scale, f_attention_scale, attn_soft_cap, attn_sinks).
// The norm of q and k: its kind and place are the architecture's, whether a layer has one and over
// what is told by its tensors.
#include <cmath>

#include "model/gguf/lower.h"

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
  set_scale(layer, 1 / std::sqrt(static_cast<double>(width->value / heads)), 0, Origin::derived,
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

}  // namespace posenc::v0::gguf
