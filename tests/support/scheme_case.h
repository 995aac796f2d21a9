// SPDX-License-Identifier: Apache-2.0
// A case of a conformance suite run with a scheme of the score: its parameters and inputs are
// arrays given by name, their gradients come back by name.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "posenc/relative/any_scheme.h"
#include "support/attention_case.h"

namespace posenc::support {

class SchemeCase : public AttentionCase {
 public:
  using AttentionCase::AttentionCase;
  std::map<std::string, ConstTensorView> given;

  // `shape.scale` absent: the scheme's own.
  void run_with(const AnyRelativeScheme& scheme, ScoreShape shape = {}) {
    shape.heads = args.q.heads;
    shape.head_dim = args.q.dim;
    shape.value_dim = args.v.dim;
    if (shape.distance.empty()) shape.distance = {{-args.k.tokens, args.k.tokens}};
    const std::vector<Parameter> p = scheme.parameters(shape);
    std::vector<ConstTensorView> parameters, arrays;
    for (const Parameter& x : p) parameters.push_back(of(x.name));
    scheme.lower(shape, parameters, lowered);
    const std::vector<Input> inputs = scheme.inputs(shape);
    for (const Input& x : inputs) arrays.push_back(of(x.name));
    CallData call;
    call.batch = args.q.batch;
    call.queries = args.q.tokens;
    call.keys = args.k.tokens;
    call.query_offset = args.mask.query_offset;
    call.query_positions = args.query_positions;
    call.key_positions = args.key_positions;
    call.inputs = arrays;
    scheme.bind(shape, parameters, call, lowered.terms, lowered);
    run();
    if (!has("grad_out")) return;
    std::vector<TensorView> dp, di;
    for (std::size_t i = 0; i < p.size(); ++i)
      dp.push_back(gradients[p[i].name] = zeros_like(parameters[i]));
    for (std::size_t i = 0; i < inputs.size(); ++i)
      di.push_back(gradients[inputs[i].name] = zeros_like(arrays[i]));
    scheme.pull_back(shape, parameters, call, gradient(), dp, di);
  }
  std::map<std::string, TensorView> gradients;

  // [B, H, T, ..] of the case, read as [B, T, H, ..].
  ConstTensorView tokens_first(const std::string& what) { return exchanged(view(what)); }
  // A gradient against the case's, whose first axis is summed over where ours has none or one.
  void expect_gradient(const std::string& ours, const std::string& theirs) {
    const SuiteArray& want = array(theirs);
    const std::vector<double> got = values(gradients.at(ours));
    std::vector<double> sum(got.size());
    ASSERT_EQ(want.value.size() % got.size(), 0u) << theirs;
    for (std::size_t i = 0; i < want.value.size(); ++i) sum[i % sum.size()] += want.value[i];
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_LE(std::fabs(got[i] - sum[i]), tolerance * std::fmax(1, std::fabs(sum[i])))
          << theirs << " at " << i << ": " << got[i] << ", peer " << sum[i];
  }
  // The same of an array that was given with its axes 1 and 2 exchanged.
  void expect_exchanged(const std::string& ours, const std::string& theirs) {
    expect(theirs, exchanged_values(ours));
  }

  std::vector<double> numbers(const std::string& what) { return array(what).value; }
  std::vector<double> exchanged_values(const std::string& ours) {
    return values(exchanged(gradients.at(ours)));
  }

 private:
  static ConstTensorView exchanged(ConstTensorView v) {
    std::swap(v.shape[1], v.shape[2]);
    std::swap(v.stride[1], v.stride[2]);
    return v;
  }
  static std::vector<double> values(const ConstTensorView& v) {
    return gradient_values("case", v, {v.shape.begin(), v.shape.begin() + v.rank});
  }
  ConstTensorView of(const std::string& name) {
    const auto at = given.find(name);
    return at == given.end() ? view(name) : at->second;
  }
};

// The first of the entries of axis 0, which are all the same.
inline ConstTensorView first_of_batch(ConstTensorView v) {
  v.shape[0] = 1;
  return v;
}
// Without axis 0, of one entry.
inline ConstTensorView without_batch(ConstTensorView v) {
  for (std::int32_t a = 1; a < v.rank; ++a) {
    const auto at = static_cast<std::size_t>(a);
    v.shape[at - 1] = v.shape[at];
    v.stride[at - 1] = v.stride[at];
  }
  --v.rank;
  return v;
}

}  // namespace posenc::support
