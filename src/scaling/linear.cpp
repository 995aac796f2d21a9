// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/linear.h"

namespace posenc::inline v0 {

Spectrum Linear::rescale(Spectrum s, Context) const {
  detail::need_positive("linear", "factor", factor);
  if (factor == 1) return s;
  for (double& f : s.frequency) f /= factor;
  s.geometric.reset();
  // Behind YaRN ggml would mix and amplify by the new scale as well.
  if (s.ggml && s.ggml->ext_factor != 0) s.drop_ggml("linear after YaRN");
  if (s.ggml) s.ggml->freq_scale /= factor;
  return s;
}

}  // namespace posenc::v0
