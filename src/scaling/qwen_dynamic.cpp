// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/qwen_dynamic.h"

#include <utility>

namespace posenc::inline v0 {

Spectrum QwenDynamic::rescale(Spectrum s, Context context) const {
  detail::need_positive("qwen_dynamic", "trained_length", trained_length);
  const Index n = detail::ruled_length("qwen_dynamic", length_rule, declared_length, context);
  (void)needs_geometric(s, "qwen_dynamic");
  Index from = 0, to = trained_length;  // the step that holds n
  double alpha = 1;
  while (n > to) {
    from = to + 1;
    to = to > kUnbounded / 2 ? kUnbounded : 2 * to;
    alpha = 2 * alpha + 1;
  }
  s = detail::with_alpha(std::move(s), alpha, "qwen_dynamic");
  detail::hold(s, length_rule, from, to);
  return s;
}

}  // namespace posenc::v0
