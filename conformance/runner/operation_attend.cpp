// SPDX-License-Identifier: Apache-2.0
// attend: a call of attention with position terms, forward, its scores and its gradients.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "conformance/runner/attend_call.h"
#include "conformance/runner/parameters.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

constexpr std::string_view kPairLetters = "bhqk";

// Which results are compared: rows that the case names, pairs that are visible.
struct Compared {
  std::vector<double> rows;  // [batch, queries], 0: not compared; empty: all
  std::vector<double> scores;
  Index batch, heads, queries, keys;

  bool row(Index b, Index i) const {
    return rows.empty() || rows[static_cast<std::size_t>(b * queries + i)] != 0;
  }
  bool pair(Index b, Index h, Index i, Index j) const {
    const std::size_t at = static_cast<std::size_t>(((b * heads + h) * queries + i) * keys + j);
    return row(b, i) && !(std::isinf(scores[at]) && scores[at] < 0);
  }
};

// Rows that the case names; with empty_rows: skip, not those that see no key.
Compared compared_rows(const Check& check, const AttendCall& c, const std::vector<double>& lse) {
  Compared all{{}, {}, c.batch(), c.args.q.heads, c.args.q.tokens, c.keys()};
  if (check.text("empty_rows") == "skip") {
    all.rows.assign(static_cast<std::size_t>(all.batch * all.queries), 1.0);
    for (Index b = 0; b < all.batch; ++b)
      for (Index i = 0; i < all.queries; ++i)
        if (std::isinf(lse[static_cast<std::size_t>(b * all.heads * all.queries + i)]))
          all.rows[static_cast<std::size_t>(b * all.queries + i)] = 0;
    return all;
  }
  if (check.array_name("in", "query_visible") == nullptr) return all;
  const Slice s = check.input("query_visible");
  const std::vector<double> given = s.values();
  const auto n = static_cast<std::size_t>(all.batch * all.queries);
  if (given.size() != n && given.size() != static_cast<std::size_t>(all.queries))
    refuse_field("case", "query_visible", "must have a number for each query", s.text);
  for (std::size_t i = 0; i < n; ++i) all.rows.push_back(given[i % given.size()]);
  return all;
}

// The letters of what is by pair: four axes, or without the batch, or without heads too.
std::string pair_letters(const Check& check, const Slice& s) {
  const std::size_t rank = std::min<std::size_t>(s.shape.size(), 4);
  return letters_of(check, s, kPairLetters.substr(4 - rank));
}

// [batch, heads, queries, keys] against an array that may lack axes or have one entry for all.
void expect_pairs(Check& check, const std::string& ours, const std::vector<double>& got,
                  const Compared& c) {
  const std::string* name = check.array_name("out", ours);
  if (name == nullptr) return;
  const Slice want = slice(check.in_case, *name);
  const Axes axes(want.shape, pair_letters(check, want), {});
  const std::vector<double> theirs = want.values();
  std::vector<double> result = theirs;
  const Index sizes[] = {c.batch, c.heads, c.queries, c.keys};
  for (std::size_t a = 0; a < 4; ++a)
    if (axes[kPairLetters[a]].size != sizes[a] && axes[kPairLetters[a]].size != 1)
      refuse("case", "the result has another shape than " + want.text, sizes[a]);
  const bool hidden = check.flag("compare_hidden");
  std::size_t at = 0;
  for (Index b = 0; b < c.batch; ++b)
    for (Index h = 0; h < c.heads; ++h)
      for (Index i = 0; i < c.queries; ++i)
        for (Index j = 0; j < c.keys; ++j, ++at) {
          const bool use = hidden                    ? c.row(b, i)
                           : ours == "probabilities" ? c.row(b, i)
                                                     : c.pair(b, h, i, j);
          if (!use) continue;
          const auto offset = [&](char letter, Index x) {
            return axes[letter].size == 1 ? 0 : x * axes[letter].stride;
          };
          result[static_cast<std::size_t>(offset('b', b) + offset('h', h) + offset('q', i) +
                                          offset('k', j))] = got[at];
        }
  check.expect(want, result);
}

// Heads [batch, tokens, heads, channels]; rows that are not compared take the case's numbers.
void expect_out(Check& check, HeadsArray& out, const Compared& c) {
  const std::string* name = check.array_name("out", "out");
  if (name == nullptr) return;
  const Slice want = slice(check.in_case, *name);
  const Axes theirs(want.shape, attention_letters(check, want), {{'d', out.axes['d'].size}});
  for (const char letter : {'b', 't', 'h', 'd'})
    if (theirs[letter].size != out.axes[letter].size)
      refuse("case", "the result has another shape than " + want.text, out.axes[letter].size);
  const std::vector<double> given = want.values(), got = out.data.doubles();
  const std::vector<Index> from = out.axes.walk("bthd"), to = theirs.walk("bthd");
  std::vector<double> result = given;
  const Index per_row = c.heads * out.axes['d'].size;
  for (std::size_t n = 0; n < from.size(); ++n) {
    const Index row = static_cast<Index>(n) / per_row;
    if (c.row(row / c.queries, row % c.queries))
      result[static_cast<std::size_t>(to[n])] = got[static_cast<std::size_t>(from[n])];
  }
  check.expect(want, result);
}

// The output of a layer around the call.
void expect_projected(Check& check, const Projected& layer, const HeadsArray& out,
                      const Compared& c) {
  const std::string* name = check.array_name("out", "out");
  if (name == nullptr) return;
  const Slice want = slice(check.in_case, *name);
  std::vector<double> got = layer.output(out);
  const std::vector<double> theirs = want.values();
  if (got.size() != theirs.size())
    refuse("case", "the result has another number of elements than " + want.text,
           static_cast<Index>(got.size()));
  const auto rows = static_cast<std::size_t>(c.batch * c.queries);
  for (std::size_t t = 0; !c.rows.empty() && t < rows; ++t)
    if (c.rows[t] == 0)
      std::copy_n(theirs.begin() + static_cast<std::ptrdiff_t>(t * got.size() / rows),
                  got.size() / rows,
                  got.begin() + static_cast<std::ptrdiff_t>(t * got.size() / rows));
  check.expect(want, got);
}

void expect_log_sum_exp(Check& check, const std::vector<double>& got, const Compared& c) {
  const std::string* name = check.array_name("out", "log_sum_exp");
  if (name == nullptr) return;
  const Slice want = slice(check.in_case, *name);
  const std::string letters = letters_of(
      check, want, std::string_view("bhq").substr(3 - std::min<std::size_t>(want.shape.size(), 3)));
  const Axes axes(want.shape, letters, {});
  std::vector<double> result = want.values();
  std::size_t at = 0;
  for (Index b = 0; b < c.batch; ++b)
    for (Index h = 0; h < c.heads; ++h)
      for (Index i = 0; i < c.queries; ++i, ++at)
        if (c.row(b, i))
          result.at(static_cast<std::size_t>(b * axes['b'].stride + h * axes['h'].stride +
                                             i * axes['q'].stride)) = got[at];
  check.expect(want, result);
}

std::vector<double> sum_of(const std::vector<const std::vector<double>*>& lists) {
  std::vector<double> sum(lists[0]->size(), 0.0);
  for (const std::vector<double>* l : lists)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (*l)[i];
  return sum;
}

void expect_scores(Check& check, const AttendCall& call, Compared& c) {
  const char* names[] = {"content",           "scores",         "capped",
                         "probabilities",     "query_position", "position_key",
                         "position_position", "content_key",    "position"};
  if (std::none_of(std::begin(names), std::end(names),
                   [&](const char* n) { return check.array_name("out", n) != nullptr; }))
    return;
  const Index shape[] = {c.batch, c.heads, c.queries, c.keys};
  const auto n = static_cast<std::size_t>(c.batch * c.heads * c.queries * c.keys);
  std::vector<std::vector<double>> numbers(7, std::vector<double>(n));
  const auto view = [&](std::size_t i) {
    return tensor(static_cast<void*>(numbers[i].data()), DType::f64, shape);
  };
  const AttentionScores s{view(0), view(1), view(2), view(3), view(4), view(5), view(6)};
  call.lowered->scores(call.args, call.inputs, s);
  c.scores = numbers[1];
  for (std::size_t i = 0; i < 7; ++i) expect_pairs(check, names[i], numbers[i], c);
  expect_pairs(check, "content_key", numbers[0], c);
  expect_pairs(check, "position", sum_of({&numbers[4], &numbers[5], &numbers[6]}), c);
}

// A gradient in the shape of ours, or the case's without the batch: then ours is summed.
void expect_gradient(Check& check, std::string_view name, const std::vector<double>& got,
                     const std::vector<Index>& shape) {
  const std::string* named = check.array_name("out", name);
  if (named == nullptr) return;
  const Slice want = slice(check.in_case, *named);
  const auto count = static_cast<std::size_t>(want.count());
  if (count == got.size()) return check.expect(want, got);
  if (shape.empty() || shape[0] == 0 || count == 0 ||
      got.size() / static_cast<std::size_t>(shape[0]) != count) {
    if (count > 0 && got.size() > 0 && count % got.size() == 0) {
      // The case's has a batch in front: its sum is ours.
      const std::vector<double> rows = want.values();
      std::vector<double> sum(got.size(), 0.0);
      for (std::size_t i = 0; i < rows.size(); ++i) sum[i % got.size()] += rows[i];
      const Tolerance t = tolerance_for(check.in_case, check.json, want);
      for (std::size_t i = 0; i < got.size(); ++i)
        check.comparison.element(got[i], sum[i], t.abs + t.rel * std::abs(sum[i]), want.text,
                                 [i] { return std::vector<Index>{static_cast<Index>(i)}; });
      return;
    }
    refuse("case", "the gradient has another number of elements than " + want.text,
           static_cast<Index>(got.size()));
  }
  std::vector<double> sum(count, 0.0);
  for (std::size_t i = 0; i < got.size(); ++i) sum[i % count] += got[i];
  check.expect(want, sum);
}

// Our gradient of a parameter in the order of the case's axes.
std::vector<double> in_their_order(const Check& check, const Check& back, const std::string& name,
                                   std::vector<double> got) {
  got = extended_gradient(check, name, std::move(got));
  const std::vector<Index> order = transposed_axes(check, name);
  const std::string* named = back.array_name("out", name);
  if (order.empty() || named == nullptr) return got;
  const Slice want = slice(check.in_case, *named);
  if (order.size() != want.shape.size() || want.count() != static_cast<Index>(got.size()))
    refuse("case", "the gradient has another shape than " + want.text,
           static_cast<Index>(got.size()));
  std::vector<Index> shape, inverse(order.size(), 0);
  for (std::size_t n = 0; n < order.size(); ++n) {
    shape.push_back(want.shape.at(static_cast<std::size_t>(order[n])));
    inverse[static_cast<std::size_t>(order[n])] = static_cast<Index>(n);
  }
  Array ours = make_array(tensor(std::span<const double>(got)));
  ours.shape = shape;
  return transposed(ours, inverse).doubles();
}

std::vector<Index> shape_of(const ConstTensorView& v) {
  return {v.shape.begin(), v.shape.begin() + v.rank};
}

std::vector<Index> strides_of(const ConstTensorView& v) {
  return {v.stride.begin(), v.stride.begin() + v.rank};
}

// Zeros in the shape and order of an array, kept until they are compared.
struct Gradient {
  std::string name;
  std::vector<Index> shape, stride;
  std::vector<double> value{};
  TensorView view() { return tensor(static_cast<void*>(value.data()), DType::f64, shape, stride); }
};

struct Backward {
  std::deque<Gradient> all;
  std::vector<StageGradient> stages;
  AttentionGradients g;
  std::vector<NamedGradient> named;

  TensorView zeros(std::string name, const ConstTensorView& like) {
    if (like.empty()) return {};
    all.push_back({std::move(name), shape_of(like), strides_of(like)});
    all.back().value.assign(static_cast<std::size_t>(like.count()), 0.0);
    return all.back().view();
  }
};

HeadsArray zeros_like(const HeadsArray& x) {
  HeadsArray y = x;
  std::fill(y.data.bytes.begin(), y.data.bytes.end(), std::byte{0});
  return y;
}

// Upstream gradients in the shape of the results.
HeadsArray upstream_out(const Check& back, const Check& check, const AttendCall& call,
                        const HeadsArray& out) {
  HeadsArray d = zeros_like(out);
  if (back.array_name("in", "out") == nullptr) return d;
  const Slice s = back.input("out");
  if (call.projected && call.projected->has_output())
    return call.projected->pull_output(s.values(), out);
  const HeadsArray given = heads_of(s, DType::f64, attention_letters(check, s), out.axes['d'].size);
  const std::vector<Index> from = given.axes.walk("bthd"), to = d.axes.walk("bthd");
  if (from.size() != to.size())
    refuse("case", "the upstream gradient must have the shape of out", s.text);
  const std::vector<double> values = given.data.doubles();
  for (std::size_t i = 0; i < from.size(); ++i)
    std::memcpy(d.data.bytes.data() + 8 * to[i], &values[static_cast<std::size_t>(from[i])], 8);
  return d;
}

void run_gradient(Check& check, const AttendCall& call, const ConstAttentionResult& result,
                  HeadsArray& out) {
  const Json* members = check.part("gradient");
  if (members == nullptr) return;
  Check back(check, *members, "gradient");
  back.comparison = std::move(check.comparison);
  HeadsArray d_out = upstream_out(back, check, call, out);
  std::vector<double> d_lse(
      static_cast<std::size_t>(call.args.q.batch * call.args.q.heads * call.args.q.tokens), 0.0);
  if (back.array_name("in", "log_sum_exp") != nullptr) {
    const Slice s = back.input("log_sum_exp");
    if (s.count() != static_cast<Index>(d_lse.size()))
      refuse("case", "the upstream gradient must have the shape of log_sum_exp", s.text);
    d_lse = s.values();
  }
  ConstAttentionResult d(d_out.view(), result.log_sum_exp);
  d.log_sum_exp.data = d_lse.data();
  HeadsArray dq = zeros_like(call.q), dk = zeros_like(call.k), dv = zeros_like(call.v);
  Backward b;
  b.g.q = dq.view(), b.g.k = dk.view(), b.g.v = dv.view();
  const AttentionArgs& a = call.args;
  b.g.sink = b.zeros("sink", a.sink);
  b.g.head_scale = b.zeros("head_scale", a.head_scale);
  b.g.query_factor = b.zeros("query_factor", a.query_factor);
  b.g.bias = b.zeros("bias", a.mask.bias);
  b.g.mix_before = b.zeros("mix_before", a.mix_before);
  b.g.mix_after = b.zeros("mix_after", a.mix_after);
  for (const Stage& s : a.prepare) {
    const bool add = s.kind == StageKind::add;
    StageGradient to;
    to.q = b.zeros(add ? "query_bias" : "query_norm", s.q);
    to.k = b.zeros(add ? "key_bias" : "key_norm", s.k);
    b.stages.push_back(to);
  }
  b.g.prepare = b.stages;
  for (const NamedArray& p : call.parameters)
    b.named.push_back({p.name, b.zeros(std::string(p.name), p.array)});
  for (const NamedArray& i : call.inputs)
    if (i.array.dtype == DType::f64)
      b.named.push_back({i.name, b.zeros(std::string(i.name), i.array)});
  call.lowered->backward(a, call.inputs, result, d, b.g, b.named);
  for (const auto& [name, x] : {std::pair{"q", &dq}, std::pair{"k", &dk}, std::pair{"v", &dv}}) {
    if (call.projected) call.projected->pull_heads(name, *x);
    const std::string* named = back.array_name("out", name);
    if (named == nullptr) continue;
    const Slice want = slice(check.in_case, *named);
    expect_heads(back, name, *x, attention_letters(check, want), x->axes['d'].size);
  }
  if (call.projected) call.projected->expect_gradients(back);
  for (const Gradient& g : b.all)
    expect_gradient(back, g.name, in_their_order(check, back, g.name, g.value), g.shape);
  check.comparison = std::move(back.comparison);
  if (check.failure.empty()) check.failure = back.failure;
}

}  // namespace

void run_attend(Check& check) {
  if (check.part("function") != nullptr) return run_attend_function(check);
  const AttendCall call(check);
  const AttentionArgs& a = call.args;
  HeadsArray out = call.q;
  out.data = make_array(DType::f64, {a.q.batch, a.q.heads, a.q.tokens, a.v.dim});
  out.axes = Axes(out.data.shape, "bhtd", {});
  std::vector<double> lse(static_cast<std::size_t>(a.q.batch * a.q.heads * a.q.tokens));
  const AttentionResult result{out.view(), tensor(lse.data(), {a.q.batch, a.q.heads, a.q.tokens})};
  call.lowered->forward(a, call.inputs, result);
  Compared compared = compared_rows(check, call, lse);
  if (call.projected && call.projected->has_output())
    expect_projected(check, *call.projected, out, compared);
  else
    expect_out(check, out, compared);
  expect_log_sum_exp(check, lse, compared);
  expect_scores(check, call, compared);
  run_gradient(check, call, result, out);
}

}  // namespace posenc::conformance
