// SPDX-License-Identifier: Apache-2.0
#include "positions/length.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

template <class T>
T largest(const Positions& p) noexcept {
  T most = std::numeric_limits<T>::lowest();
  const Index rows = p.batch_stride == 0 ? 1 : p.batch;
  for (Index a = 0; a < p.axes; ++a)
    for (Index b = 0; b < rows; ++b) {
      const T* row = static_cast<const T*>(p.data) + a * p.axis_stride + b * p.batch_stride;
      if (p.token_stride == 1) {
        for (Index t = 0; t < p.count; ++t) most = std::max(most, row[t]);
      } else {
        for (Index t = 0; t < p.count; ++t) most = std::max(most, row[t * p.token_stride]);
      }
    }
  return most;
}

Index behind(Index position) noexcept {
  return position < 0 ? 0 : position == kUnbounded ? position : position + 1;
}

}  // namespace

void check_length(std::string_view who, Index length, const LengthRange& range) {
  if (range.holds(length)) return;
  const std::string from = std::to_string(range.from), to = std::to_string(range.to);
  refuse(who,
         "length of the call (its largest position + 1) must be " +
             (range.to == kUnbounded   ? "at least " + from
              : range.from <= 1        ? "at most " + to
              : range.from == range.to ? from
                                       : from + " to " + to) +
             ", where the frequencies hold, unless the plan has outside = allow",
         length);
}

}  // namespace detail

Index length_of(const Positions& p) noexcept {
  if (p.count <= 0 || p.batch <= 0 || p.axes <= 0) return 0;
  using namespace detail;
  if (p.type == DType::i64) return behind(largest<std::int64_t>(p));
  if (p.type == DType::i32) return behind(largest<std::int32_t>(p));
  // Infinite ones are of no length that a range with an end holds; NaN tells none.
  const double most = std::ceil(largest<double>(p));
  return most >= 0x1p63 ? kUnbounded : most < 0 ? 0 : behind(static_cast<Index>(most));
}

}  // namespace posenc::v0
