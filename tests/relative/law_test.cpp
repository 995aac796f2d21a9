// SPDX-License-Identifier: Apache-2.0
// Laws of every relative scheme of the registry: pull_back is the transpose of lower (finite
// differences), what is lowered fits an attention call, initialisers are named.
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/attention/attention.h"
#include "posenc/positions/sequence.h"
#include "posenc/registry.h"

namespace posenc {
namespace {

// Settings worth running, beside the default; a scheme that needs fields gets them here.
template <class S>
std::vector<S> settings() {
  return {S{}};
}
template <>
std::vector<Alibi> settings() {
  return {Alibi{}, Alibi{.learned = AlibiLearned::slopes},
          Alibi{.future = AlibiFuture::signed_distance,
                .learned = AlibiLearned::log_slopes,
                .past_offset = 0.5,
                .bias_scale = 0.25}};
}
template <>
std::vector<T5> settings() {
  return {T5{}, T5{.bidirectional = false, .num_buckets = 8, .max_distance = 20, .bias_scale = 3}};
}
template <>
std::vector<TransformerXl> settings() {
  return {TransformerXl{.d_model = 6}, TransformerXl{.d_model = 4, .clamp_len = 3}};
}

template <>
std::vector<LocalWindow> settings() {
  return {LocalWindow{.window = 2, .sentences = 3}, LocalWindow{.window = 0, .sentences = 1}};
}

struct Values {
  std::vector<std::vector<double>> value;
  std::vector<TensorView> view;
  std::vector<ConstTensorView> read() const { return const_views(view); }
  explicit Values(const std::vector<Parameter>& p, double size) {
    value.reserve(p.size());
    for (const Parameter& x : p) {
      Index n = 1;
      for (const Index s : x.shape) n *= s;
      value.emplace_back();
      for (Index i = 0; i < n; ++i)
        value.back().push_back(size * std::sin(static_cast<double>(7 * i + 3)));
      view.push_back(tensor(static_cast<void*>(value.back().data()), DType::f64, x.shape));
    }
  }
};

// sum over all lowered numbers times a fixed weight each.
double weighted(const LoweredTerms& low, std::vector<std::vector<double>>* weights) {
  double s = 0;
  std::size_t n = 0;
  for (const Term& t : low.terms)
    for (const ConstTensorView* v : {&t.table, &t.table2, &t.table3, &t.query_bias}) {
      if (v->empty()) continue;
      if (weights->size() <= n) weights->emplace_back();
      auto& w = (*weights)[n++];
      for (Index i = static_cast<Index>(w.size()); i < v->count(); ++i)
        w.push_back(std::cos(static_cast<double>(5 * i + static_cast<Index>(n))));
      for (Index i = 0; i < v->count(); ++i)
        s += w[static_cast<std::size_t>(i)] * static_cast<const double*>(v->data)[i];
    }
  return s;
}

template <class S>
void check_transpose(const S& scheme) {
  const ScoreShape shape{4, 2, -6, 9};
  const std::vector<Parameter> parameters = scheme.parameters(shape);
  Values p(parameters, 0.4), d(parameters, 0);
  LoweredTerms low;
  scheme.lower(shape, p.read(), low);
  ASSERT_FALSE(low.terms.empty()) << S::card.name;
  std::vector<std::vector<double>> weights;
  weighted(low, &weights);
  std::vector<TermGradient> g;
  std::size_t n = 0;
  for (const Term& t : low.terms) {
    TermGradient x;
    const ConstTensorView* from[] = {&t.table, &t.table2, &t.table3, &t.query_bias};
    TensorView* to[] = {&x.table, &x.table2, &x.table3, &x.query_bias};
    for (int i = 0; i < 4; ++i)
      if (!from[i]->empty())
        *to[i] = tensor(
            static_cast<void*>(weights[n++].data()), DType::f64,
            std::span<const Index>(from[i]->shape.data(), static_cast<std::size_t>(from[i]->rank)));
    g.push_back(x);
  }
  scheme.pull_back(shape, p.read(), g, d.view);
  for (std::size_t a = 0; a < p.value.size(); ++a)
    for (std::size_t i = 0; i < p.value[a].size(); ++i) {
      const double kept = p.value[a][i], e = 1e-5;
      const auto at = [&](double x) {
        p.value[a][i] = x;
        LoweredTerms moved;
        scheme.lower(shape, p.read(), moved);
        p.value[a][i] = kept;
        return weighted(moved, &weights);
      };
      EXPECT_NEAR(d.value[a][i], (at(kept + e) - at(kept - e)) / (2 * e), 1e-8)
          << S::card.name << " " << parameters[a].name << " " << i;
    }
  // Accumulates, and takes nothing where nothing is wanted.
  const double before = d.value.empty() ? 0 : d.value[0][0];
  scheme.pull_back(shape, p.read(), g, d.view);
  if (!d.value.empty()) {
    EXPECT_NEAR(d.value[0][0], 2 * before, 1e-12);
  }
  const std::vector<TensorView> none(p.view.size());
  scheme.pull_back(shape, p.read(), g, none);
  // A gradient that does not fit is refused before any other was added to.
  const std::vector<std::vector<double>> kept = d.value;
  for (std::size_t wrong = 0; wrong < d.view.size(); ++wrong) {
    std::vector<TensorView> to = d.view;
    std::vector<double> other(1000);
    to[wrong] = tensor(other.data(), {10, 4, 25});
    EXPECT_THROW(scheme.pull_back(shape, p.read(), g, to), std::invalid_argument);
    EXPECT_EQ(d.value, kept) << S::card.name << " " << wrong << " wrong";
  }
  // Nor is a list of gradients that lacks its terms read beyond, nor one of another shape.
  if (d.view.empty()) return;
  EXPECT_THROW(scheme.pull_back(shape, p.read(), {}, d.view), std::invalid_argument);
  for (TermGradient& x : g) {
    for (TensorView* v : {&x.table, &x.query_bias})
      if (!v->empty()) v->shape[static_cast<std::size_t>(v->rank++)] = 1;
  }
  EXPECT_THROW(scheme.pull_back(shape, p.read(), g, d.view), std::invalid_argument);
  EXPECT_EQ(d.value, kept) << S::card.name;
}

template <class S>
void check_fits(const S& scheme) {
  const ScoreShape shape{4, 2, -6, 9};
  Values p(scheme.parameters(shape), 0.4);
  LoweredTerms low;
  scheme.lower(shape, p.read(), low);
  std::vector<float> x(7 * 4 * 2), y(10 * 4 * 2);
  const OwnedPositions q = arange(3, 7), k = arange(0, 10);
  AttentionArgs a;
  a.qk = {heads(x.data(), 7, 4, 2), heads(y.data(), 10, 4, 2)};
  a.v = heads(y.data(), 10, 4, 2);
  a.out = heads(x.data(), 7, 4, 2);
  a.scale = 1;
  a.query_positions = q;
  a.key_positions = k;
  LoweredTerms moved = std::move(low);
  const std::vector<std::int32_t> classes(10, 0);  // of whoever needs some
  for (Term& t : moved.terms)
    if (t.pair.row != nullptr) {
      t.pair.query_class = tensor(classes.data(), {1, 7});
      t.pair.key_class = tensor(classes.data(), {1, 10});
    }
  a.terms = moved.terms;
  EXPECT_NO_THROW(check_attention(a)) << S::card.name;
}

TEST(RelativeLaws, PullBackIsTheTransposeOfLower) {
  for_each(RelativeSchemes{}, []<class S>() {
    for (const S& s : settings<S>()) check_transpose(s);
  });
}

TEST(RelativeLaws, LoweredTermsFitACall) {
  for_each(RelativeSchemes{}, []<class S>() {
    for (const S& s : settings<S>()) check_fits(s);
  });
}

TEST(RelativeLaws, InitialisersArePublishedOnes) {
  for_each(RelativeSchemes{}, []<class S>() {
    for (const S& s : settings<S>())
      for (const Parameter& p : s.parameters({4, 2, -6, 9})) {
        EXPECT_FALSE(p.name.empty());
        const bool zeros = std::is_same_v<S, LocalWindow>;
        EXPECT_TRUE(p.initial_values.size() == 4 || p.initial.b > 0 || zeros)
            << S::card.name << p.name;
      }
  });
}

}  // namespace
}  // namespace posenc
