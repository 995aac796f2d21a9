// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/stick_breaking.h"

namespace posenc::inline v0 {

std::vector<Parameter> StickBreaking::parameters(const ScoreShape& s) const {
  check_score_shape(s, StickBreaking::card.name);
  return {};
}
void StickBreaking::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                          LoweredTerms& out) const {
  check_parameter_count(StickBreaking::card.name, parameters(s).size(), p.size());
  out.requests.normalisation =
      own ? Normalisation::stick_breaking_own : Normalisation::stick_breaking;
}
void StickBreaking::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                              const CallData&, const LoweredGradient&,
                              std::span<const TensorView> dp, std::span<const TensorView>) const {
  check_parameter_count(StickBreaking::card.name, parameters(s).size(), p.size());
  check_gradients(StickBreaking::card.name, {}, dp);
}

}  // namespace posenc::v0
