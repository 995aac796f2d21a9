// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/dape.h"

#include <cmath>

#include "posenc/core/error.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kDape = "dape";

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
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kDape, needed.size(), p.size());
  const auto array = [&](std::size_t n) {
    return out.array(parameter_values(kDape, needed[n], p[n]), needed[n].shape);
  };
  ScoreMlpTerm t;
  t.mlp = {array(0), array(1), array(2), array(3), slope};
  out.add(t);
}

void Dape::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView>) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kDape, needed.size(), p.size());
  const MlpGradient& m = gradient_of(kDape, g.terms, 0).mlp;
  accumulate(kDape, needed, dp,
             std::vector<std::vector<double>>{gradient_values(kDape, m.in, needed[0].shape),
                                              gradient_values(kDape, m.in_bias, needed[1].shape),
                                              gradient_values(kDape, m.out, needed[2].shape),
                                              gradient_values(kDape, m.out_bias, needed[3].shape)});
}

}  // namespace posenc::v0
