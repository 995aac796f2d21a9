// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/nope.h"

namespace posenc::inline v0 {

std::vector<Parameter> Nope::parameters(const ScoreShape& s) const {
  check_score_shape(s, Nope::card.name);
  return {};
}
void Nope::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms&) const {
  check_parameter_count(Nope::card.name, parameters(s).size(), p.size());
}
void Nope::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                     const LoweredGradient&, std::span<const TensorView> dp,
                     std::span<const TensorView>) const {
  check_parameter_count(Nope::card.name, parameters(s).size(), p.size());
  check_gradients(Nope::card.name, {}, dp);
}

}  // namespace posenc::v0
