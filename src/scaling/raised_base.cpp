// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/raised_base.h"

#include <utility>

namespace posenc::inline v0 {

Spectrum RaisedBase::rescale(Spectrum s, Context) const {
  detail::need_positive("raised_base", "base", base);
  return detail::with_base(std::move(s), base, "raised_base");
}

}  // namespace posenc::v0
