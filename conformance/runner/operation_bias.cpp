// SPDX-License-Identifier: Apache-2.0
// bias, buckets: what stands in the score, as far as schemes of it are there.
#include <algorithm>
#include <cstring>
#include <deque>

#include "conformance/runner/encoding.h"
#include "conformance/runner/parameters.h"
#include "conformance/runner/position_list.h"
#include "conformance/runner/tensors.h"
#include "posenc/attention/plan.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

// The scores of queries and keys that are zero, [batch, heads, queries, keys]; -inf where the call
// is causal, or a scheme shows a head one side only.
struct Bias {
  std::vector<double> value;
  std::vector<Index> shape;
};

std::vector<std::string> scheme_texts(const Check& check) {
  const Json* scheme = check.find("scheme");
  if (scheme == nullptr) refuse_field("case", "bias", "needs a scheme");
  std::vector<std::string> texts;
  if (scheme->is_array())
    for (const Json& one : scheme->as_array()) texts.push_back(one.as_string());
  else
    texts.push_back(scheme->as_string());
  return texts;
}

// Inputs as they are; those without a batch get one of 1.
struct GivenInputs {
  std::deque<Array> arrays;
  std::deque<std::string> names;
  std::vector<NamedArray> views;

  GivenInputs(const Check& check, const std::vector<Input>& inputs) {
    for (const Input& i : inputs) {
      if (check.array_name("in", i.name) == nullptr) continue;
      const Slice s = check.input(i.name);
      Array a = make_array(i.integer ? DType::i64 : DType::f64, s.shape);
      const std::vector<double> values = s.values();
      for (std::size_t n = 0; n < values.size(); ++n) {
        const auto whole = static_cast<Index>(values[n]);
        std::memcpy(a.bytes.data() + 8 * n,
                    i.integer ? static_cast<const void*>(&whole) : &values[n], 8);
      }
      if (a.shape.size() + 1 == i.shape.size() && i.shape[0] == kBatch)
        a.shape.insert(a.shape.begin(), 1);
      arrays.push_back(std::move(a));
      names.push_back(i.name);
      views.push_back({names.back(), std::as_const(arrays.back()).view()});
    }
  }
  Index batch() const {
    Index n = 1;
    for (const Array& a : arrays)
      if (a.shape.size() > 1) n = std::max(n, a.shape[0]);
    return n;
  }
};

Bias bias_of(const Check& check) {
  const std::vector<std::string> texts = scheme_texts(check);
  const OwnedPositions query = positions_of(check, "q_positions");
  const OwnedPositions key = positions_of(check, "k_positions");
  const auto heads_count = check.integer("heads", 0);
  const auto dim = check.integer("head_dim", 1);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  AttentionSizes sizes{.heads = heads_count, .head_dim = dim};
  if (check.find("scale") != nullptr) sizes.scale = check.number("scale", 0);
  const AttentionPlan plan(views, sizes);
  const Given given = given_parameters(check, plan.parameters());
  std::vector<NamedArray> parameters;
  const std::vector<Parameter> named = plan.parameters();
  for (std::size_t n = 0; n < named.size(); ++n)
    parameters.push_back({named[n].name, given.views[n]});
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(query, key));
  const GivenInputs inputs(check, plan.inputs());
  const Index batch = std::max({query.batch, key.batch, inputs.batch()});
  const Array q = make_array(DType::f64, {batch, query.count(), heads_count, dim});
  const Array k = make_array(DType::f64, {batch, key.count(), heads_count, dim});
  AttentionArgs a;
  a.q = heads(q.view(), HeadsLayout::bthd);
  a.k = a.v = heads(k.view(), HeadsLayout::bthd);
  a.query_positions = query;
  a.key_positions = key;
  const Json* causal = check.member("call", "causal");
  a.mask.causal = causal != nullptr && causal->as_bool();
  Bias bias{{}, {batch, heads_count, query.count(), key.count()}};
  bias.value.resize(static_cast<std::size_t>(batch * heads_count * query.count() * key.count()));
  AttentionScores s;
  s.scores = tensor(static_cast<void*>(bias.value.data()), DType::f64, bias.shape);
  lowered.scores(a, inputs.views, s);
  return bias;
}

}  // namespace

// The bias of a relative scheme, or the sum of several (`sum`: checks that inherit this one).
void run_bias(Check& check) {
  const Json* terms = check.part("sum");
  Bias total;
  if (terms == nullptr) {
    total = bias_of(check);
  } else {
    for (std::size_t n = 0; n < terms->as_array().size(); ++n) {
      const Bias one = bias_of(check.inherited(terms->as_array()[n], Check::place("sum", n)));
      if (n > 0 && one.shape != total.shape)
        refuse("case", "the terms of a sum must have one shape", static_cast<Index>(n));
      total.shape = one.shape;
      total.value.resize(one.value.size(), 0.0);
      for (std::size_t i = 0; i < one.value.size(); ++i) total.value[i] += one.value[i];
    }
  }
  check.expect("bias", total.value, total.shape);
}

// The index of every two places on a grid, row by row.
void irpe_buckets(Check& check, const Irpe& irpe) {
  const OwnedPositions query = positions_of(check, "q_positions");
  const OwnedPositions key = positions_of(check, "k_positions");
  if (query.axes != 2 || key.axes != 2)
    refuse("case", "buckets of irpe need positions of two axes", static_cast<Index>(query.axes));
  const auto& q = std::get<std::vector<Index>>(query.value);
  const auto& k = std::get<std::vector<Index>>(key.value);
  const std::size_t n = q.size() / 2, m = k.size() / 2;
  std::vector<double> buckets;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < m; ++j)
      buckets.push_back(static_cast<double>(irpe.bucket(q[i] - k[j], q[n + i] - k[m + j])));
  check.expect("bucket", buckets, {query.count(), key.count()});
}

// T5's or DeBERTa's bucket of every distance query - key in `positions`, or of every two of
// q_positions and k_positions; `add` is what the peer adds to it.
void run_buckets(Check& check) {
  const Encoding encoding = encoding_of(check);
  if (const Irpe* irpe = std::get_if<Irpe>(&encoding.scheme)) return irpe_buckets(check, *irpe);
  const T5* t5 = std::get_if<T5>(&encoding.scheme);
  const Deberta* deberta = std::get_if<Deberta>(&encoding.scheme);
  if (t5 == nullptr && deberta == nullptr)
    refuse_field("case", "buckets", "needs the scheme t5, deberta or irpe");
  std::vector<Index> distances, shape;
  if (has_positions(check, "q_positions")) {
    const OwnedPositions query = positions_of(check, "q_positions");
    const OwnedPositions key = positions_of(check, "k_positions");
    for (const Index i : std::get<std::vector<Index>>(query.value))
      for (const Index j : std::get<std::vector<Index>>(key.value)) distances.push_back(i - j);
    shape = {query.count(), key.count()};
  } else {
    const OwnedPositions given = positions_of(check);
    distances = std::get<std::vector<Index>>(given.value);
    shape = {given.axes, given.batch, given.count()};
  }
  const auto added = check.integer("add", 0);
  std::vector<double> buckets;
  for (const Index d : distances)
    buckets.push_back(static_cast<double>((t5 ? t5->bucket(d) : deberta->bucket(d)) + added));
  check.expect("bucket", buckets, shape);
}

}  // namespace posenc::conformance
