// SPDX-License-Identifier: Apache-2.0
#include "core/overlap.h"

#include <algorithm>

namespace posenc::detail {
namespace {

// Few for strides that any layout has.
constexpr int kMostWays = 10000;

Index down(Index n, Index by) noexcept {
  return n / by - (n % by < 0 ? 1 : 0);
}

// Zero strides out, the others positive, longest first, equal ones together.
int sorted(Way* ways, int count) noexcept {
  int used = 0;
  for (int i = 0; i < count; ++i) {
    Way w = ways[i];
    if (w.stride == 0 || (w.low == 0 && w.high == 0)) continue;
    if (w.stride < 0) w = {-w.stride, -w.high, -w.low};
    int same = 0;
    while (same < used && ways[same].stride != w.stride) ++same;
    if (same < used) {
      ways[same].low += w.low, ways[same].high += w.high;
      continue;
    }
    int at = used++;
    for (; at > 0 && ways[at - 1].stride < w.stride; --at) ways[at] = ways[at - 1];
    ways[at] = w;
  }
  return used;
}

bool search(const Way* axis, int axes, Index distance, int& tried) noexcept {
  if (++tried > kMostWays) return true;
  if (axes == 0) return distance == 0;
  Index least = 0, most = 0;  // of the axes below
  for (int i = 1; i < axes; ++i)
    least += axis[i].stride * axis[i].low, most += axis[i].stride * axis[i].high;
  const Index first = std::max(axis->low, -down(most - distance, axis->stride));
  const Index last = std::min(axis->high, down(distance - least, axis->stride));
  for (Index k = first; k <= last; ++k)
    if (search(axis + 1, axes - 1, distance - k * axis->stride, tried)) return true;
  return false;
}

}  // namespace

bool reaches(Way* ways, int count, Index distance) noexcept {
  int tried = 0;
  return search(ways, sorted(ways, count), distance, tried);
}

bool shares_with_itself(const ViewAxis* axes, int count) noexcept {
  constexpr int kMostAxes = 5;
  Way ways[kMostAxes];
  int used = 0;
  for (int i = 0; i < count; ++i)
    if (axes[i].size == 0) return false;
  for (int i = 0; i < std::min(count, kMostAxes); ++i) {
    if (axes[i].size == 1) continue;
    if (axes[i].stride == 0) return true;
    ways[used++] = {axes[i].stride, 1 - axes[i].size, axes[i].size - 1};
  }
  const int given = used;
  used = sorted(ways, used);
  if (used < given) return true;  // of equal strides: one step along either
  // Two indices whose first difference, in this order of the axes, is k > 0 along axis i.
  int tried = 0;
  for (int i = 0; i < used; ++i) {
    Index most = 0;
    for (int j = i + 1; j < used; ++j) most += ways[j].stride * ways[j].high;
    const Index last = std::min(ways[i].high, most / ways[i].stride);
    for (Index k = 1; k <= last; ++k)
      if (search(ways + i + 1, used - i - 1, -k * ways[i].stride, tried)) return true;
  }
  return false;
}

}  // namespace posenc::detail
