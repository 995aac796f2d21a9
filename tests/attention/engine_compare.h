// SPDX-License-Identifier: Apache-2.0
// The engine and the reference on one call: results and every gradient side by side.
#pragma once
#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

#include "core/element.h"
#include "posenc/attention/attend.h"
#include "posenc/core/key_blocks.h"
#include "support/attention_reference.h"
#include "support/random.h"

namespace posenc {

// Gradients of a call, dense doubles that start at 0.5: what is accumulated must be added.
class GradientArrays {
 public:
  explicit GradientArrays(const AttentionArgs& a) {
    for (const Term& term : a.terms) {
      const TermArrays t = term_arrays(term);
      terms_.push_back({like("table", t.table),
                        like("query", t.query.given),
                        like("key", t.key.given),
                        {like("in", t.mlp.in), like("in_bias", t.mlp.in_bias),
                         like("out", t.mlp.out), like("out_bias", t.mlp.out_bias)}});
    }
    for (const Stage& s : a.prepare)
      stages_.push_back({like("stage q", s.q), like("stage k", s.k)});
    for (const ScoreRegion& r : a.regions)
      regions_.push_back({like("region q", r.qk.q), like("region k", r.qk.k)});
    g.q = like("q", a.q);
    // q8_0 blocks have no gradient.
    if (a.k.dtype != DType::u8) g.k = like("k", a.k);
    if (a.v.dtype != DType::u8) g.v = like("v", a.v);
    g.terms = terms_, g.prepare = stages_, g.regions = regions_;
    g.head_scale = like("head_scale", a.head_scale);
    g.query_factor = like("query_factor", a.query_factor);
    g.sink = like("sink", a.sink);
    g.bias = like("bias", a.mask.bias);
    g.mix_before = like("mix_before", a.mix_before);
    g.mix_after = like("mix_after", a.mix_after);
  }
  GradientArrays(const GradientArrays&) = delete;

  AttentionGradients g;
  std::deque<std::vector<double>> value;
  std::vector<std::string> name;

 private:
  TensorView like(const char* what, const ConstTensorView& v) {
    if (v.empty()) return {};
    std::vector<Index> shape(v.shape.begin(), v.shape.begin() + v.rank);
    return zeros(what, shape);
  }
  Heads like(const char* what, const ConstHeads& h) {
    if (h.data == nullptr) return {};
    return heads(zeros(what, {h.batch, h.tokens, h.heads, h.dim}), HeadsLayout::bthd);
  }
  TensorView zeros(const char* what, const std::vector<Index>& shape) {
    Index n = 1;
    for (const Index s : shape) n *= s;
    value.emplace_back(static_cast<std::size_t>(n), 0.5);
    value.back().reserve(1);  // not null where it is empty
    name.push_back(what);
    return tensor(static_cast<void*>(value.back().data()), DType::f64, shape);
  }
  std::vector<TermGradient> terms_;
  std::vector<StageGradient> stages_;
  std::vector<QK> regions_;
};

// Output, log-sum-exp and gradients of one of them.
struct CallResult {
  std::vector<double> out, log_sum_exp;
  std::deque<std::vector<double>> gradients;
  std::vector<std::string> names;
};

// EngineUpstream gradients by place.
struct EngineUpstream {
  explicit EngineUpstream(const AttentionArgs& a) {
    test::Random r(77);
    out = r.normals(static_cast<std::size_t>(a.q.batch * a.q.tokens * a.q.heads * head_size(a.v)) +
                    1);
    lse = r.normals(static_cast<std::size_t>(a.q.batch * a.q.tokens * a.q.heads) + 1);
    d_out = heads(tensor(static_cast<const void*>(out.data()), DType::f64,
                         std::vector<Index>{a.q.batch, a.q.tokens, a.q.heads, head_size(a.v)}),
                  HeadsLayout::bthd);
    d_lse = tensor(static_cast<const void*>(lse.data()), DType::f64,
                   std::vector<Index>{a.q.batch, a.q.heads, a.q.tokens});
  }
  std::vector<double> out, lse;
  ConstHeads d_out;
  ConstTensorView d_lse;
};

// Where a call of either writes.
struct ResultArrays {
  ResultArrays(const AttentionArgs& a, DType type)
      : out(static_cast<std::size_t>(8 * (a.q.batch * a.q.tokens * a.q.heads * head_size(a.v)) +
                                     8)),
        lse(static_cast<std::size_t>(a.q.batch * a.q.tokens * a.q.heads) + 1) {
    r.out = heads(tensor(static_cast<void*>(out.data()), type,
                         std::vector<Index>{a.q.batch, a.q.tokens, a.q.heads, head_size(a.v)}),
                  HeadsLayout::bthd);
    r.log_sum_exp = tensor(static_cast<void*>(lse.data()), DType::f64,
                           std::vector<Index>{a.q.batch, a.q.heads, a.q.tokens});
  }
  std::vector<std::byte> out;
  std::vector<double> lse;
  AttentionResult r;
};

inline std::vector<double> widened(const Heads& h) {
  std::vector<double> x;
  for (Index i = 0; i < h.batch * h.tokens * h.heads * h.dim; ++i)
    x.push_back(detail::float_element(h.data, h.dtype, i));
  return x;
}

// By the exact engine.
inline CallResult of_engine(AttentionArgs a, const Executor& e = default_executor()) {
  a.exact = true;
  const EngineUpstream up(a);
  ResultArrays to(a, a.q.dtype);
  GradientArrays g(a);
  attend(a, to.r, e);
  attend_backward(a, to.r, {up.d_out, up.d_lse}, g.g, e);
  return {widened(to.r.out), to.lse, std::move(g.value), std::move(g.name)};
}
// `of`: the call whose gradients there are, with keys and values in its own types.
inline CallResult of_reference(const AttentionArgs& a, const AttentionArgs& of) {
  const EngineUpstream up(a);
  ResultArrays to(a, DType::f64);
  GradientArrays g(of);
  support::attention_forward(a, to.r);
  support::attention_backward(a, up.d_out, up.d_lse, g.g);
  return {widened(to.r.out), to.lse, std::move(g.value), std::move(g.name)};
}

inline CallResult of_reference(const AttentionArgs& a) {
  return of_reference(a, a);
}

// The largest |x - y| / max(1, |y|); infinite where one is NaN and the other is not.
inline double difference(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.size() != y.size()) return HUGE_VAL;
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double d = std::fabs(x[i] - y[i]) / std::fmax(1, std::fabs(y[i]));
    most = std::isnan(d) ? HUGE_VAL : std::fmax(most, d);
  }
  return most;
}
// The reference multiplies what is left of a stick, which loses digits below 2^-1022 and ends at 0;
// a logarithm goes on.
inline std::vector<double> with_underflow(std::vector<double> x, const std::vector<double>& of) {
  for (std::size_t i = 0; i < x.size() && i < of.size(); ++i)
    if (of[i] < -700 && x[i] < -700) x[i] = of[i];
  return x;
}
// What differs, as text; empty: nothing does. The output is rounded to its own type.
inline std::string differences(const CallResult& got, const CallResult& want, double out_tolerance,
                               double tolerance) {
  std::string text;
  const auto check = [&](const std::string& what, double d, double allowed) {
    if (!(d <= allowed)) text += what + " " + std::to_string(d * 1e12) + "e-12; ";
  };
  check("out", difference(got.out, want.out), out_tolerance);
  check("log_sum_exp",
        difference(with_underflow(got.log_sum_exp, want.log_sum_exp), want.log_sum_exp), tolerance);
  if (got.gradients.size() != want.gradients.size()) return text + "gradients";
  for (std::size_t n = 0; n < got.gradients.size(); ++n)
    check("d " + got.names[n], difference(got.gradients[n], want.gradients[n]), tolerance);
  return text;
}

}  // namespace posenc
