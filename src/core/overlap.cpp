// SPDX-License-Identifier: Apache-2.0
#include "core/overlap.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

// Few for strides that any layout has.
constexpr int kMaxTries = 10000;

Index down(Index n, Index by) noexcept {
  return n / by - (n % by < 0 ? 1 : 0);
}

// Zero strides out, the others positive, longest first, equal ones together.
int sorted(StrideRange* ranges, int count) noexcept {
  int used = 0;
  for (int i = 0; i < count; ++i) {
    StrideRange w = ranges[i];
    if (w.stride == 0 || (w.low == 0 && w.high == 0)) continue;
    if (w.stride < 0) w = {-w.stride, -w.high, -w.low};
    int same = 0;
    while (same < used && ranges[same].stride != w.stride) ++same;
    if (same < used) {
      ranges[same].low += w.low, ranges[same].high += w.high;
      continue;
    }
    int at = used++;
    for (; at > 0 && ranges[at - 1].stride < w.stride; --at) ranges[at] = ranges[at - 1];
    ranges[at] = w;
  }
  return used;
}

bool search(const StrideRange* axis, int axes, Index distance, int& tried) noexcept {
  if (++tried > kMaxTries) return true;
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

// Whether sums of strides fit 64 bits with room for a sum of two; what does not counts as shared.
bool fits_sums(const ViewAxis* axes, int count, Index unit) noexcept {
  Index reach = 0;
  for (int i = 0; i < count; ++i) {
    Index far = 0;
    if (axes[i].size < 2) continue;
    if (__builtin_mul_overflow(axes[i].stride, axes[i].size - 1, &far) ||
        __builtin_mul_overflow(far, unit, &far) ||
        __builtin_add_overflow(reach, far < 0 ? ~far : far, &reach) || reach >= Index{1} << 61)
      return false;
  }
  return true;
}

}  // namespace

bool can_reach(StrideRange* ranges, int count, Index distance) noexcept {
  int tried = 0;
  return search(ranges, sorted(ranges, count), distance, tried);
}

bool shares_with_itself(const ViewAxis* axes, int count) noexcept {
  constexpr int kMaxAxes = 5;
  StrideRange ranges[kMaxAxes];
  int used = 0;
  for (int i = 0; i < count; ++i)
    if (axes[i].size == 0) return false;
  if (!fits_sums(axes, count, 1)) return true;
  for (int i = 0; i < std::min(count, kMaxAxes); ++i) {
    if (axes[i].size == 1) continue;
    if (axes[i].stride == 0) return true;
    ranges[used++] = {axes[i].stride, 1 - axes[i].size, axes[i].size - 1};
  }
  const int given = used;
  used = sorted(ranges, used);
  if (used < given) return true;  // of equal strides: one step along either
  // Two indices whose first difference, in this order of the axes, is k > 0 along axis i.
  int tried = 0;
  for (int i = 0; i < used; ++i) {
    Index most = 0;
    for (int j = i + 1; j < used; ++j) most += ranges[j].stride * ranges[j].high;
    const Index last = std::min(ranges[i].high, most / ranges[i].stride);
    for (Index k = 1; k <= last; ++k)
      if (search(ranges + i + 1, used - i - 1, -k * ranges[i].stride, tried)) return true;
  }
  return false;
}

namespace {

void put_axis(Memory& m, Index size, Index stride) noexcept {
  if (size == 0) m.data = nullptr;
  if (size > 1) m.axis[static_cast<std::size_t>(m.count++)] = {size, stride};
}

}  // namespace

Memory memory_of(const ConstTensorView& v) noexcept {
  Memory m{v.data, size_of(v.dtype)};
  if (v.rank > TensorView::kMaxRank) return m;  // not a view: checks reject it
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::max(v.rank, 0)); ++i)
    put_axis(m, v.shape[i], v.stride[i]);
  return m;
}

Memory memory_of(const ConstHeads& h) noexcept {
  Memory m{h.data, size_of(h.dtype)};
  put_axis(m, h.batch, h.batch_stride);
  put_axis(m, h.tokens, h.token_stride);
  put_axis(m, h.heads, h.head_stride);
  put_axis(m, h.dim, h.dim_stride);
  return m;
}

Memory memory_of(std::span<const std::byte> bytes) noexcept {
  Memory m{bytes.empty() ? nullptr : bytes.data(), 1};
  put_axis(m, static_cast<Index>(bytes.size()), 1);
  return m;
}

bool same_view(const Memory& a, const Memory& b) noexcept {
  const auto alike = [](const ViewAxis& x, const ViewAxis& y) {
    return x.size == y.size && x.stride == y.stride;
  };
  return a.data == b.data && a.size == b.size && a.count == b.count &&
         std::equal(a.axis.begin(), a.axis.begin() + a.count, b.axis.begin(), alike);
}

bool overlaps(const Memory& a, const Memory& b) noexcept {
  if (a.data == nullptr || b.data == nullptr || a.size == 0 || b.size == 0) return false;
  if (!fits_sums(a.axis.data(), a.count, a.size) || !fits_sums(b.axis.data(), b.count, b.size))
    return true;
  const auto bytes = static_cast<Index>(reinterpret_cast<std::uintptr_t>(b.data) -
                                        reinterpret_cast<std::uintptr_t>(a.data));
  // In elements where both are whole numbers of them, else in bytes.
  const Index unit = a.size == b.size && bytes % a.size == 0 ? a.size : 1;
  // From a's first element to one of its own is as far as from there to one of b's.
  StrideRange ranges[2 * TensorView::kMaxRank + 1];
  int count = 0;
  for (int i = 0; i < a.count; ++i) {
    const ViewAxis& x = a.axis[static_cast<std::size_t>(i)];
    ranges[count++] = {x.stride * (a.size / unit), 0, x.size - 1};
  }
  for (int i = 0; i < b.count; ++i) {
    const ViewAxis& x = b.axis[static_cast<std::size_t>(i)];
    ranges[count++] = {x.stride * (b.size / unit), 1 - x.size, 0};
  }
  ranges[count++] = {1, 1 - b.size / unit, a.size / unit - 1};  // bytes within an element
  const Index distance = bytes / unit;
  Index low = 0, high = 0;
  for (int i = 0; i < count; ++i) {
    const Index x = ranges[i].stride * ranges[i].low, y = ranges[i].stride * ranges[i].high;
    low += std::min(x, y), high += std::max(x, y);
  }
  return distance >= low && distance <= high && can_reach(ranges, count, distance);
}

void check_no_self_overlap(std::string_view who, const Operand& out) {
  const Memory& m = out.memory;
  if (m.data == nullptr || !shares_with_itself(m.axis.data(), m.count)) return;
  std::string strides;
  for (int i = 0; i < m.count; ++i)
    strides += (i == 0            ? ""
                : i + 1 < m.count ? ", "
                                  : " and ") +
               std::to_string(m.axis[static_cast<std::size_t>(i)].stride);
  refuse_sentence(
      who, out.name,
      "elements of " + std::string(out.name) + " must not share memory: strides are " + strides);
}

void check_in_place(std::string_view who, const Operand& in, const Operand& out) {
  if (!same_view(in.memory, out.memory) && overlaps(in.memory, out.memory))
    refuse_sentence(who, out.name,
                    std::string(in.name) + " and " + std::string(out.name) +
                        " must be the same view or not overlap at all");
}

void check_separate(std::string_view who, const Operand& in, const Operand& out) {
  if (overlaps(in.memory, out.memory))
    refuse_field(who, out.name, "must not overlap " + std::string(in.name));
}

void check_outputs(std::string_view who, std::span<const Operand> outputs,
                   std::span<const Operand> same, std::span<const Operand> other) {
  for (std::size_t n = 0; n < outputs.size(); ++n) {
    const Operand& out = outputs[n];
    check_no_self_overlap(who, out);
    for (const Operand& next : outputs.subspan(n + 1)) check_separate(who, out, next);
    for (const Operand& in : same) check_in_place(who, in, out);
    for (const Operand& in : other) check_separate(who, in, out);
  }
}
void check_outputs(std::string_view who, std::initializer_list<Operand> outputs,
                   std::initializer_list<Operand> same, std::initializer_list<Operand> other) {
  const auto all = [](std::initializer_list<Operand> list) {
    return std::span<const Operand>(list.begin(), list.size());
  };
  check_outputs(who, all(outputs), all(same), all(other));
}

}  // namespace posenc::v0::detail
