// SPDX-License-Identifier: Apache-2.0
// WavLM's gate against transformers' attention: q, k and v are products of the hidden state that
// the gate reads too, so that its gradient is the sum of four.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "kernels/matmul.h"
#include "posenc/attention/plan.h"
#include "posenc/positions/sequence.h"
#include "posenc/relative/wavlm.h"
#include "support/suite.h"

namespace posenc {
namespace {

using WavLmNumbers = std::vector<double>;
constexpr Index kRows = 18, kWidth = 12;  // 2 rows of 9 tokens, 2 heads of 6 channels

const support::SuiteArray& wavlm_array(const std::string& name) {
  static const support::Suite suite("relative_bias");
  static std::map<std::string, support::SuiteArray> kept;
  return kept.try_emplace(name, suite("t5_gated_wavlm", name)).first->second;
}

// x W^T, or x W.
void wavlm_multiply(const WavLmNumbers& x, const WavLmNumbers& w, bool transpose,
                    WavLmNumbers& out) {
  const detail::ConstMatrix m{w.data(), kWidth, kWidth, kWidth, 1};
  detail::add_product({x.data(), kRows, kWidth, kWidth, 1}, transpose ? detail::transposed(m) : m,
                      {out.data(), kWidth, 1});
}

void expect_wavlm(const WavLmNumbers& got, const std::string& name) {
  const WavLmNumbers& want = wavlm_array(name).value;
  ASSERT_EQ(got.size(), want.size()) << name;
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 2e-12 * std::max(1.0, std::fabs(want[i]))) << name << " " << i;
}

template <class T>
auto wavlm_heads(T* x) {
  return heads(tensor(x, DType::f64, std::vector<Index>{2, 9, 2, 6}), HeadsLayout::bthd);
}

TEST(WavLm, IsTransformersAttention) {
  const WavLmNumbers& x = wavlm_array("x").value;
  const std::vector<std::string> projections{"wq", "wk", "wv"};
  std::vector<WavLmNumbers> qkv(3, WavLmNumbers(x.size())), dqkv = qkv;
  for (std::size_t i = 0; i < 3; ++i)
    wavlm_multiply(x, wavlm_array(projections[i]).value, true, qkv[i]);
  const AttentionPlan plan({"wavlm num_buckets=16 max_distance=12"}, {.heads = 2, .head_dim = 6});
  const OwnedPositions positions = arange(0, 9);
  std::vector<NamedArray> parameters;
  std::vector<WavLmNumbers> d;
  const std::vector<std::string> names{"table", "gate_const", "gate_weight", "gate_bias", "hidden"};
  std::vector<NamedGradient> gradients;
  for (const std::string& name : names) {
    const support::SuiteArray& a = wavlm_array(name == "hidden" ? "x" : name);
    parameters.push_back(
        {name, tensor(static_cast<const void*>(a.value.data()), DType::f64, a.shape)});
    d.emplace_back(a.value.size());
    gradients.push_back({name, tensor(static_cast<void*>(d.back().data()), DType::f64, a.shape)});
  }
  const std::vector<NamedArray> hidden{parameters.back()};
  parameters.pop_back();
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(positions, positions));
  AttentionArgs call;
  call.q = wavlm_heads(static_cast<const void*>(qkv[0].data()));
  call.k = wavlm_heads(static_cast<const void*>(qkv[1].data()));
  call.v = wavlm_heads(static_cast<const void*>(qkv[2].data()));
  call.query_positions = call.key_positions = positions;
  WavLmNumbers out(x.size()), lse(2 * 2 * 9), scores(2 * 2 * 9 * 9);
  const AttentionResult result{wavlm_heads(static_cast<void*>(out.data())),
                               tensor(lse.data(), {2, 2, 9})};
  lowered.forward(call, hidden, result);
  expect_wavlm(out, "out");
  AttentionScores s;
  s.scores = tensor(scores.data(), {2, 2, 9, 9});
  lowered.scores(call, hidden, s);
  expect_wavlm(scores, "scores");
  const ConstAttentionResult upstream{
      wavlm_heads(static_cast<const void*>(wavlm_array("grad_out").value.data())), {}};
  AttentionGradients g;
  g.q = wavlm_heads(static_cast<void*>(dqkv[0].data()));
  g.k = wavlm_heads(static_cast<void*>(dqkv[1].data()));
  g.v = wavlm_heads(static_cast<void*>(dqkv[2].data()));
  lowered.backward(call, hidden, result, upstream, g, gradients);
  for (std::size_t i = 0; i < 3; ++i)
    wavlm_multiply(dqkv[i], wavlm_array(projections[i]).value, false, d[4]);
  expect_wavlm(d[4], "grad_x");
  for (std::size_t i = 0; i < 4; ++i) expect_wavlm(d[i], "grad_" + names[i]);
}

}  // namespace
}  // namespace posenc
