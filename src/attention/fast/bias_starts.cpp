// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/bias_starts.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/row_terms.h"

namespace posenc::inline v0::detail {

BiasStarts::BiasStarts(const ReadyCall& c, const Starts& starts, const KeyFlags& flags)
    : call_(c), starts_(starts), flags_(flags), kernels_(fast_bias_kernels(active_isa())) {
  const ConstTensorView& bias = c.args.mask.bias;
  const Mask& m = c.args.mask;
  const bool others = !c.ascends || !m.visible.empty() || !m.query_document.empty();
  if (bias.empty() || bias.dtype != DType::f32 || others) return;
  const bool lines = starts.has_lines() && !starts.has_wide_lines() && !starts.has_offsets() &&
                     !starts.classes().is_wide();
  whole_rows_ = (starts.none() || lines) && pair_row(bias, c.H, 0, 0, 0).step == 1;
}

FastBiasRow BiasStarts::row_of(const FastRow& r, Run keys) const noexcept {
  const ConstTensorView& bias = call_.args.mask.bias;
  const Index row = r.place.row;
  FastBiasRow x{};
  x.bias =
      static_cast<const float*>(bias.data) + pair_row(bias, call_.H, r.b, r.h, r.i).at(keys.begin);
  x.hidden = flags_.shows_all(row, keys) ? nullptr : flags_.starts(row) + keys.begin;
  x.line = starts_.none() ? nullptr : starts_.lines() + r.entry + keys.begin;
  x.count = keys.end - keys.begin;
  return x;
}

BiasStarts::Row BiasStarts::write(const FastRow& r, Run keys, float* to,
                                  Index width) const noexcept {
  Row row;
  Run seen[2];
  std::size_t count = 0;
  for (const Run& run : r.bounds.runs())
    if (const Run some{std::max(run.begin, keys.begin), std::min(run.end, keys.end)};
        some.begin < some.end && !flags_.hides_all(r.place.row, some))
      seen[count++] = some;
  std::fill_n(to, width, -HUGE_VALF);
  float largest = -HUGE_VALF;
  for (std::size_t n = 0; n < count; ++n) {
    float one = 0;
    row.bounded = kernels_.largest(row_of(r, seen[n]), static_cast<float>(-kFar / kLog2E), one) &&
                  row.bounded;
    largest = std::max(largest, one);
  }
  if (row.bounded && largest == -HUGE_VALF) return row;
  row.far = !(kLog2E * static_cast<double>(largest) > kFar);
  if (!row.bounded || row.far) return row;
  for (std::size_t n = 0; n < count; ++n)
    kernels_.write(row_of(r, seen[n]), largest, static_cast<float>(kFar),
                   to + (seen[n].begin - keys.begin));
  row.largest = kLog2E * static_cast<double>(largest), row.last = seen[count - 1].end;
  return row;
}

}  // namespace posenc::v0::detail
