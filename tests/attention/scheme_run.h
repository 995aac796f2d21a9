// SPDX-License-Identifier: Apache-2.0
// A call at random with a scheme of the registry, through AttentionPlan and, by hand, through the
// reference: the scheme lowered and bound, its terms, the call's own, its gradients pulled back.
#pragma once
#include <algorithm>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/engine_compare.h"
#include "attention/random_call.h"
#include "attention/random_scheme.h"
#include "core/element.h"
#include "posenc/attention/plan.h"

namespace posenc {

class SchemeRun : private RandomCall {
 public:
  // Throws std::invalid_argument where the scheme has no such call.
  SchemeRun(std::uint64_t seed, std::size_t which, Index queries = -1, Index keys = -1)
      : RandomCall(seed, Wanted{.for_scheme = true, .queries = queries, .keys = keys}),
        scale_(chance(0.5) ? std::optional(chance(0.1) ? 0.0 : 0.7) : std::nullopt),
        without_optional_(chance(0.3)),
        shape_{.heads = H,
               .head_dim = D,
               .value_dim = V,
               .scale = scale_,
               .distance = distance_ranges(args.query_positions, args.key_positions)},
        random_(random_scheme(which, shape_, {.batch = B, .key_heads = G}, r_)) {
    args.scale = plain.scale = std::nullopt;
    call_ = {.batch = B,
             .queries = Tq,
             .keys = Tk,
             .query_offset = args.mask.query_offset,
             .query_positions = args.query_positions,
             .key_positions = args.key_positions};
    if (!args.mask.query_order.empty())
      find_own_keys();
    else if (!args.mask.query_cu_seqlens.empty())
      find_packed_orders();
    parameters_ = random_.scheme.parameters(shape_);
    for (const Parameter& p : parameters_) {
      learned_.push_back(random_parameter(p, r_));
      values_.push_back(tensor(std::as_const(learned_.back()).data(), DType::f64, p.shape));
    }
    random_.scheme.lower(shape_, values_, lowered_);
    fit_requests(lowered_.requests);
    for (const Input& i : random_.scheme.inputs(shape_)) add_input(i);
  }

  DType dtype() const { return args.q.dtype; }
  bool exact = true;  // of_plan runs the exact engine
  std::string text() const {
    return random_.text + " of " + std::to_string(Tq) + " queries, " + std::to_string(Tk) + " keys";
  }

  CallResult of_plan(bool backward, const Executor& e = default_executor()) {
    const AttentionPlan plan(
        {random_.scheme},
        {.heads = H, .head_dim = D, .key_heads = G, .value_dim = V, .scale = scale_});
    std::vector<NamedArray> learned, brought;
    for (std::size_t n = 0; n < parameters_.size(); ++n)
      learned.push_back({parameters_[n].name, values_[n]});
    for (std::size_t n = 0; n < inputs_.size(); ++n)
      if (!own(inputs_[n]) && !brought_[n].empty())
        brought.push_back({inputs_[n].name, brought_[n]});
    const LoweredAttention lowered = plan.lower(learned, shape_.distance);
    const EngineUpstream up(args);
    ResultArrays to(args, args.q.dtype);
    args.exact = exact;
    lowered.forward(args, brought, to.r, e);
    CallResult got{widened(to.r.out), to.lse, {}, {}};
    if (!backward) return got;
    GradientArrays g(args);
    NamedArrays named(*this);
    lowered.backward(args, brought, to.r, {up.d_out, up.d_lse}, g.g, named.of_plan, e);
    return joined(std::move(got), g, named);
  }

  CallResult of_reference(bool backward) {
    AttentionArgs a = plain;
    std::vector<Term> own_terms = lowered_.terms;
    call_.inputs = brought_;
    TermStore store;
    random_.scheme.bind(shape_, values_, call_, own_terms, store);
    const std::vector<Term> terms = joined_terms(own_terms);
    std::vector<Stage> stages(plain.prepare.begin(), plain.prepare.end());
    ask(lowered_.requests, a, stages);
    a.terms = terms;
    a.prepare = stages;
    const EngineUpstream up(a);
    ResultArrays to(a, DType::f64);
    support::attention_forward(a, to.r);
    CallResult got{widened(to.r.out), to.lse, {}, {}};
    if (!backward) return got;
    GradientArrays g(plain), whole(a);
    for (std::vector<double>& x : whole.value) std::fill(x.begin(), x.end(), 0.0);
    NamedArrays named(*this);
    support::attention_backward(a, up.d_out, up.d_lse, gradients(g, whole));
    pull_back(own_terms, whole, named, g);
    return joined(std::move(got), g, named);
  }

 private:
  static bool own(const Input& i) { return i.name == "q" || i.name == "k" || i.name == "v"; }
  bool reads_scores() const {
    return !lowered_.terms.empty() && std::holds_alternative<ScoreMlpTerm>(lowered_.terms.back());
  }

  static Index number(const ConstTensorView& v, Index n) {
    return detail::integer_element(v.data, v.dtype, n * v.stride[0]);
  }
  // fn(its queries, its keys) of each sequence, or of all.
  template <class F>
  void each_sequence(const F& fn) const {
    const ConstTensorView &query = args.mask.query_cu_seqlens, &key = args.mask.key_cu_seqlens;
    if (key.empty()) return fn(Index{0}, Tq, Index{0}, Tk);
    for (Index s = 0; s + 1 < key.shape[0]; ++s)
      fn(number(query, s), number(query, s + 1), number(key, s), number(key, s + 1));
  }
  // The first key of each query's order in its sequence, and the keys of each sequence by their order.
  void find_own_keys() {
    const ConstTensorView &query = args.mask.query_order, &key = args.mask.key_order;
    const auto order = [](const ConstTensorView& v, Index b, Index t) {
      return detail::integer_element(v.data, v.dtype,
                                     (v.shape[0] == 1 ? 0 : b) * v.stride[0] + t * v.stride[1]);
    };
    for (Index b = 0; b < B; ++b) {
      for (Index i = 0; i < Tq; ++i) {
        Index own = -1;
        each_sequence([&](Index first, Index last, Index begin, Index end) {
          for (Index j = end; first <= i && i < last && j-- > begin;)
            if (order(key, b, j) == order(query, b, i)) own = j;
        });
        own_keys_.push_back(own);
        query_orders_.push_back(order(query, b, i));
      }
      each_sequence([&](Index, Index, Index begin, Index end) {
        const auto count = static_cast<std::ptrdiff_t>(keys_by_order_.size());
        for (Index j = begin; j < end; ++j) keys_by_order_.push_back(j);
        std::stable_sort(keys_by_order_.begin() + count, keys_by_order_.end(),
                         [&](Index x, Index y) { return order(key, b, x) < order(key, b, y); });
      });
    }
    call_.own_keys = own_keys_;
    call_.query_orders = query_orders_;
    call_.keys_by_order = keys_by_order_;
  }
  // Queries are the last of the keys of their sequence, but for query_offset; their own keys with them.
  void find_packed_orders() {
    const Mask& m = args.mask;
    Index s = 0;
    for (Index i = 0; i < Tq; ++i) {
      while (number(m.query_cu_seqlens, s + 1) <= i) ++s;
      const Index keys = m.key_cu_seqlens.empty()
                             ? number(m.key_length, s)
                             : number(m.key_cu_seqlens, s + 1) - number(m.key_cu_seqlens, s);
      const Index order = m.query_offset + keys + i - number(m.query_cu_seqlens, s + 1);
      const Index begin = m.key_cu_seqlens.empty() ? 0 : number(m.key_cu_seqlens, s);
      query_orders_.push_back(order);
      own_keys_.push_back(order >= 0 && order < keys ? begin + order : -1);
    }
    call_.own_keys = own_keys_;
    call_.query_orders = query_orders_;
  }
  // What the call has and the scheme has too goes.
  void fit_requests(const CallRequests& r) {
    for (AttentionArgs* a : {&args, &plain}) {
      if (!r.head_scale.empty()) a->head_scale = {};
      if (!r.head_side.empty()) a->mask.head_side = {};
      if (r.normalisation != Normalisation::softmax)
        a->normalisation = r.normalisation, a->sink = {};
    }
  }
  void ask(const CallRequests& r, AttentionArgs& a, std::vector<Stage>& stages) const {
    a.scale = scale_ ? scale_ : r.scale ? r.scale : shape_.content_scale();
    if (!r.head_scale.empty()) a.head_scale = r.head_scale;
    if (!r.head_side.empty()) a.mask.head_side = r.head_side;
    stages.insert(stages.end(), r.prepare.begin(), r.prepare.end());
  }
  void add_input(const Input& i) {
    inputs_.push_back(i);
    if (i.optional && without_optional_) return brought_.push_back({});
    std::vector<Index> shape = i.shape;
    for (Index& s : shape) s = s == kBatch ? batch() : s == kQueries ? Tq : s == kKeys ? Tk : s;
    if (own(i))
      brought_.push_back(tensor_of(i.name == "q" ? plain.q : i.name == "k" ? plain.k : plain.v));
    else if (i.integer)
      brought_.push_back(integers(shape, [&](Index) {
        return i.name == "index" ? r_.integer(-1, random_.classes - 1)
                                 : r_.integer(0, random_.classes - 1);
      }));
    else
      brought_.push_back(real(shape));
  }
  template <class Data>
  static BasicTensorView<Data> tensor_of(const BasicHeads<Data>& h) {
    BasicTensorView<Data> t;
    t.data = h.data, t.dtype = h.dtype, t.rank = 4;
    t.shape = {h.batch, h.tokens, h.heads, h.dim, 0};
    t.stride = {h.batch_stride, h.token_stride, h.head_stride, h.dim_stride, 0};
    return t;
  }

  // The scheme's terms, those of the call, and what reads the scores of both.
  std::vector<Term> joined_terms(const std::vector<Term>& of_scheme) const {
    std::vector<Term> all = of_scheme;
    const auto place = all.end() - (reads_scores() ? 1 : 0);
    all.insert(place, plain.terms.begin(), plain.terms.end());
    return all;
  }
  std::size_t first_own() const { return lowered_.terms.size() - (reads_scores() ? 1 : 0); }

  // Of the call into `g`; those of the scheme's terms into `whole`.
  AttentionGradients gradients(const GradientArrays& g, const GradientArrays& whole) {
    AttentionGradients to = g.g;
    terms_of_reference_.assign(whole.g.terms.begin(), whole.g.terms.end());
    std::copy(g.g.terms.begin(), g.g.terms.end(),
              terms_of_reference_.begin() + static_cast<std::ptrdiff_t>(first_own()));
    stages_of_reference_.assign(g.g.prepare.begin(), g.g.prepare.end());
    stages_of_reference_.resize(whole.g.prepare.size());
    to.terms = terms_of_reference_;
    to.prepare = stages_of_reference_;
    if (to.head_scale.empty()) to.head_scale = whole.g.head_scale;
    return to;
  }

  // Gradients of what the scheme learns and is brought, dense doubles from 0.5.
  struct NamedArrays {
    explicit NamedArrays(const SchemeRun& run) {
      for (std::size_t n = 0; n < run.parameters_.size(); ++n)
        add(run.parameters_[n].name, run.values_[n]);
      for (std::size_t n = 0; n < run.inputs_.size(); ++n)
        if (!run.inputs_[n].integer && !own(run.inputs_[n]) && !run.brought_[n].empty())
          add(run.inputs_[n].name, run.brought_[n]);
    }
    void add(const std::string& name, const ConstTensorView& v) {
      value.emplace_back(static_cast<std::size_t>(v.count()), 0.5);
      value.back().reserve(1);
      const std::vector<Index> shape(v.shape.begin(), v.shape.begin() + v.rank);
      of_plan.push_back({name, tensor(static_cast<void*>(value.back().data()), DType::f64, shape)});
    }
    TensorView view(std::string_view name) const {
      for (const NamedGradient& g : of_plan)
        if (g.name == name) return g.array;
      return {};
    }
    std::deque<std::vector<double>> value;
    std::vector<NamedGradient> of_plan;
  };
  void pull_back(const std::vector<Term>& own_terms, const GradientArrays& whole,
                 const NamedArrays& named, const GradientArrays& g) {
    std::vector<TermGradient> of_scheme(whole.g.terms.begin(), whole.g.terms.end());
    of_scheme.erase(of_scheme.begin() + static_cast<std::ptrdiff_t>(first_own()),
                    of_scheme.begin() + static_cast<std::ptrdiff_t>(first_own() + of_scheme.size() -
                                                                    own_terms.size()));
    LoweredGradient to{of_scheme, {}};
    if (!lowered_.requests.head_scale.empty()) to.head_scale = whole.g.head_scale;
    std::vector<TensorView> d_parameters, d_inputs;
    for (const Parameter& p : parameters_) d_parameters.push_back(named.view(p.name));
    for (const Input& i : inputs_)
      d_inputs.push_back(i.name == "q"   ? tensor_of(g.g.q)
                         : i.name == "k" ? tensor_of(g.g.k)
                         : i.name == "v" ? tensor_of(g.g.v)
                                         : named.view(i.name));
    random_.scheme.pull_back(shape_, values_, call_, to, d_parameters, d_inputs);
  }

  static CallResult joined(CallResult got, GradientArrays& g, const NamedArrays& named) {
    got.gradients = std::move(g.value);
    got.names = std::move(g.name);
    for (std::size_t n = 0; n < named.value.size(); ++n) {
      got.gradients.push_back(named.value[n]);
      got.names.push_back("of " + std::string(named.of_plan[n].name));
    }
    return got;
  }

  std::optional<double> scale_;
  bool without_optional_;
  ScoreShape shape_;
  RandomScheme random_;
  std::vector<Index> own_keys_, query_orders_, keys_by_order_;
  CallData call_;
  std::vector<Parameter> parameters_;
  std::deque<std::vector<double>> learned_;
  std::vector<ConstTensorView> values_, brought_;
  std::vector<Input> inputs_;
  LoweredTerms lowered_;
  std::vector<TermGradient> terms_of_reference_;
  std::vector<StageGradient> stages_of_reference_;
};

}  // namespace posenc
