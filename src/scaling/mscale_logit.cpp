// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/mscale_logit.h"

namespace posenc::inline v0 {

Spectrum MscaleLogit::rescale(Spectrum s, Context) const {
  detail::need_positive("mscale_logit", "factor", factor);
  detail::need_positive("mscale_logit", "mscale_all_dim", mscale_all_dim);
  const double g = detail::mscale_amplitude(factor, mscale_all_dim);
  s.logit_factor *= g * g;
  return s;
}

}  // namespace posenc::v0
