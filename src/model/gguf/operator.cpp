// SPDX-License-Identifier: Apache-2.0
// The arguments of ggml_rope_ext, layer by layer, as llama.cpp's context and graphs form them.
#include <cmath>

#include "model/gguf/hparams.h"

namespace posenc::gguf {
namespace {

// YaRN's 0.1 m ln s + 1, 1 for s <= 1 (arXiv:2309.00071, eq. 22; DeepSeek's mscale).
double mscale(double s, double m) {
  return s <= 1 ? 1.0 : 0.1 * m * std::log(s) + 1.0;
}

// The attn_factor of the context: what the kernel's own 1 + 0.1 ln s is divided out of.
double context_attn_factor(const Architecture& arch, const Hparams& h) {
  double a = h.yarn_attn.value;
  const double s = h.factor.value;
  if (h.ext_factor.value != 0) {
    a = mscale(s, 1);
    if (h.log_multiplier) {
      const double all = h.log_multiplier->value;
      const double m = arch.flag("mscale_is_all_dim") && all != 1 ? all : 1;
      a = mscale(s, m) / mscale(s, all);
    }
    a /= 1 + 0.1 * std::log(s);
  }
  return a * h.attn_key.value;
}

// MLA graphs scale the softmax by (A (1 + 0.1 m ln s))^2, A being attn_factor (1 + 0.1 ln s).
double logit_factor(const Architecture& arch, const Hparams& h) {
  if (!arch.flag("logit_mscale")) return 1;
  const double ln = std::log(h.factor.value);
  const double m = h.log_multiplier ? h.log_multiplier->value : 0;
  const double a = context_attn_factor(arch, h) * (1 + 0.1 * ln) * (1 + 0.1 * m * ln);
  return a * a;
}

void compressed(const Architecture& arch, const Hparams& h, Index layer, RopeOperator& op) {
  if (of_layer(h.compress_ratio, layer) != 0) {
    op.base = *h.compress_base;
    op.factor = h.factor;
    op.attn_factor = op.ext_factor == 0 ? 1 : 1 / (1 + 0.1 * std::log(h.factor.value));
  } else {
    op.base = h.base;
    op.factor = arch.constant(1.0);
    op.ext_factor = 0;
    op.attn_factor = 1;
  }
}

}  // namespace

double RopeOperator::amplitude() const {
  return ext_factor == 0 ? attn_factor : attn_factor * (1 + 0.1 * std::log(factor.value));
}

std::optional<RopeOperator> rope_operator(const Architecture& arch, const Hparams& h, Index layer) {
  const auto i = static_cast<std::size_t>(layer);
  if (!h.rotated[i]) return std::nullopt;
  const bool slides = h.sliding[i];
  // Graphs that do not ask layer by layer take the widths of layer 0.
  const bool narrow = arch.flag("layer_widths") ? slides : h.sliding[0];
  RopeOperator op;
  op.mode = h.mode;
  op.head_dim = (arch.flag("mla") ? slides : narrow) ? h.head_dim_sliding : h.head_dim;
  op.n_dims = narrow ? h.rotary_dim_sliding : h.rotary_dim;
  if (arch.text("rotary_dim") == "head") op.n_dims = op.head_dim;
  if (arch.flag("mla") || arch.flag("tail")) op.offset = op.head_dim.value - op.n_dims.value;
  op.base = slides ? h.base_sliding : h.base;
  op.factor = slides ? h.factor_sliding : h.factor;
  op.ext_factor = h.ext_factor.value;
  op.attn_factor = context_attn_factor(arch, h);
  if (arch.has("plain_base")) op.attn_factor = 1;
  if (slides && h.sliding_plain) {
    op.factor = arch.constant(1.0);
    op.ext_factor = 0;
    op.attn_factor = 1;
  }
  op.logit_factor = logit_factor(arch, h);
  const std::string_view divided = arch.text("factors");
  op.uses_divisors = !divided.empty() && !(slides && divided.substr(0, 4) == "full");
  if (arch.flag("dsv4")) compressed(arch, h, layer, op);
  return op;
}

}  // namespace posenc::gguf
