// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/raised_base.h"

#include <utility>

namespace posenc {

Spectrum RaisedBase::rescale(Spectrum s, Context) const {
  detail::need_positive("raised_base", "base", base);
  return detail::with_base(std::move(s), base, "raised_base");
}

}  // namespace posenc
