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
#include "support/attention_reference.h"
#include "support/suite.h"

namespace posenc::support {

class AttentionCase {
 public:
  // q, k, v of the case; `layout` of its arrays. The queries stand at the end of the keys.
  AttentionCase(const Suite& suite, std::string name, HeadsLayout layout = HeadsLayout::bhtd)
      : suite_(suite), name_(std::move(name)), layout_(layout) {
    args.qk.q = heads_of("q");
    args.qk.k = heads_of("k");
    args.v = heads_of("v");
    args.scale = 1 / std::sqrt(static_cast<double>(args.qk.q.dim));
    const Index tq = args.qk.q.tokens, tk = args.qk.k.tokens;
    query_ = arange(tk - tq, tq);
    key_ = arange(0, tk);
    args.query_positions = query_;
    args.key_positions = key_;
    args.mask.query_offset = tk - tq;
  }
  AttentionCase(const AttentionCase&) = delete;

  AttentionArgs args;
  LoweredTerms lowered;  // terms go here
  double tolerance = 2e-12;

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
    integers_.push_back(a.integers());
    return tensor(static_cast<const void*>(integers_.back().data()), DType::i64, a.shape);
  }
  ConstHeads heads_of(const std::string& what) { return heads(view(what), layout_); }
  // A parameter's gradient to be compared with `grad_<what>` of the case.
  TensorView zeros(const std::vector<Index>& shape) {
    Index n = 1;
    for (const Index s : shape) n *= s;
    zeros_.emplace_back(static_cast<std::size_t>(n), 0.0);
    return view_of(zeros_.back(), shape);
  }
  TensorView zeros_like(const ConstTensorView& v) {
    return v.empty() ? TensorView{}
                     : zeros(std::vector<Index>(v.shape.begin(), v.shape.begin() + v.rank));
  }

  // Forward; then backward of grad_out (and of `lse_upstream` if named).
  void run(const std::string& lse_upstream = {}) {
    args.terms = lowered.terms;
    const Index b = args.qk.q.batch, h = args.qk.q.heads, tq = args.qk.q.tokens;
    out = zeros(shape_of(b, h, tq, args.v.dim));
    args.out = heads(out, layout_);
    args.log_sum_exp = zeros({b, h, tq});
    attention_forward(args, &detail);
    if (!suite_.has(name_ + "/grad_out")) return;
    d_q = zeros(shape_of(b, h, tq, args.qk.q.dim));
    d_k = zeros(shape_of(b, args.qk.k.heads, args.qk.k.tokens, args.qk.k.dim));
    d_v = zeros(shape_of(b, args.v.heads, args.v.tokens, args.v.dim));
    for (const Term& t : lowered.terms) {
      TermGradient g;
      g.table = zeros_like(t.table);
      g.table2 = zeros_like(t.table2);
      g.table3 = zeros_like(t.table3);
      g.query_bias = zeros_like(t.query_bias);
      if (t.gate_key.data != nullptr) {
        d_gate = zeros(shape_of(b, args.qk.k.heads, args.qk.k.tokens, args.qk.k.dim));
        g.gate_key = heads(d_gate, layout_);
      }
      terms.push_back(g);
    }
    AttentionGradients g;
    g.qk = {heads(d_q, layout_), heads(d_k, layout_)};
    g.v = heads(d_v, layout_);
    g.terms = terms;
    g.sink = d_sink = zeros_like(args.sink);
    g.bias = d_bias = zeros_like(args.mask.bias);
    attention_backward(args, heads_of("grad_out"),
                       lse_upstream.empty() ? ConstTensorView{} : view(lse_upstream), g);
  }

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
  void expect(const std::string& what, const ConstTensorView& got) {
    expect(what, static_cast<const double*>(got.data), got.count());
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
    if (suite_.has(name_ + "/probs")) expect_pairs("probs", detail.probabilities);
    if (suite_.has(name_ + "/lse")) expect("lse", args.log_sum_exp);
    if (!suite_.has(name_ + "/grad_q")) return;
    expect("grad_q", d_q);
    expect("grad_k", d_k);
    expect("grad_v", d_v);
  }

  // The same number of every parameter element: [n, H] of the peer from [H, n] of the term.
  std::vector<double> transposed(const ConstTensorView& v) {
    std::vector<double> r;
    for (Index j = 0; j < v.shape[1]; ++j)
      for (Index i = 0; i < v.shape[0]; ++i)
        r.push_back(static_cast<const double*>(v.data)[i * v.shape[1] + j]);
    return r;
  }

  AttentionDetail detail;
  TensorView out, d_q, d_k, d_v, d_gate, d_sink, d_bias;
  std::vector<TermGradient> terms;

 private:
  TensorView view_of(std::vector<double>& v, const std::vector<Index>& shape) {
    return tensor(static_cast<void*>(v.data()), DType::f64, shape);
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
