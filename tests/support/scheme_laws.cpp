// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <optional>
#include <sstream>

#include "posenc/attention/plan.h"
#include "posenc/positions/grid.h"
#include "posenc/positions/sequence.h"
#include "support/scheme_laws.h"

namespace posenc::test {
namespace {

struct Array {
  std::string name;
  std::vector<Index> shape;
  std::vector<double> value{}, gradient{};
  std::vector<Index> whole{};  // of an integer input
  bool integer = false;

  ConstTensorView read() const {
    if (integer) return tensor(static_cast<const void*>(whole.data()), DType::i64, shape);
    return tensor(static_cast<const void*>(value.data()), DType::f64, shape);
  }
  TensorView write() { return tensor(static_cast<void*>(gradient.data()), DType::f64, shape); }
};

Index count_of(const std::vector<Index>& shape) {
  Index n = 1;
  for (const Index s : shape) n *= s;
  return n;
}

class World {
 public:
  World(const AnyRelativeScheme& scheme, const LawCall& call)
      : call_(call),
        plan_({scheme}, {.heads = call.heads,
                         .head_dim = call.head_dim,
                         .key_heads = call.key_heads,
                         .value_dim = call.value_dim,
                         .scale = call.scale}) {
    q_ = make("q", {call.batch, call.queries, call.heads, call.head_dim});
    k_ = make("k", {call.batch, call.keys, call.key_heads, call.head_dim});
    v_ = make("v", {call.batch, call.keys, call.key_heads, call.value_dim});
    for (const Parameter& p : plan_.parameters()) {
      parameters_.push_back(make(p.name, p.shape));
      if (!call.number && !p.initial_values.empty())
        for (std::size_t i = 0; i < p.initial_values.size(); ++i)
          parameters_.back().value[i] = p.initial_values[i] + 0.1 * parameters_.back().value[i];
    }
    for (const Input& i : plan_.inputs()) inputs_.push_back(make_input(i));
    query_positions_ = positions(call.query_offset, call.queries);
    key_positions_ = positions(0, call.keys);
    out_.resize(static_cast<std::size_t>(call.batch * call.queries * call.heads * call.value_dim));
    log_sum_exp_.resize(static_cast<std::size_t>(call.batch * call.heads * call.queries));
  }

  std::vector<Array*> arrays() {
    std::vector<Array*> all{&q_, &k_, &v_};
    for (Array& a : parameters_) all.push_back(&a);
    for (Array& a : inputs_)
      if (!a.integer) all.push_back(&a);
    return all;
  }
  bool has_arrays() const { return !parameters_.empty() || !inputs_.empty(); }

  // Sum of what attention gives times fixed weights.
  double loss() {
    lower().forward(args(), named_inputs(), result());
    double sum = 0;
    for (std::size_t i = 0; i < out_.size(); ++i) sum += out_[i] * weight(i);
    for (std::size_t i = 0; i < log_sum_exp_.size(); ++i)
      if (std::isfinite(log_sum_exp_[i])) sum += log_sum_exp_[i] * weight(i + 7);
    return sum;
  }

  void backward(std::span<const NamedGradient> named) {
    loss();
    std::vector<double> d_out(out_.size()), d_lse(log_sum_exp_.size());
    for (std::size_t i = 0; i < d_out.size(); ++i) d_out[i] = weight(i);
    for (std::size_t i = 0; i < d_lse.size(); ++i)
      d_lse[i] = std::isfinite(log_sum_exp_[i]) ? weight(i + 7) : 0;
    const AttentionResult r = result();
    ConstAttentionResult d(r);
    d.out.data = d_out.data();
    d.log_sum_exp.data = d_lse.data();
    AttentionGradients g;
    g.q = heads(q_.write(), HeadsLayout::bthd);
    g.k = heads(k_.write(), HeadsLayout::bthd);
    g.v = heads(v_.write(), HeadsLayout::bthd);
    lower().backward(args(), named_inputs(), r, d, g, named);
  }

  std::vector<NamedGradient> named() {
    std::vector<NamedGradient> list;
    for (Array& a : parameters_) list.push_back({a.name, a.write()});
    for (Array& a : inputs_)
      if (!a.integer) list.push_back({a.name, a.write()});
    return list;
  }

 private:
  LawCall call_;
  AttentionPlan plan_;
  Array q_, k_, v_;
  std::deque<Array> parameters_, inputs_;
  OwnedPositions query_positions_, key_positions_;
  std::vector<double> out_, log_sum_exp_;

  static double weight(std::size_t i) { return std::cos(static_cast<double>(5 * i + 1)); }

  Array make(const std::string& name, std::vector<Index> shape) const {
    Array a{.name = name, .shape = std::move(shape)};
    double phase = 3;
    for (const char c : name) phase += c;
    for (Index i = 0; i < count_of(a.shape); ++i)
      a.value.push_back(call_.number && name != "q" && name != "k" && name != "v"
                            ? call_.number(name, i)
                            : 0.4 * std::sin(static_cast<double>(7 * i) + phase));
    a.gradient.assign(a.value.size(), 0.0);
    return a;
  }
  Array make_input(const Input& i) const {
    std::vector<Index> shape = i.shape;
    for (Index& s : shape)
      s = s == kBatch ? call_.batch : s == kQueries ? call_.queries : s == kKeys ? call_.keys : s;
    Array a = make(i.name, shape);
    a.integer = i.integer;
    const auto n = call_.classes.find(i.name);
    for (std::size_t at = 0; i.integer && at < a.value.size(); ++at)
      a.whole.push_back(static_cast<Index>(
          (at * 5 + at / 3) % static_cast<std::size_t>(n == call_.classes.end() ? 2 : n->second)));
    return a;
  }
  OwnedPositions positions(Index first, Index n) const {
    std::vector<Index> p;
    for (std::int32_t axis = 0; axis < call_.axes; ++axis)
      for (Index t = first; t < first + n; ++t)
        p.push_back(call_.position ? call_.position(axis, t)
                    : axis == 0    ? t
                    : axis == 1    ? t / 2
                                   : t % 3);
    return explicit_positions(p, 1, call_.axes);
  }
  AttentionArgs args() const {
    AttentionArgs a;
    a.q = heads(q_.read(), HeadsLayout::bthd);
    a.k = heads(k_.read(), HeadsLayout::bthd);
    a.v = heads(v_.read(), HeadsLayout::bthd);
    a.query_positions = query_positions_;
    a.key_positions = key_positions_;
    a.mask.query_offset = call_.query_offset;
    a.mask.causal = call_.causal;
    a.mask.window_right = call_.window_right;
    return a;
  }
  std::vector<NamedArray> named_inputs() const {
    std::vector<NamedArray> list;
    for (const Array& a : inputs_) list.push_back({a.name, a.read()});
    return list;
  }
  LoweredAttention lower() const {
    std::vector<NamedArray> list;
    for (const Array& a : parameters_) list.push_back({a.name, a.read()});
    return plan_.lower(list, distance_ranges(query_positions_, key_positions_));
  }
  AttentionResult result() {
    return {heads(tensor(out_.data(), {call_.batch, call_.queries, call_.heads, call_.value_dim}),
                  HeadsLayout::bthd),
            tensor(log_sum_exp_.data(), {call_.batch, call_.heads, call_.queries})};
  }
};

void check_derivatives(World& w, const LawCall& call, const std::string& who) {
  for (Array* a : w.arrays())
    for (std::size_t i = 0; i < a->value.size(); ++i) {
      const double kept = a->value[i], e = 1e-5;
      a->value[i] = kept + e;
      const double above = w.loss();
      a->value[i] = kept - e;
      const double below = w.loss();
      a->value[i] = kept;
      const double slope = (above - below) / (2 * e);
      EXPECT_NEAR(a->gradient[i], slope, call.tolerance * (1 + std::abs(slope)))
          << who << ": " << a->name << " " << i;
    }
}

// "2 * heads * head_dim" for a shape.
Index size_of_name(const std::string& name, const ScoreShape& s) {
  Index n = 1;
  std::istringstream factors(name);
  for (std::string word; factors >> word;)
    if (word != "*")
      n *= word == "heads"       ? s.heads
           : word == "head_dim"  ? s.head_dim
           : word == "value_dim" ? s.value_dim
                                 : std::stoll(word);
  return n;
}

// The named sizes of a shape follow from the names, the others hold for every model.
void check_shape(const std::string& who, const ArrayShape& at, const ScoreShape& shape,
                 const ArrayShape& elsewhere) {
  ASSERT_EQ(at.size(), elsewhere.size()) << who;
  for (std::size_t axis = 0; axis < at.size(); ++axis) {
    EXPECT_EQ(at.name(axis), elsewhere.name(axis)) << who;
    if (at.name(axis).empty())
      EXPECT_EQ(at[axis], elsewhere[axis]) << who << " axis " << axis;
    else
      EXPECT_EQ(at[axis], size_of_name(at.name(axis), shape)) << who << " axis " << axis;
  }
}

void check_shapes(const AnyRelativeScheme& scheme, const LawCall& call) {
  ScoreShape one{.heads = call.heads, .head_dim = call.head_dim, .value_dim = call.value_dim};
  one.distance.assign(3, {-3, 3});
  ScoreShape other = one;
  other.heads *= 2, other.head_dim *= 3, other.value_dim *= 3;
  for (const auto& [at, away] : {std::pair{one, other}, std::pair{other, one}}) {
    const std::vector<Parameter> p = scheme.parameters(at), q = scheme.parameters(away);
    ASSERT_EQ(p.size(), q.size());
    for (std::size_t n = 0; n < p.size(); ++n) check_shape(p[n].name, p[n].shape, at, q[n].shape);
    const std::vector<Input> in = scheme.inputs(at), to = scheme.inputs(away);
    ASSERT_EQ(in.size(), to.size());
    for (std::size_t n = 0; n < in.size(); ++n)
      check_shape(in[n].name, in[n].shape, at, to[n].shape);
  }
}

}  // namespace

void check_scheme_laws(const AnyRelativeScheme& scheme, const LawCall& call) {
  const std::string who(scheme.card().name);
  {
    SCOPED_TRACE(who);
    check_shapes(scheme, call);
  }
  World w(scheme, call);
  const std::vector<NamedGradient> named = w.named();
  w.backward(named);
  check_derivatives(w, call, who);
  std::vector<std::vector<double>> once;
  for (const Array* a : w.arrays()) once.push_back(a->gradient);
  w.backward(named);
  std::size_t n = 0;
  for (const Array* a : w.arrays()) {
    for (std::size_t i = 0; i < a->gradient.size(); ++i)
      EXPECT_NEAR(a->gradient[i], 2 * once[n][i], 1e-12 * (1 + std::abs(once[n][i])))
          << who << " adds: " << a->name << " " << i;
    ++n;
  }
  EXPECT_NO_THROW(w.backward({})) << who;
  std::vector<double> other(1000);
  for (std::size_t wrong = 0; wrong < named.size(); ++wrong) {
    std::vector<NamedGradient> list = named;
    list[wrong].array = tensor(other.data(), {10, 4, 25});
    std::vector<std::vector<double>> before;
    for (const Array* a : w.arrays()) before.push_back(a->gradient);
    EXPECT_THROW(w.backward(list), std::invalid_argument) << who << " " << list[wrong].name;

    for (std::size_t a = 3; a < before.size(); ++a)  // q, k, v got theirs before
      EXPECT_EQ(w.arrays()[a]->gradient, before[a]) << who << " " << list[wrong].name;
  }
}

}  // namespace posenc::test
