// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/prophetnet.h"

#include <cmath>
#include <vector>

#include "posenc/core/error.h"
#include "posenc/relative/t5.h"
#include "relative/call_inputs.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/term_names.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kProphetNet = ProphetNet::card.name;
constexpr detail::TermNames kProphetNetTerms{kProphetNet, {{"weight"}, {"bias"}}};

T5 prophetnet_buckets(const ProphetNet& x) {
  T5 rule;
  rule.bidirectional = false;
  rule.num_buckets = x.num_buckets;
  rule.max_distance = x.max_distance;
  return rule;
}

}  // namespace

std::vector<Parameter> ProphetNet::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  return {{"bias_weight", {num_buckets * axes.heads, d_model}, {InitialKind::normal, 0, init}, {}},
          {"bias_bias", {num_buckets * axes.heads}, {}, {}}};
}

std::vector<Input> ProphetNet::inputs(const ScoreShape& s) const {
  check_fields(s);
  return {{.name = "hidden", .shape = {kBatch, kQueries, d_model}}};
}

void ProphetNet::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                       LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const T5 rule = prophetnet_buckets(*this);
  const std::vector<Index> thresholds = t5_thresholds(num_buckets, max_distance);
  const IndexLine line =
      detail::line_over(kProphetNet, out, detail::clipped(s.range(), -1, max_distance),
                        [&](Index delta) { return rule.bucket(delta, thresholds); });
  const auto table = [&](const char* name, Index width) {
    return out.table(detail::by_head(value[name], num_buckets, s.heads, width), s.heads,
                     num_buckets, width);
  };
  detail::NamedTerms terms(kProphetNetTerms, out);
  terms.add("weight",
            detail::number_term(table("bias_weight", d_model), line, 1));  // x comes with a call
  terms.add("bias", detail::number_term(table("bias_bias", 1), line, 1));
}

void ProphetNet::bind(const ScoreShape& s, std::span<const ConstTensorView>, const CallData& call,
                      std::span<Term> terms, TermStore&) const {
  const ConstTensorView x = detail::CallInputs(*this, s, call)["hidden"];
  ConstHeads& to = std::get<ProductTerm>(kProphetNetTerms.of(terms, "weight")).query.given;
  to.data = x.data;
  to.dtype = x.dtype;
  to.batch = x.shape[0];
  to.tokens = x.shape[1];
  to.heads = 1;
  to.dim = x.shape[2];
  to.batch_stride = x.stride[0];
  to.token_stride = x.stride[1];
  to.head_stride = 0;
  to.dim_stride = x.stride[2];
}

void ProphetNet::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                           const CallData& call, const LoweredGradient& g,
                           std::span<const TensorView> dp,
                           std::span<const TensorView> d_inputs) const {
  const detail::LearnedValues value(*this, s, p);
  detail::LearnedGradients to(value);
  const detail::TermGradients of(kProphetNetTerms, g);
  const auto take = [&](const char* name, const char* term, Index width) {
    to[name] = detail::from_heads(of.table(term, {1, s.heads, num_buckets, width}), num_buckets,
                                  s.heads, width);
  };
  take("bias_weight", "weight", d_model);
  take("bias_bias", "bias", 1);
  if (d_inputs.empty() || d_inputs[0].empty()) return to.accumulate(dp);
  const detail::CallInputs given(*this, s, call);
  const std::vector<Index> shape = given.shape("hidden");
  detail::InputGradients to_call(given);
  to_call["hidden"] =
      detail::vectors_gradient(kProphetNet, of["weight"].query, {shape[0], shape[1], 1, d_model});
  to_call.check(d_inputs);
  to.accumulate(dp);
  to_call.accumulate(d_inputs);
}

void ProphetNet::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kProphetNet);
  if (d_model < 1 || d_model > 65536)
    refuse_field(kProphetNet, "d_model", "must lie between 1 and 65536", d_model);
  if (num_buckets < 2 || num_buckets > 65536)
    refuse_field(kProphetNet, "num_buckets", "must lie between 2 and 65536", num_buckets);
  if (max_distance <= num_buckets / 2)
    refuse_field(kProphetNet, "max_distance", "must be above half the buckets", max_distance);
  if (!std::isfinite(init) || init < 0)
    refuse_field(kProphetNet, "init", "must be finite and not negative", init);
}

}  // namespace posenc::v0
