// SPDX-License-Identifier: Apache-2.0
// Calls of the attention library with everything that they read and write, to be spoilt one thing at
// a time.
#pragma once
#include <cmath>
#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "posenc/attention/path.h"
#include "posenc/attention/plan.h"
#include "posenc/attention/selective.h"
#include "posenc/positions.h"

namespace posenc::test {

// More tokens than a block of selective attention has.
struct RefusalWorld {
  static constexpr Index T = 66, H = 2, G = 1, D = 2;
  std::deque<std::vector<double>> memory;
  std::vector<std::size_t> outputs;  // numbers of arrays that calls write
  OwnedPositions at = arange(0, T);

  AttentionArgs a;
  AttentionResult r, whole;
  ConstAttentionResult result, d_result;
  AttentionGradients g;
  AttentionScores s;
  SelectiveOptions options;
  PathArgs p;
  PathGradients pg;
  std::vector<ConstAttentionResult> parts;
  std::vector<AttentionResult> d_parts;
  Normalisation how = Normalisation::softmax;
  std::vector<NamedArray> parameters, inputs;
  std::vector<NamedGradient> named;
  std::optional<LoweredAttention> plan;

  double* make(Index n, bool output) {
    std::vector<double> x;
    for (Index i = 0; i < n; ++i)
      x.push_back(std::sin(1.3 * static_cast<double>(i) + static_cast<double>(memory.size())));
    if (output) outputs.push_back(memory.size());
    memory.push_back(std::move(x));
    return memory.back().data();
  }
  Heads tokens(Index n_heads, Index dim, bool output) {
    return heads(make(T * n_heads * dim, output), T, n_heads, dim);
  }
  TensorView sums(bool output) { return tensor(make(H * T, output), {1, H, T}); }
  AttentionResult some(bool output) { return {tokens(H, D, output), sums(output)}; }

  RefusalWorld() {
    a.q = tokens(H, D, false), a.k = tokens(G, D, false), a.v = tokens(G, D, false);
    a.query_positions = a.key_positions = at;
    a.scale = 0.5, a.mask.causal = true;
    r = some(true), whole = some(true);
    result = some(false), d_result = some(false);
    g.q = tokens(H, D, true), g.k = tokens(G, D, true), g.v = tokens(G, D, true);
    for (TensorView* v : {&s.content, &s.scores, &s.probabilities})
      *v = tensor(make(H * T * T, true), {1, H, T, T});
    p.q = a.q, p.k = a.k, p.v = a.v;
    p.w = tokens(1, D, false), p.beta = tokens(1, 1, false), p.log_gate = tokens(1, 1, false);
    pg.q = g.q, pg.k = g.k, pg.w = tokens(1, D, true), pg.beta = tokens(1, 1, true);
    for (int n = 0; n < 2; ++n) {
      parts.emplace_back(some(false));
      d_parts.push_back(some(true));
    }
    // As much memory as keys have: a test lets the gradient of k lie there.
    parameters.push_back({"table", tensor(make(T * G * D, false), {8, H})});
    named.push_back({"table", tensor(make(8 * H, true), {8, H})});
    plan = AttentionPlan("t5 bidirectional=false num_buckets=8 max_distance=40",
                         {.heads = H, .head_dim = D, .key_heads = G})
               .lower(parameters, distance_ranges(at, at));
  }
  RefusalWorld(const RefusalWorld&) = delete;
  RefusalWorld& operator=(const RefusalWorld&) = delete;

  std::vector<std::vector<double>> written() const {
    std::vector<std::vector<double>> all;
    for (const std::size_t n : outputs) all.push_back(memory[n]);
    return all;
  }
  // The same call by the plan, whose scale is its own.
  AttentionArgs planned() const {
    AttentionArgs call = a;
    if (call.scale == 0.5) call.scale.reset();
    return call;
  }
};

struct RefusalCall {
  std::string name;
  std::function<void(RefusalWorld&)> run;
};
inline std::vector<RefusalCall> refusal_calls() {
  using W = RefusalWorld;
  return {
      {"attend", [](W& w) { attend(w.a, w.r); }},
      {"attend_backward", [](W& w) { attend_backward(w.a, w.result, w.d_result, w.g); }},
      {"attend_scores", [](W& w) { attend_scores(w.a, w.s); }},
      {"selective", [](W& w) { attend_selective(w.a, w.r, w.options); }},
      {"selective_backward",
       [](W& w) { attend_selective_backward(w.a, w.result, w.d_result, w.g, w.options); }},
      {"plan", [](W& w) { w.plan->forward(w.planned(), w.inputs, w.r); }},
      {"plan_backward",
       [](W& w) { w.plan->backward(w.planned(), w.inputs, w.result, w.d_result, w.g, w.named); }},
      {"plan_scores", [](W& w) { w.plan->scores(w.planned(), w.inputs, w.s); }},
      {"merge", [](W& w) { merge(w.parts, w.whole, w.how); }},
      {"merge_backward",
       [](W& w) { merge_backward(w.parts, w.result, w.d_result, w.d_parts, w.how); }},
      {"path", [](W& w) { attend_path(w.p, w.r); }},
      {"path_backward", [](W& w) { attend_path_backward(w.p, w.d_result, w.pg); }},
  };
}

}  // namespace posenc::test
