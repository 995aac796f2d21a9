// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/dape.h"

#include <cmath>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kDape = Dape::card.name;

}  // namespace

std::vector<Parameter> Dape::parameters(const ScoreShape& s) const {
  check_score_shape(s, kDape);
  const ScoreAxes axes(s);
  if (width < 1 || width > 65536)
    refuse_field(kDape, "width", "must lie between 1 and 65536", width);
  if (kernel < 1 || kernel > 255 || kernel % 2 == 0)
    refuse_field(kDape, "kernel", "must be odd, between 1 and 255", kernel);
  if (!std::isfinite(slope)) refuse_field(kDape, "slope", "must be finite", slope);
  const Initial first = detail::linear_start(channels(s) * kernel);
  const Initial second = detail::linear_start(width * kernel);
  return {{"mlp2_0_weight", {width, bias ? 2 * axes.heads : axes.heads, kernel}, first, {}},
          {"mlp2_0_bias", {width}, first, {}},
          {"mlp2_2_weight", {axes.heads, width, kernel}, second, {}},
          {"mlp2_2_bias", {axes.heads}, second, {}}};
}

void Dape::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const auto array = [&](const char* name) { return out.array(value[name], value.shape(name)); };
  ScoreMlpTerm t;
  t.mlp = {array("mlp2_0_weight"), array("mlp2_0_bias"), array("mlp2_2_weight"),
           array("mlp2_2_bias"), slope};
  out.add(t);
}

void Dape::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const MlpGradient& m = gradient_of(kDape, g.terms, 0).mlp;
  detail::LearnedGradients to(value);
  const auto take = [&](const char* name, const TensorView& g_of) {
    to[name] = gradient_values(kDape, g_of, value.shape(name));
  };
  take("mlp2_0_weight", m.in);
  take("mlp2_0_bias", m.in_bias);
  take("mlp2_2_weight", m.out);
  take("mlp2_2_bias", m.out_bias);
  to.accumulate(dp);
}

}  // namespace posenc::v0
