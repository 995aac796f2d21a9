// SPDX-License-Identifier: Apache-2.0
// A case of the suite relative_content through the attention plan: out, weights and gradients of
// q, k, v and of every parameter against the peer's.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "posenc/attention/plan.h"
#include "support/attention_case.h"

namespace posenc::test {

inline const support::Suite& content_suite() {
  static const support::Suite s("relative_content");
  return s;
}

struct ContentCase {
  std::string name;
  // Parameters and inputs of the scheme: ours -> the case's array. Not named: the same name.
  std::map<std::string, std::string> arrays{};
  std::map<std::string, ConstTensorView> given{};  // instead of an array of the case
  std::string q = "q", stream = "";  // stream: the end of the names of q, out, visible
  // absent: head_dim^-1/2; 0: what the scheme asks for
  std::optional<double> scale{};
  bool parameter_gradients = true;
};

class ContentRun {
 public:
  ContentRun(const ContentCase& c, const AnyRelativeScheme& scheme)
      : case_(c), data_(content_suite(), c.name), scheme_(scheme) {
    AttentionArgs& a = data_.args;
    a.q = data_.heads_of(c.q + c.stream);
    a.k = data_.heads_of("k");
    a.v = data_.heads_of("v");
    a.scale = c.scale ? *c.scale : 1 / std::sqrt(static_cast<double>(a.q.dim));
    if (a.scale == 0) a.scale.reset();
    query_ = arange(a.k.tokens - a.q.tokens, a.q.tokens);
    key_ = arange(0, a.k.tokens);
    a.query_positions = query_;
    a.key_positions = key_;
    if (data_.has("visible" + c.stream))
      a.mask.visible = visible(data_.flags("visible" + c.stream));
  }
  AttentionArgs& args() { return data_.args; }
  std::map<std::string, std::vector<double>> gradients;  // of the parameters, after check

  void check() {
    SCOPED_TRACE(case_.name);
    const AttentionArgs& a = data_.args;
    const AttentionPlan plan({scheme_}, {.heads = a.q.heads,
                                         .head_dim = a.q.dim,
                                         .key_heads = a.k.heads,
                                         .value_dim = a.v.dim,
                                         .scale = a.scale});
    std::vector<NamedArray> parameters, inputs;
    std::vector<NamedGradient> named;
    const std::vector<Parameter> learned = plan.parameters();
    for (const Parameter& p : learned) {
      parameters.push_back({p.name, array(p.name)});
      named.push_back({p.name, data_.zeros(p.shape)});
    }
    const std::vector<Input> brought = plan.inputs();
    for (const Input& i : brought) inputs.push_back({i.name, array(i.name)});
    const LoweredAttention lowered =
        plan.lower(parameters, distance_ranges(a.query_positions, a.key_positions));
    const TensorView out = data_.zeros({a.q.batch, a.q.heads, a.q.tokens, a.v.dim});
    const TensorView lse = data_.zeros({a.q.batch, a.q.heads, a.q.tokens});
    const AttentionResult result{heads(out, HeadsLayout::bhtd), lse};
    lowered.forward(a, inputs, result);
    data_.expect("out" + case_.stream, out);
    check_weights(lowered, inputs);
    const std::string upstream = "grad_out" + case_.stream;
    if (!data_.has(upstream) || !data_.has("grad_" + case_.q + case_.stream)) return;
    const TensorView dq = like(a.q), dk = like(a.k), dv = like(a.v);
    AttentionGradients g;
    g.q = heads(dq, HeadsLayout::bhtd);
    g.k = heads(dk, HeadsLayout::bhtd);
    g.v = heads(dv, HeadsLayout::bhtd);
    lowered.backward(a, inputs, result, {data_.heads_of(upstream), {}}, g, named);
    for (const NamedGradient& x : named)
      gradients[std::string(x.name)].assign(data_of<double>(x.array),
                                            data_of<double>(x.array) + x.array.count());
    data_.expect("grad_" + case_.q + case_.stream, dq);
    if (!case_.stream.empty()) return;  // the others are sums over the streams
    data_.expect("grad_k", dk);
    data_.expect("grad_v", dv);
    if (!case_.parameter_gradients) return;
    for (const NamedGradient& x : named) {
      const std::string theirs = "grad_" + theirs_of(std::string(x.name));
      if (!data_.has(theirs)) continue;
      // Some peers keep u and v in float32, and so their gradients.
      data_.tolerance = data_.array(theirs).dtype == "F32" ? 6e-8 : 2e-12;
      data_.expect(theirs, x.array);
    }
  }

 private:
  std::string theirs_of(const std::string& ours) const {
    const auto found = case_.arrays.find(ours);
    return found == case_.arrays.end() ? ours : found->second;
  }
  ConstTensorView array(const std::string& ours) {
    const auto found = case_.given.find(ours);
    return found == case_.given.end() ? data_.view(theirs_of(ours)) : found->second;
  }
  TensorView like(const ConstHeads& h) { return data_.zeros({h.batch, h.heads, h.tokens, h.dim}); }
  // [Tq, Tk] as [1, 1, Tq, Tk].
  static ConstTensorView visible(ConstTensorView v) {
    if (v.rank != 2) return v;
    return tensor(v.data, v.dtype, std::vector<Index>{1, 1, v.shape[0], v.shape[1]});
  }
  void check_weights(const LoweredAttention& lowered, std::span<const NamedArray> inputs) {
    const AttentionArgs& a = data_.args;
    const std::string theirs = "probs" + case_.stream;
    if (!data_.has(theirs)) return;
    const std::vector<Index> pairs{a.q.batch, a.q.heads, a.q.tokens, a.k.tokens};
    AttentionScores s;
    s.probabilities = data_.zeros(pairs);
    lowered.scores(a, inputs, s);
    data_.expect(theirs, s.probabilities);
  }
  ContentCase case_;
  support::AttentionCase data_;
  AnyRelativeScheme scheme_;
  OwnedPositions query_, key_;
};

inline void check_content(const ContentCase& c, const AnyRelativeScheme& scheme) {
  ContentRun(c, scheme).check();
}

}  // namespace posenc::test
