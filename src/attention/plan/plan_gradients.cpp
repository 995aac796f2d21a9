// SPDX-License-Identifier: Apache-2.0
// The gradients of a plan's call: checked whole before anything is added, then handed to the schemes.
#include <algorithm>

#include "attention/call/check_overlap.h"
#include "attention/call/field_name.h"
#include "attention/plan/plan_call.h"
#include "core/extent.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

void check_named(std::string_view name, const TensorView& v, std::span<const Index> shape) {
  if (v.empty()) return;
  const FieldName what("the gradient of ", name);
  if (v.device != Device::cpu) refuse_field(kPlan, what, "must be in the CPU's memory");
  if (v.dtype != DType::f64 && v.dtype != DType::f32)
    refuse_field(kPlan, what, "must be f64 or f32", dtype_name(v.dtype));
  if (v.rank != static_cast<std::int32_t>(shape.size()) ||
      !std::equal(shape.begin(), shape.end(), v.shape.begin()))
    refuse_shape(kPlan, what, "must have the shape " + sizes_text(shape), v);
  check_extent(kPlan, what, v);
}

}  // namespace

PlanGradients::PlanGradients(const LoweredState& s, const PlanCall& call,
                             const AttentionGradients& own, std::span<const NamedGradient> named,
                             CallArena& arena)
    : gradients(own), arena_(arena) {
  if (!own.terms.empty() && own.terms.size() != call.own)
    refuse_number(kPlan, "terms",
                  "gradients of terms must be those of the call, " + std::to_string(call.own),
                  static_cast<Index>(own.terms.size()));
  if (!own.prepare.empty() && own.prepare.size() != call.stages)
    refuse_number(kPlan, "prepare",
                  "gradients of stages must be those of the call, " + std::to_string(call.stages),
                  static_cast<Index>(own.prepare.size()));
  if (!s.requests.head_scale.empty() && !own.head_scale.empty())
    refuse_sentence(kPlan, "head_scale",
                    "the gradient of head_scale must be empty where a scheme has its own");
  find_wanted(*s.plan, call, named, own);
  place_terms(s, call, own);
  if (!own.prepare.empty()) {
    stages_ = arena_.objects<StageGradient>(static_cast<Index>(call.args.prepare.size()));
    std::copy(own.prepare.begin(), own.prepare.end(), stages_.begin());
    gradients.prepare = stages_;
  }
  check_attention(call.args, gradients);
  check_overlap(*s.plan, call, own, named);
}

void PlanGradients::find_wanted(const PlanState& s, const PlanCall& call,
                                std::span<const NamedGradient> named,
                                const AttentionGradients& own) {
  const auto view = [&](const std::string& name) {
    TensorView found;
    for (const NamedGradient& g : named) {
      if (g.name != name) continue;
      if (!found.empty()) refuse_sentence(kPlan, name, "a gradient must be given once", name);
      found = g.array;
    }
    return found;
  };
  const auto of_call = [&](const std::string& name) {
    const Heads& h = name == "q" ? own.q : name == "k" ? own.k : own.v;
    return h.data == nullptr ? TensorView{} : as_tensor(h);
  };
  wanted_ = arena_.objects<Wanted>(static_cast<Index>(s.schemes.size()));
  for (std::size_t p = 0; p < s.schemes.size(); ++p) {
    const PlanScheme& scheme = s.schemes[p];
    Wanted& w = wanted_[p];
    w.parameters = arena_.objects<TensorView>(static_cast<Index>(scheme.parameters.size()));
    w.inputs = arena_.objects<TensorView>(static_cast<Index>(scheme.inputs.size()));
    for (std::size_t n = 0; n < scheme.parameters.size(); ++n) {
      const std::string& name = scheme.parameter_names[n];
      w.parameters[n] = view(name);
      check_named(name, w.parameters[n], scheme.parameters[n].shape);
    }
    for (std::size_t n = 0; n < scheme.inputs.size(); ++n) {
      const std::string& name = scheme.input_names[n];
      if (scheme.inputs[n].integer) continue;
      w.inputs[n] = is_call_tensor(name) ? of_call(name) : view(name);
      if (is_call_tensor(name)) continue;
      const ConstTensorView& given = call.schemes[p].inputs[n];
      if (given.empty() && !w.inputs[n].empty())
        refuse_sentence(kPlan, name, "a gradient must be of an input that the call has; it lacks",
                        name);
      check_named(name, w.inputs[n],
                  std::span(given.shape.data(), static_cast<std::size_t>(given.rank)));
    }
    for (const auto* list : {&w.parameters, &w.inputs})
      for (const TensorView& v : *list) w.any = w.any || !v.empty();
  }
  check_known_names(named, "gradients", [&](const auto& fn) {
    for (const PlanScheme& scheme : s.schemes) {
      for (const std::string& name : scheme.parameter_names) fn(name);
      for (std::size_t n = 0; n < scheme.inputs.size(); ++n)
        if (!scheme.inputs[n].integer && !is_call_tensor(scheme.input_names[n]))
          fn(scheme.input_names[n]);
    }
  });
}

// With its name in the arena.
Operand PlanGradients::operand(std::string_view what, std::string_view name,
                               const ConstTensorView& v) {
  const std::span<char> text = arena_.objects<char>(static_cast<Index>(what.size() + name.size()));
  std::copy(name.begin(), name.end(), std::copy(what.begin(), what.end(), text.begin()));
  return {std::string_view(text.data(), text.size()), memory_of(v)};
}

// Named gradients lie apart from all that the call and the schemes read; two gradients may be the
// very same view.
void PlanGradients::check_overlap(const PlanState& s, const PlanCall& call,
                                  const AttentionGradients& own,
                                  std::span<const NamedGradient> named) {
  const OperandList others = operands_written(own), read = operands_read(call.args);
  Index given = 0, count = 0;
  for (const NamedGradient& g : named) given += g.array.empty() ? 0 : 1;
  for (const PlanScheme& scheme : s.schemes) count += static_cast<Index>(scheme.inputs.size());
  written_ = arena_.objects<Operand>(given);
  const std::span<Operand> arrays = arena_.objects<Operand>(count);  // the inputs of the call
  std::size_t next = 0;
  for (const NamedGradient& g : named)
    if (!g.array.empty()) written_[next++] = operand("the gradient of ", g.name, g.array);
  next = 0;
  for (std::size_t p = 0; p < s.schemes.size(); ++p) {
    const PlanScheme& scheme = s.schemes[p];
    for (std::size_t n = 0; n < scheme.inputs.size(); ++n)
      if (!is_call_tensor(scheme.input_names[n]))
        arrays[next++] = operand("the input ", scheme.input_names[n], call.schemes[p].inputs[n]);
  }
  for (std::size_t n = 0; n < written_.size(); ++n) {
    check_no_self_overlap(kPlan, written_[n]);
    for (const Operand& other : others) check_in_place(kPlan, other, written_[n]);
    for (const Operand& other : written_.subspan(n + 1)) check_in_place(kPlan, other, written_[n]);
    for (const Operand& in : read) check_separate(kPlan, in, written_[n]);
    for (const Operand& in : arrays) check_separate(kPlan, in, written_[n]);
  }
  for (const Operand& out : others)
    for (const Operand& in : arrays) check_separate(kPlan, in, out);
}

void PlanGradients::check_upstream(const ConstAttentionResult& d_result) const {
  const Operand read[] = {{"the gradient of out", memory_of(d_result.out)},
                          {"the gradient of log_sum_exp", memory_of(d_result.log_sum_exp)}};
  for (const Operand& out : written_)
    for (const Operand& in : read) check_separate(kPlan, in, out);
}

void PlanGradients::check_upstream(const ConstTensorView& d_scores) const {
  for (const Operand& out : written_)
    check_separate(kPlan, {"the gradient of the scores", memory_of(d_scores)}, out);
}

void PlanGradients::place_terms(const LoweredState& s, const PlanCall& call,
                                const AttentionGradients& own) {
  terms_ = arena_.objects<TermGradient>(static_cast<Index>(call.args.terms.size()));
  bool any = !own.terms.empty();
  std::copy(own.terms.begin(), own.terms.end(),
            terms_.begin() + static_cast<std::ptrdiff_t>(call.first_own));
  for (std::size_t p = 0; p < s.schemes.size(); ++p) {
    if (!wanted_[p].any) continue;
    any = true;
    const std::size_t count = s.schemes[p].lowered.terms.size();
    wanted_[p].terms = arena_.objects<TermGradient>(static_cast<Index>(count));
    for (std::size_t n = 0; n < count; ++n) {
      const std::size_t at = call.term_index(p, n);
      wanted_[p].terms[n] = terms_[at] = of_term(call.args.terms[at]);
    }
    if (!s.schemes[p].lowered.requests.head_scale.empty())
      gradients.head_scale = like(s.schemes[p].lowered.requests.head_scale);
  }
  if (any) gradients.terms = terms_;
}

TensorView PlanGradients::zeros(std::span<const Index> shape) {
  Index n = 1;
  for (const Index size : shape) n *= size;
  // An array without elements has memory all the same: an empty view is one that is not wanted.
  // With an arena that counts too, since gradients are wanted or not by it.
  const std::span<double> x = arena_.objects<double>(std::max<Index>(n, 1));
  return tensor(static_cast<void*>(x.data()), DType::f64, shape);
}

TensorView PlanGradients::like(const ConstTensorView& v) {
  if (v.empty()) return {};
  return zeros(std::span(v.shape.data(), static_cast<std::size_t>(v.rank)));
}

Heads PlanGradients::like(const ConstHeads& h) {
  if (h.data == nullptr) return {};
  const Index shape[] = {h.batch, h.tokens, h.heads, h.dim};
  return heads(zeros(shape), HeadsLayout::bthd);
}

TermGradient PlanGradients::of_term(const Term& term) {
  const TermArrays t = term_arrays(term);
  TermGradient g;
  g.table = like(t.table);
  g.query = like(t.query.given);
  g.key = like(t.key.given);
  g.mlp = {like(t.mlp.in), like(t.mlp.in_bias), like(t.mlp.out), like(t.mlp.out_bias)};
  return g;
}

void PlanGradients::pull_back(const LoweredState& s, const PlanCall& call) {
  for (std::size_t p = 0; p < s.schemes.size(); ++p) {
    if (!wanted_[p].any) continue;
    LoweredGradient g{wanted_[p].terms, {}};
    if (!s.schemes[p].lowered.requests.head_scale.empty()) g.head_scale = gradients.head_scale;
    s.plan->schemes[p].scheme.pull_back(s.shape, s.schemes[p].values, call.schemes[p].data, g,
                                        wanted_[p].parameters, wanted_[p].inputs);
  }
}

}  // namespace posenc::v0::detail
