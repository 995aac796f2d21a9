// SPDX-License-Identifier: Apache-2.0
// The exponentials of the fast attention engine in a bare loop. A shared library does not show it: limits are without them then.
#pragma once
#include <algorithm>
#include <iterator>

#include "posenc/core/isa.h"
#if defined(POSENC_BENCH_KERNELS)
#include "kernels/attention/fast_strips.h"
#endif

namespace posenc::bench {

#if defined(POSENC_BENCH_KERNELS)
inline void exponentials(double count) {
  float x[1024];
  for (double done = 0; done < count; done += 1024) {
    std::fill(std::begin(x), std::end(x), -1.25f);
    detail::fast_kernels(active_isa()).exponentials(x, 1024);
    volatile float sink = x[17];
    (void)sink;
  }
}
#else
inline void exponentials(double) {}
#endif

}  // namespace posenc::bench
