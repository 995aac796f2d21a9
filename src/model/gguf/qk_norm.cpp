// SPDX-License-Identifier: Apache-2.0
// The norm of q and k: its kind and place are the architecture's, whether a layer has one and over
// what is told by its tensors.
#include "model/gguf/lower.h"

namespace posenc::inline v0::gguf {
namespace {

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
