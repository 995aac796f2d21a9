// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/cope.h"

#include "posenc/core/error.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kCope = "cope";

void check_cope_call(const Cope& c, const CallData& call) {
  const std::size_t needed = c.gates == CopeGates::keys ? 0 : 1;
  if (call.inputs.size() != needed)
    refuse(kCope, "inputs must be as many as inputs() has", static_cast<Index>(call.inputs.size()));
}

}  // namespace

std::vector<Parameter> Cope::parameters(const ScoreShape& s) const {
  check_score_shape(s, kCope);
  if (positions < 1 || positions > 1000000)
    refuse(kCope, "positions must lie between 1 and 1000000", positions);
  if (table == CopeTable::rows) return {{"pos_emb", {positions, s.head_dim}, {}, {}}};
  return {{"pos_emb", {1, s.head_dim, positions}, {}, {}}};
}

std::vector<Input> Cope::inputs(const ScoreShape& s) const {
  if (gates == CopeGates::keys) return {};
  return {{.name = gates == CopeGates::values ? "v" : "gate_key",
           .shape = {kBatch, kKeys, s.heads, s.head_dim}}};
}

void Cope::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kCope, needed.size(), p.size());
  std::vector<double> e = parameter_values(kCope, needed[0], p[0]);
  if (table == CopeTable::columns) e = detail::transposed_list(e, s.head_dim, positions);
  Term t;
  t.kind = TermKind::gates;
  t.gate_scale = s.content_scale();
  t.scale = scaling == CopeScaling::both ? s.content_scale() : 1;
  t.query = kContent;
  if (gates == CopeGates::keys) t.key = kContent;
  t.table = out.table(std::move(e), 1, positions, s.head_dim);
  out.add(t);
}

void Cope::bind(const ScoreShape&, std::span<const ConstTensorView>, const CallData& call,
                std::span<Term> terms, TermStore&) const {
  check_cope_call(*this, call);
  if (gates != CopeGates::keys) terms[0].key.given = heads(call.inputs[0], HeadsLayout::bthd);
}

void Cope::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView> d_inputs) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kCope, needed.size(), p.size());
  check_cope_call(*this, call);
  const TermGradient& t = gradient_of(kCope, g.terms, 0);
  std::vector<double> d = gradient_values(kCope, t.table, {1, 1, positions, s.head_dim});
  if (table == CopeTable::columns) d = detail::transposed_list(d, positions, s.head_dim);
  if (gates != CopeGates::keys) {
    const ConstTensorView& in = call.inputs[0];
    const std::vector<Index> shape(in.shape.begin(), in.shape.begin() + in.rank);
    const Parameter input{inputs(s)[0].name, shape, {}, {}};
    check_gradients(kCope, needed, dp);
    accumulate(kCope, std::span(&input, 1), d_inputs,
               std::vector<std::vector<double>>{detail::vectors_gradient(kCope, t.key, shape)});
  }
  accumulate(kCope, needed, dp, std::vector<std::vector<double>>{d});
}

}  // namespace posenc::v0
