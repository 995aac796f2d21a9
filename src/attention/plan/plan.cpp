// SPDX-License-Identifier: Apache-2.0
#include "posenc/attention/plan.h"

#include <algorithm>
#include <cmath>

#include "attention/call/check_parts.h"
#include "attention/plan/plan_call.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {

const NamedArray* find_array(std::span<const NamedArray> list, const std::string& name) {
  const NamedArray* found = nullptr;
  for (const NamedArray& a : list) {
    if (a.name != name) continue;
    if (found != nullptr) refuse(kPlan, "an array must be given once", name);
    found = &a;
  }
  return found;
}

void check_known_names(std::span<const NamedArray> list, std::span<const std::string> known,
                       std::string_view what) {
  for (const NamedArray& a : list) {
    if (std::find(known.begin(), known.end(), a.name) != known.end()) continue;
    std::string rule = std::string(what) + " must be one of";
    for (const std::string& name : known) rule += " " + name;
    if (known.empty()) rule = "the schemes have no " + std::string(what);
    refuse(kPlan, rule, a.name);
  }
}

namespace {

void check_sizes(AttentionSizes& s) {
  if (s.key_heads == 0) s.key_heads = s.heads;
  if (s.value_dim == 0) s.value_dim = s.head_dim;
  check_score_shape({.heads = s.heads, .head_dim = s.head_dim, .value_dim = s.value_dim}, kPlan);
  if (s.key_heads < 1 || s.heads % s.key_heads != 0)
    refuse(kPlan, "key_heads must divide the heads, " + std::to_string(s.heads), s.key_heads);
  if (s.scale && (!std::isfinite(*s.scale) || *s.scale < 0))
    refuse(kPlan, "scale must be finite and not negative", *s.scale);
}

// Names that two schemes have get the number of the scheme in front.
void name_parts(std::vector<SchemePart>& parts) {
  const auto count = [&](const std::string& name) {
    std::ptrdiff_t n = 0;
    for (const SchemePart& part : parts) {
      for (const Parameter& p : part.parameters) n += p.name == name ? 1 : 0;
      for (const Input& i : part.inputs) n += i.name == name ? 1 : 0;
    }
    return n;
  };
  for (std::size_t n = 0; n < parts.size(); ++n) {
    const auto named = [&](const std::string& name) {
      return count(name) > 1 ? std::to_string(n) + "." + name : name;
    };
    for (const Parameter& p : parts[n].parameters)
      parts[n].parameter_names.push_back(named(p.name));
    for (const Input& i : parts[n].inputs)
      parts[n].input_names.push_back(is_call_tensor(i.name) ? i.name : named(i.name));
  }
}

// Two schemes that ask for different things are refused.
void join_requests(const SchemePart& part, CallRequests& all) {
  const CallRequests& own = part.lowered.requests;
  const std::string who(part.scheme.card().name);
  if (own.scale) {
    if (all.scale && *all.scale != *own.scale)
      refuse(kPlan, "schemes must ask for one scale of q.k; " + who + " asks for another",
             *own.scale);
    all.scale = own.scale;
  }
  if (!own.head_scale.empty()) {
    if (!all.head_scale.empty())
      refuse(kPlan, "one scheme alone may ask for a scale of each head; a second is", who);
    all.head_scale = own.head_scale;
  }
  if (!own.head_side.empty()) {
    if (!all.head_side.empty())
      refuse(kPlan, "one scheme alone may ask for a side of each head; a second is", who);
    all.head_side = own.head_side;
  }
  if (own.normalisation != Normalisation::softmax) {
    if (all.normalisation != Normalisation::softmax && all.normalisation != own.normalisation)
      refuse(kPlan, "schemes must ask for one normalisation; another is asked for by", who);
    all.normalisation = own.normalisation;
  }
  all.prepare.insert(all.prepare.end(), own.prepare.begin(), own.prepare.end());
}

}  // namespace
}  // namespace detail

using detail::kPlan;
using detail::SchemePart;

AttentionPlan::AttentionPlan(std::vector<AnyRelativeScheme> schemes, const AttentionSizes& sizes,
                             const RotarySpec* rotary)
    : state_(Shared<detail::PlanState>::make()) {
  detail::PlanState& s = *state_;
  s.sizes = sizes;
  detail::check_sizes(s.sizes);
  if (rotary != nullptr) {
    check_rotary(*rotary);
    if (rotary->head_dim != s.sizes.head_dim)
      refuse(
          kPlan,
          "head_dim of the rotary encoding must be that of q, " + std::to_string(s.sizes.head_dim),
          rotary->head_dim);
    s.rotary = *rotary;
  }
  s.shape = {.heads = s.sizes.heads,
             .head_dim = s.sizes.head_dim,
             .value_dim = s.sizes.value_dim,
             .scale = s.sizes.scale};
  for (AnyRelativeScheme& scheme : schemes) {
    s.parts.push_back({.scheme = std::move(scheme)});
    s.parts.back().parameters = s.parts.back().scheme.parameters(s.shape);
    s.parts.back().inputs = s.parts.back().scheme.inputs(s.shape);
  }
  detail::name_parts(s.parts);
  if (s.parts.empty()) lower({});
}
AttentionPlan::~AttentionPlan() = default;
AttentionPlan::AttentionPlan(AttentionPlan&&) noexcept = default;
AttentionPlan& AttentionPlan::operator=(AttentionPlan&&) noexcept = default;

const AttentionSizes& AttentionPlan::sizes() const noexcept {
  return state_->sizes;
}

std::vector<Parameter> AttentionPlan::parameters() const {
  std::vector<Parameter> list;
  for (const SchemePart& part : state_->parts)
    for (std::size_t n = 0; n < part.parameters.size(); ++n) {
      list.push_back(part.parameters[n]);
      list.back().name = part.parameter_names[n];
    }
  return list;
}

std::vector<Input> AttentionPlan::inputs() const {
  std::vector<Input> list;
  for (const SchemePart& part : state_->parts)
    for (std::size_t n = 0; n < part.inputs.size(); ++n) {
      if (detail::is_call_tensor(part.inputs[n].name)) continue;
      list.push_back(part.inputs[n]);
      list.back().name = part.input_names[n];
    }
  return list;
}

bool AttentionPlan::reads_content() const {
  const auto reads = [](const Term& t) {
    const TermArrays arrays = term_arrays(t);
    return arrays.query.content || arrays.key.content || std::holds_alternative<GatesTerm>(t) ||
           std::holds_alternative<ScoreMlpTerm>(t) || std::holds_alternative<ValueRowsTerm>(t);
  };
  return std::any_of(state_->parts.begin(), state_->parts.end(), [&](const SchemePart& part) {
    return std::any_of(part.lowered.terms.begin(), part.lowered.terms.end(), reads) ||
           std::any_of(part.input_names.begin(), part.input_names.end(), detail::is_call_tensor);
  });
}

double AttentionPlan::scale() const noexcept {
  return state_->scale;
}
const CallRequests& AttentionPlan::requests() const noexcept {
  return state_->requests;
}

void AttentionPlan::lower(std::span<const NamedArray> parameters,
                          std::span<const DistanceRange> distance) {
  detail::PlanState& s = *state_;
  std::vector<std::string> known;
  for (const SchemePart& part : s.parts)
    known.insert(known.end(), part.parameter_names.begin(), part.parameter_names.end());
  detail::check_known_names(parameters, known, "parameters");
  s.lowered = false;
  for (SchemePart& part : s.parts) {
    part.values.clear();
    for (std::size_t n = 0; n < part.parameters.size(); ++n) {
      const NamedArray* a = detail::find_array(parameters, part.parameter_names[n]);
      if (a == nullptr)
        detail::refuse_missing("parameters", part.parameter_names[n], part.scheme.card().name,
                               detail::shape_words(part.parameters[n].shape), "f64 or f32");
      part.values.push_back(a->array);
    }
  }
  s.shape.distance.assign(distance.begin(), distance.end());
  s.shape.scale = s.sizes.scale;
  s.lower_parts();
  // What one scheme asks for is the content's scale for the terms of the others.
  if (!s.sizes.scale && s.requests.scale && s.parts.size() > 1) {
    s.shape.scale = s.requests.scale;
    s.lower_parts();
  }
  s.scale = s.sizes.scale ? *s.sizes.scale
            : s.requests.scale
                ? *s.requests.scale
                : s.shape.content_scale() * (s.rotary ? s.rotary->logit_factor() : 1);
  s.lowered = true;
}

namespace detail {
namespace {

// A scheme that reads the distances of an axis that it was not given: told in the words of a call.
void lower_part(SchemePart& part, const ScoreShape& shape) {
  part.lowered = {};
  try {
    part.scheme.lower(shape, part.values, part.lowered);
  } catch (const ArgumentError& e) {
    if (e.who() != "shape") throw;  // ScoreShape::range
    const std::string who(part.scheme.card().name);
    if (shape.distance.empty())
      refuse(kPlan, "lower must be given distance_ranges of the positions, by which " + who +
                        " adds to the score");
    refuse(kPlan,
           "query_positions and key_positions must have the axes that " + who +
               " reads, as [axes, batch, tokens]",
           static_cast<Index>(shape.distance.size()));
  }
}

}  // namespace
}  // namespace detail

void detail::PlanState::lower_parts() {
  requests = {};
  for (SchemePart& part : parts) {
    detail::lower_part(part, shape);
    detail::join_requests(part, requests);
  }
}

void AttentionPlan::forward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                            const AttentionResult& result, const Executor& executor) const {
  const detail::PlanCall bound(*state_, call, inputs);
  attend(bound.args, result, executor);
}

void AttentionPlan::scores(const AttentionArgs& call, std::span<const NamedArray> inputs,
                           const AttentionScores& scores, const Executor& executor) const {
  const detail::PlanCall bound(*state_, call, inputs);
  attend_scores(bound.args, scores, executor);
}

void AttentionPlan::backward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                             const ConstAttentionResult& result,
                             const ConstAttentionResult& d_result,
                             const AttentionGradients& gradients,
                             std::span<const NamedGradient> named, const Executor& executor) const {
  const detail::PlanCall bound(*state_, call, inputs);
  detail::PlanGradients all(*state_, bound, gradients, named);
  detail::check_read(bound.args, result, "the result");
  detail::check_read(bound.args, d_result, "the gradient of the result");
  all.check_upstream(d_result);
  attend_backward(bound.args, result, d_result, all.gradients, executor);
  all.pull_back(*state_, bound);
}

void AttentionPlan::scores_backward(const AttentionArgs& call, std::span<const NamedArray> inputs,
                                    const ConstTensorView& d_scores,
                                    const AttentionGradients& gradients,
                                    std::span<const NamedGradient> named,
                                    const Executor& executor) const {
  const detail::PlanCall bound(*state_, call, inputs);
  detail::PlanGradients all(*state_, bound, gradients, named);
  all.check_upstream(d_scores);
  attend_scores_backward(bound.args, d_scores, all.gradients, executor);
  all.pull_back(*state_, bound);
}

}  // namespace posenc::v0
