// SPDX-License-Identifier: Apache-2.0
// A case of a conformance suite run through the attention reference and compared with the peer's
// numbers, forward and backward.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "posenc/positions/sequence.h"
#include "posenc/relative/scheme.h"
#include "support/attention_reference.h"
#include "support/suite.h"

namespace posenc::support {

class AttentionCase {
 public:
  // q, k, v of the case; `layout` of its arrays. The queries are at the end of the keys.
  AttentionCase(const Suite& suite, std::string name, HeadsLayout layout = HeadsLayout::bhtd,
                const std::string& queries = "q")
      : suite_(suite), name_(std::move(name)), layout_(layout) {
    if (!has(queries)) return;
    args.q = heads_of(queries);
    args.k = heads_of("k");
    args.v = heads_of("v");
    args.scale = 1 / std::sqrt(static_cast<double>(args.q.dim));
    const Index tq = args.q.tokens, tk = args.k.tokens;
    query_ = arange(tk - tq, tq);
    key_ = arange(0, tk);
    args.query_positions = query_;
    args.key_positions = key_;
    args.mask.query_offset = tk - tq;
  }
  AttentionCase(const AttentionCase&) = delete;

  AttentionArgs args;
  AttentionResult result;
  LoweredTerms lowered;  // terms and requests go here
  double tolerance = 2e-12;

  bool has(const std::string& what) const { return suite_.has(name_ + "/" + what); }
  const SuiteArray& array(const std::string& what) {
    kept_.push_back(suite_(name_, what));
    return kept_.back();
  }
  ConstTensorView view(const std::string& what) {  // as f64
    const SuiteArray& a = array(what);
    return tensor(static_cast<const void*>(a.value.data()), DType::f64, a.shape);
  }
  ConstTensorView flags(const std::string& what) {
    const SuiteArray& a = array(what);
    flags_.emplace_back();
    for (const double x : a.value) flags_.back().push_back(x != 0 ? 1 : 0);
    return tensor(static_cast<const void*>(flags_.back().data()), DType::u8, a.shape);
  }
  ConstTensorView integers(const std::string& what) {
    const SuiteArray& a = array(what);
    return integers(a.integers(), a.shape);
  }
  ConstTensorView integers(std::vector<Index> v, const std::vector<Index>& shape) {
    integers_.push_back(std::move(v));
    return tensor(static_cast<const void*>(integers_.back().data()), DType::i64, shape);
  }
  ConstHeads heads_of(const std::string& what) { return heads(view(what), layout_); }
  // A parameter's gradient to be compared with `grad_<what>` of the case.
  TensorView zeros(const std::vector<Index>& shape) {
    Index n = 1;
    for (const Index s : shape) n *= s;
    zeros_.emplace_back(static_cast<std::size_t>(n), 0.0);
    return tensor(static_cast<void*>(zeros_.back().data()), DType::f64, shape);
  }
  TensorView zeros_like(const ConstTensorView& v) {
    return v.empty() ? TensorView{}
                     : zeros(std::vector<Index>(v.shape.begin(), v.shape.begin() + v.rank));
  }
  // Dense [batch, tokens, heads, dim].
  Heads zeros_like(const ConstHeads& h) {
    if (h.data == nullptr) return {};
    return heads(zeros({h.batch, h.tokens, h.heads, h.dim}), HeadsLayout::bthd);
  }
  TermGradient zeros_like(const Term& term) {
    const TermArrays t = term_arrays(term);
    return {zeros_like(t.table),
            zeros_like(t.query.given),
            zeros_like(t.key.given),
            {zeros_like(t.mlp.in), zeros_like(t.mlp.in_bias), zeros_like(t.mlp.out),
             zeros_like(t.mlp.out_bias)}};
  }

  // Forward; then backward of grad_out (and of `lse_upstream` if named).
  void run(const std::string& lse_upstream = {}) {
    take_requests();
    args.terms = lowered.terms;
    const Index b = args.q.batch, h = args.q.heads, tq = args.q.tokens;
    out = zeros(shape_of(b, h, tq, args.v.dim));
    result = {heads(out, layout_), zeros({b, h, tq})};
    attention_forward(args, result, &detail);
    if (!has("grad_out")) return;
    d_q = zeros(shape_of(b, h, tq, args.q.dim));
    d_k = zeros(shape_of(b, args.k.heads, args.k.tokens, args.k.dim));
    d_v = zeros(shape_of(b, args.v.heads, args.v.tokens, args.v.dim));
    for (const Term& t : lowered.terms) terms.push_back(zeros_like(t));
    for (const Stage& s : args.prepare) stages.push_back({zeros_like(s.q), zeros_like(s.k)});
    AttentionGradients g;
    g.q = heads(d_q, layout_);
    g.k = heads(d_k, layout_);
    g.v = heads(d_v, layout_);
    g.terms = terms;
    g.prepare = stages;
    g.sink = d_sink = zeros_like(args.sink);
    g.bias = d_bias = zeros_like(args.mask.bias);
    g.head_scale = d_head_scale = zeros_like(args.head_scale);
    g.query_factor = d_query_factor = zeros_like(args.query_factor);
    attention_backward(args, heads_of("grad_out"),
                       lse_upstream.empty() ? ConstTensorView{} : view(lse_upstream), g);
  }
  // What a scheme's pull_back is given.
  LoweredGradient gradient() const { return {terms, d_head_scale}; }

  void expect(const std::string& what, const double* got, Index count) {
    const SuiteArray& want = array(what);
    ASSERT_EQ(static_cast<Index>(want.value.size()), count) << name_ << " " << what;
    for (Index i = 0; i < count; ++i) {
      const double w = want.value[static_cast<std::size_t>(i)];
      if (std::isinf(w)) {
        EXPECT_EQ(got[i], w) << name_ << " " << what << " at " << i;
        continue;
      }
      EXPECT_LE(std::fabs(got[i] - w), tolerance * std::fmax(1, std::fabs(w)))
          << name_ << " " << what << " at " << i << ": " << got[i] << ", peer " << w;
      if (::testing::Test::HasFailure()) return;
    }
  }
  void expect(const std::string& what, const std::vector<double>& got) {
    expect(what, got.data(), static_cast<Index>(got.size()));
  }
  void expect(const std::string& what, const ConstTensorView& got) {
    expect(what, data_of<double>(got), got.count());
  }
  void expect(const std::string& what, const ConstHeads& dense) {
    expect(what, static_cast<const double*>(dense.data),
           dense.batch * dense.tokens * dense.heads * dense.dim);
  }
  // Where visible; hidden places are the peer's own business.
  void expect_pairs(const std::string& what, const std::vector<double>& got) {
    const SuiteArray& want = array(what);
    ASSERT_EQ(want.value.size(), got.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::isinf(detail.scores[i])) continue;
      EXPECT_LE(std::fabs(got[i] - want.value[i]),
                tolerance * std::fmax(1, std::fabs(want.value[i])))
          << name_ << " " << what << " at " << i;
      if (::testing::Test::HasFailure()) return;
    }
  }
  // out, probabilities and gradients of q, k, v, as far as the case has them.
  void expect_core() {
    SCOPED_TRACE(name_);
    expect("out", out);
    if (has("probs")) expect_pairs("probs", detail.probabilities);
    if (has("lse")) expect("lse", result.log_sum_exp);
    if (!has("grad_q")) return;
    expect("grad_q", d_q);
    expect("grad_k", d_k);
    expect("grad_v", d_v);
  }

  AttentionDetail detail;
  TensorView out, d_q, d_k, d_v, d_sink, d_bias, d_head_scale, d_query_factor;
  std::vector<TermGradient> terms;
  std::vector<StageGradient> stages;

 private:
  void take_requests() {
    const CallRequests& r = lowered.requests;
    if (r.scale) args.scale = r.scale;
    if (!r.head_scale.empty()) args.head_scale = r.head_scale;
    if (!r.prepare.empty()) args.prepare = r.prepare;
    if (r.normalisation != Normalisation::softmax) args.normalisation = r.normalisation;
  }
  std::vector<Index> shape_of(Index b, Index h, Index t, Index d) const {
    if (layout_ == HeadsLayout::bthd) return {b, t, h, d};
    return {b, h, t, d};
  }
  const Suite& suite_;
  std::string name_;
  HeadsLayout layout_;
  OwnedPositions query_, key_;
  std::deque<SuiteArray> kept_;
  std::deque<std::vector<std::uint8_t>> flags_;
  std::deque<std::vector<Index>> integers_;
  std::deque<std::vector<double>> zeros_;
};

}  // namespace posenc::support
