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
    if (found != nullptr) refuse_sentence(kPlan, name, "an array must be given once", name);
    found = &a;
  }
  return found;
}

void refuse_unknown(std::string_view what, const std::string& names, std::string_view got) {
  if (names.empty()) refuse_sentence(kPlan, what, "the schemes have no " + std::string(what), got);
  refuse_field(kPlan, what, std::string("must be one of") + names, got);
}

namespace {

void check_sizes(AttentionSizes& s) {
  if (s.key_heads == 0) s.key_heads = s.heads;
  if (s.value_dim == 0) s.value_dim = s.head_dim;
  check_score_shape({.heads = s.heads, .head_dim = s.head_dim, .value_dim = s.value_dim}, kPlan);
  if (s.key_heads < 1 || s.heads % s.key_heads != 0)
    refuse_field(kPlan, "key_heads", "must divide the heads, " + std::to_string(s.heads),
                 s.key_heads);
  if (s.scale && (!std::isfinite(*s.scale) || *s.scale < 0))
    refuse_field(kPlan, "scale", "must be finite and not negative", *s.scale);
}

// Names that two schemes have get the number of the scheme in front.
void name_schemes(std::vector<PlanScheme>& schemes) {
  const auto count = [&](const std::string& name) {
    std::ptrdiff_t n = 0;
    for (const PlanScheme& s : schemes) {
      for (const Parameter& p : s.parameters) n += p.name == name ? 1 : 0;
      for (const Input& i : s.inputs) n += i.name == name ? 1 : 0;
    }
    return n;
  };
  for (std::size_t n = 0; n < schemes.size(); ++n) {
    const auto named = [&](const std::string& name) {
      return count(name) > 1 ? std::to_string(n) + "." + name : name;
    };
    for (const Parameter& p : schemes[n].parameters)
      schemes[n].parameter_names.push_back(named(p.name));
    for (const Input& i : schemes[n].inputs)
      schemes[n].input_names.push_back(is_call_tensor(i.name) ? i.name : named(i.name));
  }
}

}  // namespace
}  // namespace detail

using detail::kPlan;
using detail::PlanScheme;

AttentionPlan::AttentionPlan(std::vector<AnyRelativeScheme> schemes, const AttentionSizes& sizes,
                             const RotarySpec* rotary) {
  const auto state = std::make_shared<detail::PlanState>();
  state_ = state;
  detail::PlanState& s = *state;
  s.sizes = sizes;
  detail::check_sizes(s.sizes);
  if (rotary != nullptr) {
    check_rotary(*rotary);
    if (rotary->head_dim != s.sizes.head_dim)
      detail::refuse_number(
          kPlan, "head_dim",
          "head_dim of the rotary encoding must be that of q, " + std::to_string(s.sizes.head_dim),
          rotary->head_dim);
    s.rotary = *rotary;
    // The engine checks the length of the whole call: rows and runs of keys may be shorter.
    s.rotation.emplace(*rotary, DType::f64, PlanOptions{.outside = OutsideRange::allow});
    s.narrow_rotation.emplace(*rotary, DType::f32, PlanOptions{.outside = OutsideRange::allow});
  }
  s.shape = {.heads = s.sizes.heads,
             .head_dim = s.sizes.head_dim,
             .value_dim = s.sizes.value_dim,
             .scale = s.sizes.scale};
  for (AnyRelativeScheme& scheme : schemes) {
    PlanScheme& added = s.schemes.emplace_back(PlanScheme{.scheme = std::move(scheme)});
    added.parameters = added.scheme.parameters(s.shape);
    added.inputs = added.scheme.inputs(s.shape);
  }
  detail::name_schemes(s.schemes);
}

const AttentionSizes& AttentionPlan::sizes() const noexcept {
  return state_->sizes;
}

std::vector<Parameter> AttentionPlan::parameters() const {
  std::vector<Parameter> list;
  for (const PlanScheme& s : state_->schemes)
    for (std::size_t n = 0; n < s.parameters.size(); ++n) {
      list.push_back(s.parameters[n]);
      list.back().name = s.parameter_names[n];
    }
  return list;
}

std::vector<Input> AttentionPlan::inputs() const {
  std::vector<Input> list;
  for (const PlanScheme& s : state_->schemes)
    for (std::size_t n = 0; n < s.inputs.size(); ++n) {
      if (detail::is_call_tensor(s.inputs[n].name)) continue;
      list.push_back(s.inputs[n]);
      list.back().name = s.input_names[n];
    }
  return list;
}

LoweredAttention AttentionPlan::lower(std::span<const NamedArray> parameters,
                                      std::span<const DistanceRange> distance) const {
  return LoweredAttention(
      std::make_shared<const detail::LoweredState>(state_, parameters, distance));
}

}  // namespace posenc::v0
