// SPDX-License-Identifier: Apache-2.0
// The hyperparameters of a GGUF file as llama.cpp loads them, each with where it came from; the rope
// operator that it runs on each layer; and from these to encodings, rotary specs and fields.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/contains.h"
#include "model/gguf/architecture.h"
#include "model/gguf/keys.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::gguf {

enum class Mode : unsigned char { none, norm, neox, mrope, imrope };

struct Window {
  AttentionKind kind = AttentionKind::full;  // full: there is none
  Sourced<Index> size;
  Origin pattern_origin = Origin::class_default;
  std::string pattern_where;
};

struct Hparams {
  Sourced<Index> context, original_context;
  Index layers = 0, run_layers = 0;  // of the file; of the graph (loops)
  Index leading_dense = 0;
  Mode mode = Mode::none;
  Sourced<bool> causal = usual(true);
  std::vector<Index> heads, kv_heads, feed_forward;
  Sourced<Index> head_dim, head_dim_sliding, rotary_dim, rotary_dim_sliding;
  Sourced<double> base = usual(10000.0), factor = usual(1.0), base_sliding, factor_sliding;
  bool sliding_plain = false;
  Sourced<std::string> scaling_type = usual(std::string("linear"));
  Sourced<double> ext_factor, yarn_attn = usual(1.0), beta_fast, beta_slow = usual(1.0),
                              attn_key = usual(1.0);
  std::optional<Sourced<double>> log_multiplier;  // m of g(s, m), already times 10 where needed
  std::optional<Sourced<double>> alpha;
  std::optional<Sourced<std::vector<Index>>> sections;  // four
  Window window;
  std::vector<bool> sliding, linear, rotated;
  std::vector<Index> compress_ratio;
  std::optional<Sourced<double>> compress_base;
};

// Lists hold one value a layer of the file; a graph that loops runs through them again.
inline Index of_layer(const std::vector<Index>& list, Index layer) {
  return list.empty() ? 0 : list[static_cast<std::size_t>(layer) % list.size()];
}

// Reads everything; findings tell what is wrong (keys.failed()).
Hparams read_hparams(const Architecture&, Keys&);
// Parts of it, one file each.
void read_scaling(const Architecture&, Keys&, Hparams&);
void read_layers(const Architecture&, Keys&, Hparams&);

// DivisorTensors of the frequency, as the file's tensors give them; empty: not there.
struct Divisor {
  std::vector<double> values;
  std::string tensor;
};
struct DivisorTensors {
  Divisor always, beyond, within;  // rope_freqs, rope_factors_long, rope_factors_short
  bool by_length() const { return !beyond.values.empty() || !within.values.empty(); }
};
DivisorTensors read_divisors(const Architecture&, Keys&);

// What llama.cpp passes to ggml_rope_ext on one layer.
struct RopeOperator {
  Sourced<Index> head_dim, n_dims;
  Index offset = 0;
  Mode mode = Mode::none;
  Sourced<double> base, factor;  // freq_scale = 1 / factor
  double ext_factor = 0, attn_factor = 1;
  bool uses_divisors = false;
  double logit_factor = 1;
  // What cos and sin end up multiplied by: the kernel itself multiplies by 1 + 0.1 ln s.
  double amplitude() const;
};
// Nothing for layers that do not turn.
std::optional<RopeOperator> rope_operator(const Architecture&, const Hparams&, Index layer);

// Appended to the fields of a layer, each with where it came from.
inline void add_field(LayerSpec& layer, std::string name, Json value, Origin origin,
                      std::string where) {
  layer.fields.push_back({std::move(name), std::move(value), origin, std::move(where)});
}
template <class T>
void add_field(LayerSpec& layer, std::string name, const Sourced<T>& v) {
  add_field(layer, std::move(name), Json(v.value), v.origin, v.where);
}

// One layer, resolved for a context of `length` tokens. Refusals become findings of `keys`.
LayerSpec lower_layer(const Architecture&, const Hparams&, const DivisorTensors&, Keys&,
                      Index layer, Index length);
// The encoding of an operator: scheme and chain of scalings; fields are appended to `layer`.
Encoding lower_operator(const Architecture&, const Hparams&, const DivisorTensors&,
                        const RopeOperator&, LayerSpec& layer);
// The norm of q and k, where the layer's tensors have one and the architecture says which.
void add_qk_norm(const Architecture&, const Hparams&, const Keys&, LayerSpec&);
// scale, softcap and sinks of a layer that attends.
void add_score(const Architecture&, const Hparams&, Keys&, LayerSpec&);
// What GGUF loses, what llama.cpp ignores or does otherwise: findings about the whole file.
void note_losses(const Architecture&, const Hparams&, const DivisorTensors&, Keys&,
                 const ModelSpec&);

}  // namespace posenc::v0::gguf
