// SPDX-License-Identifier: Apache-2.0
// Laws of every relative scheme of the registry: pull_back is the transpose of lower (finite
// differences), what is lowered fits an attention call, initialisers are named.
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/attention/attention.h"
#include "posenc/positions/grid.h"
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
                .bias_scale = 0.25},
          Alibi{.future = AlibiFuture::own_slopes, .learned = AlibiLearned::logits}};
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
  return {LocalWindow{.window = 2}, LocalWindow{.window = 0}};
}
template <>
std::vector<Shaw> settings() {
  return {Shaw{.left = 2, .right = 1},
          Shaw{.left = 3, .beyond = ShawBeyond::zero, .values = ShawValues::shared, .groups = 2},
          Shaw{.left = 2, .right = 2, .table = ShawTable::sinusoid}};
}
template <>
std::vector<XlNet> settings() {
  return {XlNet{.d_model = 6}, XlNet{.d_model = 4, .clamp_len = 3, .segments = 2}};
}
template <>
std::vector<Conformer> settings() {
  return {Conformer{.d_model = 6}, Conformer{.d_model = 4, .rows = 19, .even = true},
          Conformer{.d_model = 4, .biases = false, .halves = true, .t2t = true}};
}
template <>
std::vector<ConformerAbsoluteKey> settings() {
  return {ConformerAbsoluteKey{.d_model = 4, .rows = 3}};
}
template <>
std::vector<TransformerXlLearned> settings() {
  return {TransformerXlLearned{.rows = 5}, TransformerXlLearned{.rows = 5, .clamp_len = 2}};
}
template <>
std::vector<SegatronXl> settings() {
  return {SegatronXl{.d_model = 6, .widths = {4, 2}}};
}
template <>
std::vector<ProphetNet> settings() {
  return {ProphetNet{.d_model = 3, .num_buckets = 6, .max_distance = 5}};
}
template <>
std::vector<Deberta> settings() {
  return {Deberta{.max_relative_positions = 6,
                  .position_buckets = 4,
                  .p2p = true,
                  .projection = DebertaProjection::tables}};
}
// Those that read what a call brings, or have no terms, are run by support/scheme_laws.h.
template <>
std::vector<Cope> settings() {
  return {};
}
template <>
std::vector<Forgetting> settings() {
  return {};
}
template <>
std::vector<StickBreaking> settings() {
  return {};
}
template <>
std::vector<RelativeProjection> settings() {
  return {};
}
template <>
std::vector<Nope> settings() {
  return {};
}
template <>
std::vector<LayoutLm> settings() {
  return {};
}
template <>
std::vector<Udop> settings() {
  return {};
}
template <>
std::vector<CpmAnt> settings() {
  return {};
}
template <>
std::vector<WavLm> settings() {
  return {};
}
template <>
std::vector<DynamicPositionBias> settings() {
  return {DynamicPositionBias{.width = 3}};
}
// Its numbers are clamped from below: scalar_bias_test.cpp gives it others.
template <>
std::vector<Kerple> settings() {
  return {};
}
template <>
std::vector<Swin> settings() {
  return {Swin{.height = 2, .width = 3}, Swin{.height = 3,
                                              .width = 1,
                                              .sign = DistanceSign::key_minus_query,
                                              .table = WindowTable::grid}};
}
template <>
std::vector<Levit> settings() {
  return {Levit{.height = 2, .width = 3}, Levit{.height = 3, .width = 2, .heads_first = false}};
}
// Their gradient has a part of the call: image_test.cpp.
template <>
std::vector<SwinV2> settings() {
  return {};
}
template <>
std::vector<Beit> settings() {
  return {};
}
template <>
std::vector<Tupe> settings() {
  return {};
}
template <>
std::vector<Bros> settings() {
  return {};
}
template <>
std::vector<ModalityPairs> settings() {
  return {ModalityPairs{}, ModalityPairs{.query_modality = {0, 1}, .axis = {0, 1}, .clip = {4, 2}}};
}
template <>
std::vector<Decomposed> settings() {
  return {Decomposed{.size = {2, 3}},
          Decomposed{.size = {4, 3}, .key_size = {2, 2}, .table_rows = {5, 5}}};
}
template <>
std::vector<Indexed> settings() {
  return {
      Indexed{.rows = 3},
      Indexed{
          .rows = 3, .meets = IndexedMeets::query, .groups = 2, .table = IndexedTable::channels}};
}
template <>
std::vector<Irpe> settings() {
  return {
      Irpe{.height = 5, .width = 4},
      Irpe{.method = IrpeMethod::euclidean, .meets = IndexedMeets::key, .height = 3, .width = 2},
      Irpe{.method = IrpeMethod::cross, .meets = IndexedMeets::nothing, .shared = false}};
}
template <>
std::vector<Enformer> settings() {
  return {Enformer{.length = 12, .features = 12}};
}
// Two axes: the second for schemes that read one.
ScoreShape law_shape() {
  return {.heads = 4, .head_dim = 2, .scale = 0.4, .distance = {{-6, 9}, {-3, 3}}};
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

// fn(numbers, count) of each array of a term, in a fixed order: table, query, key, mlp.
template <class F>
void each_array(const Term& term, const F& fn) {
  const TermArrays t = term_arrays(term);
  for (const ConstTensorView* v :
       {&t.table, &t.mlp.in, &t.mlp.in_bias, &t.mlp.out, &t.mlp.out_bias})
    if (!v->empty()) fn(data_of<double>(*v), v->count());
  for (const ConstHeads* h : {&t.query.given, &t.key.given})
    if (h->data != nullptr)
      fn(static_cast<const double*>(h->data), h->batch * h->tokens * h->heads * h->dim);
}

using Weights = std::vector<std::vector<double>>;

// sum over all lowered numbers times a fixed weight each.
double weighted(const LoweredTerms& low, Weights* weights) {
  double s = 0;
  std::size_t n = 0;
  for (const Term& t : low.terms)
    each_array(t, [&](const double* x, Index count) {
      if (weights->size() <= n) weights->emplace_back();
      auto& w = (*weights)[n++];
      for (Index i = static_cast<Index>(w.size()); i < count; ++i)
        w.push_back(std::cos(static_cast<double>(5 * i + static_cast<Index>(n))));
      for (Index i = 0; i < count; ++i) s += w[static_cast<std::size_t>(i)] * x[i];
    });
  return s;
}

// The weights as the gradients of the terms they are of.
std::vector<TermGradient> gradients_of(const LoweredTerms& low, Weights& weights) {
  std::vector<TermGradient> g;
  std::size_t n = 0;
  const auto like = [&](const ConstTensorView& v) {
    if (v.empty()) return TensorView{};
    return tensor(static_cast<void*>(weights[n++].data()), DType::f64,
                  std::span<const Index>(v.shape.data(), static_cast<std::size_t>(v.rank)));
  };
  const auto like_heads = [&](const ConstHeads& h) {
    if (h.data == nullptr) return Heads{};
    const std::vector<Index> shape{h.batch, h.tokens, h.heads, h.dim};
    return heads(tensor(static_cast<void*>(weights[n++].data()), DType::f64, shape),
                 HeadsLayout::bthd);
  };
  for (const Term& term : low.terms) {
    const TermArrays t = term_arrays(term);
    TermGradient x;
    x.table = like(t.table);
    x.mlp.in = like(t.mlp.in);
    x.mlp.in_bias = like(t.mlp.in_bias);
    x.mlp.out = like(t.mlp.out);
    x.mlp.out_bias = like(t.mlp.out_bias);
    x.query = like_heads(t.query.given);
    x.key = like_heads(t.key.given);
    g.push_back(x);
  }
  return g;
}

template <class S>
void check_transpose(const S& scheme) {
  const ScoreShape shape = law_shape();
  const std::vector<Parameter> parameters = scheme.parameters(shape);
  Values p(parameters, 0.4), d(parameters, 0);
  LoweredTerms low;
  scheme.lower(shape, p.read(), low);
  ASSERT_FALSE(low.terms.empty()) << S::card.name;
  Weights weights;
  weighted(low, &weights);
  const std::vector<TermGradient> terms = gradients_of(low, weights);
  const LoweredGradient g{terms, {}};
  scheme.pull_back(shape, p.read(), {}, g, d.view, {});
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
  scheme.pull_back(shape, p.read(), {}, g, d.view, {});
  if (!d.value.empty()) {
    EXPECT_NEAR(d.value[0][0], 2 * before, 1e-12);
  }
  const std::vector<TensorView> none(p.view.size());
  scheme.pull_back(shape, p.read(), {}, g, none, {});
}

// What does not fit is refused before anything was added to.
template <class S>
void check_refused(const S& scheme) {
  const ScoreShape shape = law_shape();
  const std::vector<Parameter> parameters = scheme.parameters(shape);
  Values p(parameters, 0.4), d(parameters, 0);
  if (d.view.empty()) return;
  LoweredTerms low;
  scheme.lower(shape, p.read(), low);
  Weights weights;
  weighted(low, &weights);
  std::vector<TermGradient> terms = gradients_of(low, weights);
  const std::vector<std::vector<double>> kept = d.value;
  for (std::size_t wrong = 0; wrong < d.view.size(); ++wrong) {
    std::vector<TensorView> to = d.view;
    std::vector<double> other(1000);
    to[wrong] = tensor(other.data(), {10, 4, 25});
    EXPECT_THROW(scheme.pull_back(shape, p.read(), {}, {terms, {}}, to, {}), std::invalid_argument);
    EXPECT_EQ(d.value, kept) << S::card.name << " " << wrong << " wrong";
  }
  // Nor is a list of gradients that lacks its terms read beyond, nor one of another shape.
  EXPECT_THROW(scheme.pull_back(shape, p.read(), {}, {}, d.view, {}), std::invalid_argument);
  for (TermGradient& x : terms) {
    if (!x.table.empty()) x.table.shape[static_cast<std::size_t>(x.table.rank++)] = 1;
    x.query.tokens += 1;
    if (!x.mlp.in.empty()) x.mlp.in.shape[static_cast<std::size_t>(x.mlp.in.rank++)] = 1;
  }
  EXPECT_THROW(scheme.pull_back(shape, p.read(), {}, {terms, {}}, d.view, {}),
               std::invalid_argument);
  EXPECT_EQ(d.value, kept) << S::card.name;
}

template <class S>
void check_fits(const S& scheme) {
  // What a call brings is not here: support/scheme_laws.h runs those.
  if constexpr (BindsInputs<S>) return;
  Values p(scheme.parameters(law_shape()), 0.4);
  LoweredTerms low;
  scheme.lower(law_shape(), p.read(), low);
  std::vector<float> x(7 * 4 * 2), y(10 * 4 * 2), out(7 * 4 * 2);
  // Tokens 3 .. 9 of 0 .. 9, five to a sentence.
  const OwnedPositions q =
      explicit_positions(std::vector<Index>{3, 4, 5, 6, 7, 8, 9, 0, 0, 1, 1, 1, 1, 1}, 1, 2);
  const OwnedPositions k = explicit_positions(
      std::vector<Index>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, 1, 2);
  AttentionArgs a;
  a.q = heads(std::as_const(x).data(), 7, 4, 2);
  a.k = a.v = heads(std::as_const(y).data(), 10, 4, 2);
  a.scale = 1;
  a.query_positions = q;
  a.key_positions = k;
  const LoweredTerms moved = std::move(low);
  a.terms = moved.terms;
  const AttentionResult r{heads(out.data(), 7, 4, 2), {}};
  EXPECT_NO_THROW(check_attention(a, r)) << S::card.name;
  for (const Term& t : moved.terms) EXPECT_NO_THROW(check_rows(t)) << S::card.name;
}

TEST(RelativeLaws, PullBackIsTheTransposeOfLower) {
  for_each(RelativeSchemes{}, []<class S>() {
    for (const S& s : settings<S>()) check_transpose(s);
  });
}

TEST(RelativeLaws, PullBackRefusesWhatDoesNotFit) {
  for_each(RelativeSchemes{}, []<class S>() {
    for (const S& s : settings<S>()) check_refused(s);
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
      for (const Parameter& p : s.parameters(law_shape())) {
        EXPECT_FALSE(p.name.empty());
        const bool zeros = std::is_same_v<S, LocalWindow> || std::is_same_v<S, Clipped> ||
                           std::is_same_v<S, Levit> || std::is_same_v<S, Decomposed> ||
                           std::is_same_v<S, ModalityPairs> || std::is_same_v<S, Irpe> ||
                           p.name == "bias_bias";
        const bool constant = p.initial.kind == InitialKind::constant && p.initial.a != 0;
        EXPECT_TRUE(!p.initial_values.empty() || p.initial.b > 0 || constant || zeros)
            << S::card.name << p.name;
      }
  });
}

}  // namespace
}  // namespace posenc
