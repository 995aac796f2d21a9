// SPDX-License-Identifier: Apache-2.0
// Pairs side by side (x0 x1 x2 x3 ..) to halves (x0 x2 .. | x1 x3 ..) and back.
#pragma once
#include "kernels/token.h"

namespace posenc::inline v0::detail {

// n pairs from one place to another; `split`: from side by side to halves.
template <class T>
[[gnu::always_inline]] inline void CopyPairs(const T* x, Index x_step, T* y, Index y_step, Index n,
                                             bool split) {
  if (split)
    for (Index k = 0; k < n; ++k) {
      y[k * y_step] = x[2 * k * x_step];
      y[(n + k) * y_step] = x[(2 * k + 1) * x_step];
    }
  else
    for (Index k = 0; k < n; ++k) {
      y[2 * k * y_step] = x[k * x_step];
      y[(2 * k + 1) * y_step] = x[(n + k) * x_step];
    }
}
template <class T>
void Reverse(T* p, Index step, Index begin, Index end) {
  for (--end; begin < end; ++begin, --end) {
    const T held = p[begin * step];
    p[begin * step] = p[end * step];
    p[end * step] = held;
  }
}
// [begin, middle) and [middle, end) change places.
template <class T>
void SwapRanges(T* p, Index step, Index begin, Index middle, Index end) {
  Reverse(p, step, begin, middle);
  Reverse(p, step, middle, end);
  Reverse(p, step, begin, end);
}
template <class T>
void CopyThroughBuffer(T* p, Index step, Index n, bool split) {
  T held[2 * kChunk];
  for (Index i = 0; i < 2 * n; ++i) held[i] = p[i * step];
  CopyPairs(held, 1, p, step, n, split);
}

// In place, n pairs: through a buffer, or halved until they fit (n log n, no memory).
template <class T>
void Deinterleave(T* p, Index step, Index n) {
  if (n <= kChunk) return CopyThroughBuffer(p, step, n, true);
  const Index h = n / 2;
  Deinterleave(p, step, h);
  Deinterleave(p + 2 * h * step, step, n - h);
  SwapRanges(p, step, h, 2 * h, h + n);
}
template <class T>
void Interleave(T* p, Index step, Index n) {
  if (n <= kChunk) return CopyThroughBuffer(p, step, n, false);
  const Index h = n / 2;
  SwapRanges(p, step, h, n, h + n);
  Interleave(p, step, h);
  Interleave(p + 2 * h * step, step, n - h);
}

}  // namespace posenc::v0::detail
