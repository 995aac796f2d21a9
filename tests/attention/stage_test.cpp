// SPDX-License-Identifier: Apache-2.0
// Stages before the product as models have them: Qwen 3 norms, then rotates; Llama 4 rotates, then
// norms, and where it does not rotate has a factor a query.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/term_tools.h"
#include "posenc/rotary/rope.h"
#include "support/attention_case.h"

namespace posenc {
namespace {

using support::AttentionCase;
using support::Suite;

constexpr Index kBatches = 2, kTokens = 9, kDim = 8;

const Suite& models() {
  static const Suite s("attention");
  return s;
}

// hidden [2, 9, 24] through a matrix [heads * 8, 24]: [2, 9, heads, 8].
std::vector<double> projected(const std::vector<double>& hidden, const std::vector<double>& w) {
  std::vector<double> y;
  const std::size_t outs = w.size() / 24;
  for (std::size_t t = 0; t < hidden.size() / 24; ++t)
    for (std::size_t o = 0; o < outs; ++o) {
      double sum = 0;
      for (std::size_t x = 0; x < 24; ++x) sum += w[o * 24 + x] * hidden[t * 24 + x];
      y.push_back(sum);
    }
  return y;
}
// d [2, 9, outs] of what a matrix gave, to the matrix.
std::vector<double> matrix_gradient(const ConstHeads& d, const std::vector<double>& hidden) {
  const auto outs = static_cast<std::size_t>(d.heads * d.dim);
  std::vector<double> g(outs * 24);
  for (std::size_t t = 0; t < hidden.size() / 24; ++t)
    for (std::size_t o = 0; o < outs; ++o)
      for (std::size_t x = 0; x < 24; ++x)
        g[o * 24 + x] += static_cast<const double*>(d.data)[t * outs + o] * hidden[t * 24 + x];
  return g;
}

// Queries, keys and values that an attention layer projects, and what comes back to them.
struct Layer {
  explicit Layer(AttentionCase& c)
      : hidden(c.array("hidden").value),
        q(projected(hidden, c.array("q_proj_weight").value)),
        k(projected(hidden, c.array("k_proj_weight").value)),
        v(projected(hidden, c.array("v_proj_weight").value)) {
    c.args.q = heads_of(q, 4);
    c.args.k = heads_of(k, 2);
    c.args.v = heads_of(v, 2);
    c.args.scale = 1 / std::sqrt(8.0);
    c.args.query_positions = c.args.key_positions = positions(c.integers("position_ids"));
    c.args.mask.visible = c.flags("visible");
  }
  static ConstHeads heads_of(const std::vector<double>& x, Index n) {
    return heads(tensor(x.data(), {kBatches, kTokens, n, kDim}), HeadsLayout::bthd);
  }
  // Forward, then backward of the layer's grad_out through o_proj.
  void run(AttentionCase& c) {
    out = c.zeros({kBatches, kTokens, 4, kDim});
    support::attention_forward(c.args, {heads(out, HeadsLayout::bthd), {}}, &c.detail);
    const std::vector<double> o = c.array("o_proj_weight").value, up = c.array("grad_out").value;
    const std::vector<double> d_context = projected(up, transposed(o, 24, 32));
    d_q = heads(c.zeros({kBatches, kTokens, 4, kDim}), HeadsLayout::bthd);
    d_k = heads(c.zeros({kBatches, kTokens, 2, kDim}), HeadsLayout::bthd);
    d_v = heads(c.zeros({kBatches, kTokens, 2, kDim}), HeadsLayout::bthd);
    for (const Stage& s : c.args.prepare) stages.push_back({c.zeros_like(s.q), c.zeros_like(s.k)});
    AttentionGradients g;
    g.q = d_q;
    g.k = d_k;
    g.v = d_v;
    g.prepare = stages;
    support::attention_backward(c.args, heads_of(d_context, 4), {}, g);
  }
  void expect(AttentionCase& c) {
    c.expect("context", out);
    c.expect_pairs("probabilities", c.detail.probabilities);
    c.expect("grad_q_proj_weight", matrix_gradient(d_q, hidden));
    c.expect("grad_k_proj_weight", matrix_gradient(d_k, hidden));
    c.expect("grad_v_proj_weight", matrix_gradient(d_v, hidden));
  }

  std::vector<double> hidden, q, k, v;
  TensorView out;
  Heads d_q, d_k, d_v;
  std::vector<StageGradient> stages;
};

TEST(AttentionStages, QwenNormsThenRotates) {
  AttentionCase c(models(), "hf_qwen3_qk_norm");
  c.tolerance = 4e-6;  // the peer makes cosines, norms and the softmax in float32
  Layer layer(c);
  const RotarySpec rope =
      resolve(Rope{.head_dim = kDim, .base = 10000, .pairing = Pairing::half_split});
  const Index shape[] = {1, kDim};
  const Stage prepare[] = {Stage{.kind = StageKind::rms,
                                 .q = c.lowered.array(c.array("q_norm_weight").value, shape),
                                 .k = c.lowered.array(c.array("k_norm_weight").value, shape),
                                 .epsilon = 1e-6},
                           Stage{.kind = StageKind::rotate, .rotary = &rope}};
  c.args.prepare = prepare;
  layer.run(c);
  layer.expect(c);
  c.expect("grad_q_norm_weight", layer.stages[0].q);
  c.expect("grad_k_norm_weight", layer.stages[0].k);
}

TEST(AttentionStages, LlamaRotatesThenNorms) {
  AttentionCase c(models(), "hf_llama4_chunked_rope");
  c.tolerance = 2e-6;
  Layer layer(c);
  const RotarySpec rope =
      resolve(Rope{.head_dim = kDim, .base = 10000, .pairing = Pairing::interleaved});
  const Stage prepare[] = {Stage{.kind = StageKind::rotate, .rotary = &rope},
                           Stage{.kind = StageKind::rms, .epsilon = 1e-5}};
  c.args.prepare = prepare;
  layer.run(c);
  layer.expect(c);
}

TEST(AttentionStages, LlamaHasAFactorAQueryWhereItDoesNotRotate) {
  AttentionCase c(models(), "hf_llama4_nope_temperature");
  c.tolerance = 4e-7;
  Layer layer(c);
  std::vector<double> factor;  // 1 + attn_scale ln(floor((position + 1) / floor_scale) + 1)
  for (const Index p : c.array("position_ids").integers())
    factor.push_back(1 + 0.4 * std::log1p(std::floor(static_cast<double>(p + 1) / 3)));
  c.args.query_factor = tensor(factor.data(), {kBatches, kTokens});
  layer.run(c);
  layer.expect(c);
}

}  // namespace
}  // namespace posenc
