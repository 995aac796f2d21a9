// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/fire.h"

#include <cmath>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kFire = Fire::card.name;

}  // namespace

std::vector<Parameter> Fire::parameters(const ScoreShape& s) const {
  check_score_shape(s, kFire);
  const ScoreAxes axes(s);
  if (width < 1 || width > 65536)
    refuse_field(kFire, "width", "must lie between 1 and 65536", width);
  if (!std::isfinite(initial_length) || initial_length <= 0)
    refuse_field(kFire, "initial_length", "must be finite and positive", initial_length);
  if (!std::isfinite(initial_c)) refuse_field(kFire, "initial_c", "must be finite", initial_c);
  if (!std::isfinite(slope)) refuse_field(kFire, "slope", "must be finite", slope);
  if (!std::isfinite(epsilon) || epsilon < 0)
    refuse_field(kFire, "epsilon", "must be finite and not negative", epsilon);
  if (axis < 0 || axis > 7) refuse_field(kFire, "axis", "must lie between 0 and 7", axis);
  return {{"c", {}, {InitialKind::constant, initial_c, 0}, {}},
          {"L_multiplier", {}, {InitialKind::constant, 1, 0}, {}},
          {"mlp_0_weight", {width, 1}, detail::linear_start(1), {}},
          {"mlp_0_bias", {width}, detail::linear_start(1), {}},
          {"mlp_2_weight", {axes.heads, width}, detail::linear_start(width), {}},
          {"mlp_2_bias", {axes.heads}, detail::linear_start(width), {}}};
}

void Fire::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const auto array = [&](const char* name, std::vector<Index> shape) {
    return out.array(value[name], shape);
  };
  DistanceMlpTerm t;
  t.keep_sign = keep_sign;
  t.epsilon = epsilon;
  t.axis = static_cast<std::int32_t>(axis);
  t.table =
      out.table({value["c"][0], std::abs(value["L_multiplier"][0] * initial_length)}, 1, 1, 2);
  t.mlp = {array("mlp_0_weight", {width, 1, 1}), array("mlp_0_bias", {width}),
           array("mlp_2_weight", {s.heads, width, 1}), array("mlp_2_bias", {s.heads}), slope};
  out.add(t);
}

void Fire::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const TermGradient& t = gradient_of(kFire, g.terms, 0);
  const std::vector<double> d = gradient_values(kFire, t.table, {1, 1, 1, 2});
  const double multiplier = value["L_multiplier"][0];
  detail::LearnedGradients to(value);
  to["c"] = {d[0]};
  to["L_multiplier"] = {d[1] * std::copysign(initial_length, multiplier)};
  to["mlp_0_weight"] = gradient_values(kFire, t.mlp.in, {width, 1, 1});
  to["mlp_0_bias"] = gradient_values(kFire, t.mlp.in_bias, {width});
  to["mlp_2_weight"] = gradient_values(kFire, t.mlp.out, {s.heads, width, 1});
  to["mlp_2_bias"] = gradient_values(kFire, t.mlp.out_bias, {s.heads});
  to.accumulate(dp);
}

}  // namespace posenc::v0
